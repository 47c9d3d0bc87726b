"""The quorum's timeouts, by the names of Kafka's `controller.quorum.*` settings and with their defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    election_timeout_ms: int = 1000
    """A voter waits between one and two of these for an election to end."""
    fetch_timeout_ms: int = 2000
    """A follower without a successful fetch for this time becomes prospective; a leader without fetches of a majority
    for one and a half times as long resigns."""
    election_backoff_ms_max: int = 1000
    """Spreads the successors that a resigning leader names: the last one waits this long."""
    request_timeout_ms: int = 2000
    """An unanswered request is given up and may be sent again."""
    retry_backoff_ms: int = 20
    """The pause after a request that failed or was refused."""
    fetch_wait_ms_max: int = 500
    """How long a leader may hold a fetch that has nothing to bring; Kafka's own constant."""
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    auto_join: bool = False
    """Whether a follower without a vote asks its leader for one; so does one whose disk was replaced, which has the
    lost one removed first (KIP-853)."""

    @property
    def check_quorum_ms(self) -> int:
        """Half a timeout of grace for the network and the disk, as Kafka grants it."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)


OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this time is no longer described; Kafka's constant."""

CAUGHT_UP_WITHIN_MS = 3_600_000
"""A replica that may become a voter has been at the log's end within the hour; Kafka's own constant."""
