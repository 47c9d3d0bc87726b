"""Kafka's `quorum-state` file beside the metadata log: this node's epoch, vote and leader."""

from json import JSONDecodeError, loads

from penstock.raft import quorum_state
from penstock.raft.election import ElectionState
from penstock.raft.voters import VoterSet
from penstock.storage.errors import StorageError
from penstock.vfs import Vfs, join, read_file, replace_file

QUORUM_STATE = "quorum-state"


class QuorumStateFile:
    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self._path = join(directory, QUORUM_STATE)

    def read(self) -> ElectionState | None:
        """None if there is no file. A damaged file is an error, because it may have recorded a vote."""
        data = self._content()
        return None if data is None else quorum_state.decode(data, self._path)

    def write(self, election: ElectionState, kraft_version: int, voters: VoterSet) -> None:
        """Durable when this returns."""
        replace_file(self._vfs, self._path, quorum_state.encode(election, min(kraft_version, 1), voters))

    def check_single_voter(self, node_id: int) -> None:
        """Raise if the file of a static quorum (`kraft.version` 0) names voters other than this node."""
        data = self._content()
        if data is None:
            return
        try:
            named = [int(each["voterId"]) for each in loads(data).get("currentVoters") or ()]
        except (
            JSONDecodeError,
            UnicodeDecodeError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            raise StorageError(f"{self._path} has invalid voters: {error}") from error
        if named and named != [node_id]:
            raise StorageError(
                f"{self._path} names the voters {named}, expected only node {node_id}: "
                "set controller.quorum.voters"
            )

    def _content(self) -> bytes | None:
        try:
            return read_file(self._vfs, self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error.strerror or error}") from error
