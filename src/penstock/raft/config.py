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
    """Spreads the elections of the successors of a resigning leader: the last one waits this long."""
    request_timeout_ms: int = 2000
    """After this time an unanswered request may be sent again."""
    retry_backoff_ms: int = 20
    """Pause after a request that failed or was rejected."""
    fetch_wait_ms_max: int = 500
    """How long a leader may hold a fetch without new records; Kafka's constant."""
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    auto_join: bool = False
    """Whether an observer adds itself to the voters. One whose disk was replaced first removes its lost voter
    (KIP-853)."""

    @property
    def check_quorum_ms(self) -> int:
        """Adds half a timeout for network and disk delays, as in Kafka."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)


OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this time is no longer described; Kafka's constant."""

CAUGHT_UP_WITHIN_MS = 3_600_000
"""A replica must have been at the log's end within this time to become a voter; Kafka's constant."""
