"""Shares, credits and buckets of quotas, without a node."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.metrics import Metrics
from penstock.metadata.quotas import PRODUCER_BYTE_RATE, entity_of
from penstock.security import client_quotas
from penstock.security.client_quotas import CREDIT_NS, ClientQuotas, ClientShare
from penstock.security.rates import Windows

MS = 1_000_000


class Connection:
    def __init__(self, principal: str = "User:alice") -> None:
        self.principal = principal
        self.muted: list[int] = []

    def mute(self, delay_ms: int) -> None:
        self.muted.append(delay_ms)


class Scene:
    def __init__(self, **limits: float) -> None:
        self.ns = 10**12
        self.quotas = ClientQuotas(Metrics(), Windows(), Windows(), lambda: self.ns)
        self.quotas.follow({entity_of({"user": None}): limits})

    def share(self, principal: str = "User:alice", client_id: str = "x") -> ClientShare:
        return self.quotas.share_of(None, Connection(principal), client_id)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=80), st.integers(1, 10**6)
)
def test_credits_together_never_exceed_what_is_left(steps: list[tuple[int, int]], rate: int) -> None:
    """Connections come one after the other, and each uses all of its credit at once: whoever is not throttled is
    within the ten to eleven seconds' worth that the samples allow."""
    scene = Scene(producer_byte_rate=rate)
    shares: list[ClientShare] = []
    used = 0
    for which, wait_ms in steps:
        if which >= len(shares):
            shares.append(scene.share())
        share = shares[which % len(shares)]
        if share.produced(1, scene.ns):
            return
        used += 1 + share.credit
        share.credit = 0
        assert used <= rate * 11 + len(steps)
        scene.ns += min(wait_ms, 10) * MS


def test_credit_ends_with_its_time_and_with_the_quota() -> None:
    scene = Scene(producer_byte_rate=1000)
    share = scene.share()
    assert share.produced(100, scene.ns) == 0
    assert share.credit > 0
    assert share.until_ns == scene.ns + CREDIT_NS
    scene.quotas.follow({entity_of({"user": None}): {PRODUCER_BYTE_RATE: 10.0}})
    other = scene.quotas.share_of(share, share.session, "x")
    assert other is not share
    assert other.credit == 0
    assert other.produced(1, scene.ns) == 100, (
        "what was used before counts: 101 bytes, at 10 a second for 10 s"
    )


def test_used_credit_counts_when_it_was_used() -> None:
    scene = Scene(producer_byte_rate=1000)
    share = scene.share()
    share.produced(1, scene.ns)
    share.credit -= 4000
    scene.ns += 60_000 * MS
    assert share.produced(9000, scene.ns) == 0, "the credit was used a minute ago"
    share.credit = 0
    assert share.produced(9000, scene.ns) > 0


def test_a_closed_connection_leaves_what_it_used() -> None:
    scene = Scene(producer_byte_rate=1000)
    share = scene.share()
    share.produced(1, scene.ns)
    share.credit -= 4000
    share.leave()
    assert scene.share().produced(7000, scene.ns) > 0


def test_client_ids_without_end_share_a_bucket() -> None:
    scene = Scene()
    scene.quotas.follow({entity_of({"client-id": None}): {PRODUCER_BYTE_RATE: 1000.0}})
    most = client_quotas.BUCKETS_MAX
    for number in range(most + 50):
        scene.share(client_id=f"c{number}").produced(1, scene.ns)
    assert len(scene.quotas._buckets) <= most + 1
    scene.ns += 60_000 * MS
    shares = [scene.share(client_id=f"d{number}") for number in range(3)]
    assert len({id(each.produce) for each in shares}) == 1, "the others are still connected"


def test_buckets_of_those_who_have_gone_are_forgotten() -> None:
    scene = Scene()
    scene.quotas.follow({entity_of({"client-id": None}): {PRODUCER_BYTE_RATE: 1000.0}})
    for number in range(client_quotas.BUCKETS_MAX):
        scene.share(client_id=f"c{number}").leave()
    scene.ns += 60_000 * MS
    scene.share(client_id="new")
    assert len(scene.quotas._buckets) == 1


def test_the_metrics_name_a_thousand_clients_and_the_rest_together() -> None:
    scene = Scene(producer_byte_rate=1)
    for number in range(1500):
        scene.share(f"User:u{number}").produced(10**6, scene.ns)
    found = scene.quotas.metrics.quotas
    assert len(found) == 1001
    [rest] = [meter for who, meter in found.items() if not who.user]
    assert rest.times == 500
