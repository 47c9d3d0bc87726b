"""Log-ins at the doors: what decides, what they cost, and what a guesser can learn."""

from typing import Any

import pytest
from tests.nodes import StillNode

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.gateway.shared import door_logins
from penstock.gateway.shared.door_logins import DoorLogins, Guesses, HashingQueue, network_of
from penstock.gateway.shared.login import (
    BearerToken,
    LoginRefused,
    LoginUndecided,
    Password,
    TooManyLogins,
)
from penstock.handlers.support.context import Session
from penstock.metadata.records import UserScramCredentialRecord
from penstock.metadata.scram import ScramMechanism, salted_password, server_key, stored_key
from penstock.security.sasl.plain import PlainUsers
from penstock.security.sasl.scram import KnownUser

SHA_256, SHA_512 = ScramMechanism
DELAY_MS = 100


def credential(name: str, password: str, mechanism: ScramMechanism = SHA_256) -> UserScramCredentialRecord:
    salt = b"salt of " + password.encode()
    salted = salted_password(mechanism, password, salt, 4096)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key(mechanism, salted),
        server_key=server_key(mechanism, salted),
        iterations=4096,
    )


class Users:
    def __init__(self) -> None:
        self.known: dict[tuple[ScramMechanism, str], UserScramCredentialRecord] = {}
        self.challenged: list[str] = []

    def set(self, name: str, password: str, mechanism: ScramMechanism = SHA_256) -> None:
        self.known[mechanism, name] = credential(name, password, mechanism)

    def user(self, mechanism: ScramMechanism, name: str) -> KnownUser | None:
        found = self.known.get((mechanism, name))
        return None if found is None else KnownUser(name, found)

    def token(self, mechanism: ScramMechanism, token_id: str) -> None:
        return None

    def challenge(self, mechanism: ScramMechanism, name: str) -> tuple[bytes, int]:
        self.challenged.append(name)
        return b"some salt", 4096

    def secret(self) -> bytes:
        return b"a secret of the cluster"


class Door:
    def __init__(self) -> None:
        self.node = StillNode()
        self.world = self.node.world
        self.users = Users()
        self.is_latest = True
        self.asked = 0
        self.hashed = 0
        self.logins = DoorLogins(
            self.node.node.context,
            plain=PlainUsers({"alice": "plain"}, b"k" * 32),
            scrams=(SHA_256, SHA_512),
            users=self.users,
            tokens=None,
            reached_latest=self.latest,
            failed_delay_ms=DELAY_MS,
            session_ms={},
            secret=b"s" * 32,
        )

    def latest(self) -> Promise[bool]:
        self.asked += 1
        promise: Promise[bool] = Promise()
        promise.resolve(self.is_latest)
        return promise

    def begin(self, user: str, password: str, address: str = "10.0.0.1:1") -> Promise[Any]:
        return self.logins.check(Password(user, password), Session("", 0, address, "HTTP"))

    def log_in(self, user: str, password: str, address: str = "10.0.0.1:1") -> Any:
        """The log-in, or the error instead of it."""
        found = self.begin(user, password, address)
        self.world.advance(DELAY_MS + 50)
        assert found.is_settled
        return found.error or found.value


@pytest.fixture
def door() -> Door:
    return Door()


def test_users_of_plain_and_of_both_scrams_log_in(door: Door) -> None:
    door.users.set("carol", "one")
    door.users.set("dave", "two", SHA_512)
    assert (door.log_in("alice", "plain").mechanism, door.asked) == ("PLAIN", 0)
    assert door.log_in("carol", "one").mechanism == "SCRAM-SHA-256"
    assert door.log_in("dave", "two").mechanism == "SCRAM-SHA-512"
    assert door.asked == 2
    assert door.log_in("carol", "one").session_of(Session("", 0, "a:1", "HTTP")).principal == "User:carol"


def test_a_refusal_comes_after_the_delay_and_says_the_same_of_everyone(door: Door) -> None:
    door.users.set("carol", "one")
    messages = set()
    for user, password in (("carol", "two"), ("nobody", "one"), ("alice", "x"), ("", "x"), ("x" * 2000, "x")):
        found = door.begin(user, password)
        door.world.advance(DELAY_MS - 50)
        assert not found.is_settled
        door.world.advance(100)
        assert isinstance(found.error, LoginRefused)
        messages.add(str(found.error))
    assert len(messages) == 1
    refused = door.logins.check(BearerToken("x"), Session("", 0, "a:1", "HTTP"))
    door.world.advance(DELAY_MS + 50)
    assert str(refused.error) in messages


def test_an_unknown_user_costs_the_hashes_of_a_known_one(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[tuple[ScramMechanism, int]] = []

    def counting(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        hashed.append((mechanism, iterations))
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(door_logins, "salted_password", counting)
    door.users.set("carol", "one")
    door.log_in("carol", "wrong")
    of_known = hashed.copy()
    hashed.clear()
    door.log_in("nobody", "wrong")
    assert hashed == of_known == [(SHA_256, 4096), (SHA_512, 4096)]


def test_a_right_password_is_hashed_once_and_counts_as_long_as_the_user_is_unchanged(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.users.set("carol", "one")
    login = door.log_in("carol", "one")
    monkeypatch.setattr(HashingQueue, "run", lambda *_: pytest.fail("it is hashed again"))
    assert door.log_in("carol", "one").user == "carol"
    assert login.is_current(0)
    monkeypatch.undo()
    door.users.set("carol", "two")
    assert not login.is_current(0)
    assert isinstance(door.log_in("carol", "one"), LoginRefused)
    assert door.log_in("carol", "two").user == "carol"
    del door.users.known[SHA_256, "carol"]
    assert isinstance(door.log_in("carol", "two"), LoginRefused)


def test_what_is_remembered_is_no_password_and_not_for_ever(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.users.set("carol", "planted")
    door.log_in("carol", "planted")
    assert "planted" not in repr(vars(door.logins))
    assert "planted" not in repr(Password("carol", "planted"))
    hashed = []
    run = HashingQueue.run
    monkeypatch.setattr(HashingQueue, "run", lambda queue, *more: hashed.append(1) or run(queue, *more))
    door.log_in("carol", "planted")
    assert not hashed
    door.world.advance(door_logins.REMEMBERED_NS // 1_000_000 + 1000)
    door.log_in("carol", "planted")
    assert hashed


def test_without_the_controller_known_users_log_in_and_others_are_undecided(door: Door) -> None:
    door.users.set("carol", "one")
    door.is_latest = False
    assert door.log_in("carol", "one").user == "carol"
    assert isinstance(door.log_in("carol", "new"), LoginUndecided)
    assert isinstance(door.log_in("nobody", "new"), LoginUndecided)


def test_a_user_that_changes_while_its_password_is_hashed_is_undecided(door: Door) -> None:
    door.users.set("carol", "one")
    found = door.begin("carol", "one")
    if not found.is_settled:
        door.users.set("carol", "two")
        door.world.advance(DELAY_MS + 50)
        assert isinstance(found.error, LoginUndecided)


def test_many_failures_of_an_address_have_to_wait_and_others_do_not(door: Door) -> None:
    door.users.set("carol", "one")
    assert door.log_in("carol", "one").user == "carol"
    crowd = [door.begin("alice", f"guess {number}", "10.0.0.9:1") for number in range(40)]
    door.world.advance(DELAY_MS + 50)
    refused = [each for each in crowd if isinstance(each.error, LoginRefused)]
    assert len(refused) <= door_logins.FAILURES_MAX
    assert all(isinstance(each.error, LoginRefused | TooManyLogins) for each in crowd)
    began_ns = door.world.clock_ns()
    answers = [door.log_in("alice", f"more {number}", "10.0.0.9:1") for number in range(60)]
    seconds = (door.world.clock_ns() - began_ns) / 1e9
    failed = sum(isinstance(each, LoginRefused) for each in answers)
    assert len(refused) + failed <= door_logins.FAILURES_MAX + seconds + 1
    assert isinstance(answers[-1] if isinstance(answers[-1], TooManyLogins) else answers[-2], TooManyLogins)
    assert door.log_in("alice", "plain", "10.0.0.8:1").user == "alice"
    assert door.log_in("carol", "one", "10.0.0.9:1").user == "carol", "it was right just now"
    door.world.advance(5000)
    assert door.log_in("alice", "plain", "10.0.0.9:2").user == "alice"


def test_the_addresses_that_are_remembered_are_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_logins, "ADDRESSES_MAX", 10)
    guesses = Guesses(door.world)

    def failing() -> Any:
        raise LoginRefused("")
        yield

    for number in range(20):
        with pytest.raises(LoginRefused):
            next(guesses.counted(f"10.0.0.{number}", failing()))
    assert len(guesses._failures) == 10


def test_one_address_does_not_hold_up_the_others() -> None:
    class Lane:
        def __init__(self) -> None:
            self.begun: list[tuple[Any, Any]] = []

        def beside(self, work: Any, done: Any) -> None:
            self.begun.append((work, done))

    lane = Lane()
    queue = HashingQueue(lane)  # type: ignore[arg-type]
    crowd = [
        queue.run("hostile", list)
        for _ in range(door_logins.HASHING_MAX + door_logins.WAITING_MAX_OF_ADDRESS)
    ]
    with pytest.raises(TooManyLogins):
        queue.run("hostile", list)
    other = queue.run("other", list)
    for _ in range(door_logins.HASHING_MAX):
        lane.begun.pop(0)[1]([], None)
    assert len(lane.begun) == door_logins.HASHING_MAX
    lane.begun[0][1]([b"x"], None)
    lane.begun[1][1]([b"y"], None)
    assert other.is_settled, "it did not wait for the whole crowd"
    assert sum(each.is_settled for each in crowd) < len(crowd)


def test_the_whole_crowd_is_bounded() -> None:
    class Lane:
        def beside(self, work: Any, done: Any) -> None: ...

    queue = HashingQueue(Lane())  # type: ignore[arg-type]
    for number in range(door_logins.HASHING_MAX + door_logins.WAITING_MAX):
        queue.run(f"10.0.0.{number}", list)
    with pytest.raises(TooManyLogins):
        queue.run("10.0.1.1", list)


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8:0:1:2:3:4:5") == network_of("2001:db8:0:1:9:9:9:9") == "2001:db8:0:1"


def test_errors_carry_no_secret(door: Door) -> None:
    error = door.log_in("alice", "planted")
    assert isinstance(error, KafkaError)
    assert "planted" not in f"{error} {getattr(error, 'why', '')}"
