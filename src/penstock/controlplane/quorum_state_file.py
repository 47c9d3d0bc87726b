"""What a node promised about elections, on disk: Kafka's `quorum-state`, beside the metadata log."""

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
        """None where nothing was promised yet. A file that makes no sense is refused: it may have been a vote."""
        data = self._content()
        return None if data is None else quorum_state.decode(data, self._path)

    def write(self, election: ElectionState, kraft_version: int, voters: VoterSet) -> None:
        """Durable when this returns."""
        replace_file(self._vfs, self._path, quorum_state.encode(election, min(kraft_version, 1), voters))

    def check_single_voter(self, node_id: int) -> None:
        """Refuse a static quorum (`kraft.version` 0) of more than this node, which the file of such a one tells."""
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
            raise StorageError(f"{self._path} names no voters that can be understood: {error}") from error
        if named and named != [node_id]:
            raise StorageError(
                f"{self._path} names the voters {named}, expected node {node_id} alone: "
                "set controller.quorum.voters"
            )

    def _content(self) -> bytes | None:
        try:
            return read_file(self._vfs, self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error.strerror or error}") from error
