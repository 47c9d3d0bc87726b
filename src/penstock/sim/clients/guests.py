"""Guests: clients whose password and ACLs change while they log in, produce, fetch, commit and begin transactions.

A guest sends each request whether or not it may, mostly to the node that can serve it, and tells the rules of
`checkers.rights` what it was granted. It logs in with its last password, and at times with an earlier one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.scram import ITERATIONS_MIN, ScramMechanism, salted_password
from penstock.records import build_batch
from penstock.security.sasl.client import ClientLogin, ScramLogin
from penstock.sim.checkers.history import Acked, Batch, ProducedRecord, Sent, Survives
from penstock.sim.checkers.rights import (
    Access,
    FullSpeed,
    Password,
    ProduceDenied,
    RightAnswered,
    RightTried,
)
from penstock.sim.clients import group_messages, messages
from penstock.sim.clients.client import Client, ClientContext, code_name
from penstock.sim.clients.connection import RequestConnection
from penstock.sim.clients.login_messages import SaltedPassword
from penstock.sim.clients.messages import R, Request
from penstock.sim.clients.producers import ALL
from penstock.sim.secured import GUARDED, guest_group, guest_transactional_id
from penstock.wire import Api
from penstock.wire.peers import Address

STALE: Final = 0.2
"""Share of log-ins with an earlier password."""

NAMES_UNTIL: Final = {Api.PRODUCE: 12, Api.FETCH: 12, Api.OFFSET_COMMIT: 9}
"""Last versions that name topics. A guest that was never allowed to describe the topic does not know its id."""


@dataclass
class Account:
    """A guest's user, as the operator and the guest know it."""

    user: str
    mechanism: ScramMechanism
    passwords: list[str] = field(default_factory=list)
    """All that it had; the last one may be removed, or not set yet."""

    def new_password(self) -> str:
        self.passwords.append(f"password {len(self.passwords)} of {self.user}")
        return self.passwords[-1]

    def salted(self, password: str) -> SaltedPassword:
        salt = f"salt of {password}".encode()
        salted = salted_password(self.mechanism, password, salt, ITERATIONS_MIN)
        return SaltedPassword(self.mechanism, salt, ITERATIONS_MIN, salted)

    def named(self, password: str) -> Password:
        """The password, as the rules know it."""
        return Password(self.mechanism, f"salt of {password}".encode())


class Guest(Client):
    def __init__(
        self, account: Account, context: ClientContext, pace_us: int, numbers: Callable[[], int]
    ) -> None:
        """`numbers` counts the requests and log-ins of all guests."""
        super().__init__(account.user, context)
        self.account = account
        self._pace_us = pace_us
        self._numbers = numbers
        self._logins: dict[str, ScramLogin] = {}
        self._trying: dict[RequestConnection, int] = {}
        """Log-ins under way."""
        self._topic = messages.TopicName(GUARDED, None)
        self._partitions: list[int] = [0]
        self._leaders: dict[int, Address] = {}
        self._batches = 0
        self._is_ready = False

    # -- log-ins ---------------------------------------------------------------------------------------

    @property
    def login(self) -> ClientLogin:
        passwords = self.account.passwords
        is_stale = len(passwords) > 1 and self.rng.random() < STALE
        return self._login_with(self.rng.choice(passwords[:-1]) if is_stale else passwords[-1])

    def _login_with(self, password: str) -> ScramLogin:
        found = self._logins.get(password)
        if found is None:
            found = self._logins[password] = ScramLogin(
                self.account.mechanism.label, self.name, password, lambda: f"{self.rng.getrandbits(64):016x}"
            )
        return found

    def login_begins(self, connection: RequestConnection) -> None:
        password = next(each for each, login in self._logins.items() if login is connection.login)
        number = self._trying[connection] = self._numbers()
        self.record(RightTried(number, connection.to.host, self.name, self.account.named(password)))

    def login_ended(self, connection: RequestConnection, code: int) -> None:
        number = self._trying.pop(connection)
        if code not in (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED):
            super().login_ended(connection, code)
        self.trace(f"logs in at {connection.to.host}: {code_name(code)}")
        self.record(RightAnswered(number, not code))

    # -- requests --------------------------------------------------------------------------------------

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        if self._topic.id is None and api in NAMES_UNTIL:
            return low, min(high, NAMES_UNTIL[api])
        return low, high

    def start(self) -> None:
        super().start()
        self._plan()

    def ready(self) -> None:
        self._is_ready = True

    def disconnected(self) -> None:
        self._is_ready = False
        self._trying.clear()

    def _plan(self) -> None:
        self.later(self.rng.randrange(self._pace_us // 4, self._pace_us), self._act)

    def _act(self) -> None:
        if not self.is_working or self._is_over:
            return
        self._plan()
        if self._is_ready:
            self.rng.choice(
                (self._describe, self._produce, self._produce, self._fetch, self._commit, self._init)
            )()

    def _try(
        self,
        needs: Access,
        request: Request[R],
        code_of: Callable[[R], int],
        on_reply: Callable[[R], None] = lambda _: None,
        to: Address | None = None,
    ) -> None:
        """Send a request, and tell whether it was granted what it needs."""
        to = to or self.rng.choice(self.context.bootstrap)
        number = self._numbers()
        denied = _DENIED[needs.kind]

        def answered(reply: R) -> None:
            code = code_of(reply)
            is_granted = False if code == denied else True if code == ErrorCode.NONE else None
            self.trace(f"tries {needs} at {to.host}: {code_name(code)}")
            self.record(RightAnswered(number, is_granted))
            on_reply(reply)

        self.record(RightTried(number, to.host, self.name, needs))
        self.call(request, answered, lambda: self.record(RightAnswered(number, None)), to=to)

    def _describe(self) -> None:
        def described(seen: messages.TopicMetadata) -> None:
            if not seen.code and seen.partitions:
                self._topic, self._partitions, self._leaders = seen.topic, seen.partitions, seen.leaders

        needs = Access(Operation.DESCRIBE, AclResourceType.TOPIC, GUARDED)
        self._try(needs, messages.metadata(GUARDED), lambda seen: seen.code, described)

    def _produce(self) -> None:
        partition = self.rng.choice(self._partitions)
        self._batches += 1
        at = TopicPartition(GUARDED, partition)
        value = f"{self.name}/{partition}/{self._batches}".encode()
        batch = Batch(
            self.name, self._batches, at, ALL, [ProducedRecord(None, value, self._batches)], sends=1
        )
        encoded = build_batch([(None, value, self.context.schedule.now_ms)])

        request = messages.produce(ALL, 5_000, self._topic, {partition: encoded})
        to = self._leaders.get(partition) or self.rng.choice(self.context.bootstrap)
        number = self._numbers()

        def answered(reply: tuple[list[messages.PartitionProduced], int]) -> None:
            ((result,), throttled_ms) = reply
            if result.code == ErrorCode.NONE:
                self.record(Acked(batch, result.base_offset, Survives.POWER_CUT, self.incarnation))
            elif result.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.record(ProduceDenied(self.name, (value,)))
            self.record(RightAnswered(number, not throttled_ms))
            if throttled_ms:
                self.trace(f"is throttled by {to.host} for {throttled_ms} ms")
                self.disconnect()  # nothing is read from the connection meanwhile

        self.record(Sent(batch))
        self.record(RightTried(number, to.host, self.name, FullSpeed()))
        self._try(
            Access(Operation.WRITE, AclResourceType.TOPIC, GUARDED),
            Request(Api.PRODUCE, request.build, lambda reply: (request.read(reply), _throttled_ms(reply))),
            lambda reply: reply[0][0].code,
            answered,
            to,
        )

    def _fetch(self) -> None:
        partition = self.rng.choice(self._partitions)
        limits = messages.FetchLimits(100, 1, 4096, 0)
        self._try(
            Access(Operation.READ, AclResourceType.TOPIC, GUARDED),
            messages.fetch(limits, (0, -1), self._topic, [messages.PartitionFetch(partition, 0, 4096)]),
            lambda reply: reply.code or reply.partitions[0].code,
            to=self._leaders.get(partition),
        )

    def _commit(self) -> None:
        group = guest_group(self.name)
        self._try(
            Access(Operation.READ, AclResourceType.GROUP, group),
            group_messages.offset_commit(
                group_messages.Membership(group, "", -1), self._topic, {0: group_messages.Position(0, "")}
            ),
            lambda codes: codes[0],
        )

    def _init(self) -> None:
        transactional_id = guest_transactional_id(self.name)
        self._try(
            Access(Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id),
            messages.init_producer_id(transactional_id),
            lambda reply: reply.code,
        )


def _throttled_ms(response: Any) -> int:
    return round(response.throttle_time.total_seconds() * 1000) if hasattr(response, "throttle_time") else 0


_DENIED: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
