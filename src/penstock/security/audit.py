"""The audit: one line of JSON for each event that matters to security.

    operation   a client was denied an operation on a resource, or (with `audit.log=all`) allowed it
    login       a client logged in, or failed to
    change      a client changed a user, an ACL, a token, a quota or a setting

How often the first two happen is a client's choice, so they are summed up. The first event of its kind makes a line at
once; those like it in the next `WINDOW_MS` make one more line together, with their number:

    denied denied denied ... denied | denied
    line                            | line (count 41)  line ...

A client has `CLIENT_LINES_MAX` kinds of events in a window, all clients together `LINES_MAX`; allowed and denied
operations, log-ins and failed ones each have these limits for themselves, so that none hides another. Further ones
are only counted: in one line for each client, and in one for all clients beyond `CLIENTS_MAX`. The counts of all lines
add up to the number of events. Changes are not summed up, since each one is a record of the metadata log.

Lines wait in memory until the next ticks of the event loop, `PENDING_MAX` at most. What does not fit is dropped,
counted, and said in a line.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.base.ids import TimestampMs
from penstock.base.metrics import AuditMeter
from penstock.base.world import Timer, World
from penstock.metadata.acls import AclResourceType, Operation

if TYPE_CHECKING:
    from penstock.security.authorizer import Authorizer

WINDOW_MS: Final = 10_000
CLIENT_LINES_MAX: Final = 20
LINES_MAX: Final = 100
"""With one more line each for the repetitions: 20 lines a second, or half a gigabyte a day."""
CLIENTS_MAX: Final = 50
"""Clients whose further events are counted one by one."""

PENDING_MAX: Final = 10_000
LINES_A_TICK: Final = 50
"""Written in one tick of the event loop: about a millisecond."""

RECENT_MAX: Final = 500
"""Lines that are kept in memory to be shown: about a quarter of a megabyte."""

TEXT_MAX: Final = 255
"""Characters of a text in a line. Topics have 249 at most; a client may send names of 32,767."""

OPERATION, LOGIN, CHANGE, AUDIT = "operation", "login", "change", "audit"
ALLOWED, DENIED, DONE, FAILED, DROPPED = "allowed", "denied", "done", "failed", "dropped"

OTHERS: Final = (
    f"more than {CLIENT_LINES_MAX} different events of one client, or {LINES_MAX} of all clients, in "
    f"{WINDOW_MS // 1000} s: these are only counted"
)
NO_AUTHORIZER: Final = "every client may do everything (authorizer.class.name is empty)"


class AuditedClient(Protocol):
    """A client's session, as the audit sees it."""

    @property
    def listener(self) -> str: ...

    @property
    def client_address(self) -> str: ...

    @property
    def principal(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def request(self) -> str | None:
        """The API, route or command; None for Produce and Fetch."""


AuditSink = Callable[[Sequence[str]], None]
"""Takes lines. It neither waits nor raises; what it cannot write, it counts in its meter."""


class _Repeated:
    """Events of one kind in the current window."""

    __slots__ = ("count", "fields", "since_ms")

    def __init__(self, fields: dict[str, Any], since_ms: TimestampMs, count: int) -> None:
        self.fields = fields
        self.since_ms = since_ms
        self.count = count
        """Events that no line stands for yet."""


class AuditLog:
    def __init__(
        self,
        world: World,
        node_id: int,
        meter: AuditMeter,
        sinks: Sequence[AuditSink],
        *,
        records_allowed: bool,
    ) -> None:
        self.records_allowed = records_allowed
        self._world = world
        self._node_id = node_id
        self._meter = meter
        self._sinks = sinks
        self.recent: deque[str] = deque(maxlen=RECENT_MAX)
        """The last lines, whatever became of them in the sinks."""
        self._repeated: dict[Any, _Repeated] = {}
        self._of_clients: dict[tuple[str, ...], int] = {}
        """By event, result, principal and address: the kinds of events in this window."""
        self._lines: dict[tuple[str, str], int] = {}
        """By event and result: the kinds of events in this window that have a line, or a number, of their own."""
        self._window: Timer | None = None
        self._pending: deque[str] = deque()
        self._is_draining = False
        self._dropped = 0
        """Lines that did not fit since the last line that says so."""

    # -- events ----------------------------------------------------------------------------------------

    def allows(
        self,
        client: AuditedClient,
        operation: Operation,
        on: AclResourceType,
        name: str,
        authorizer: "Authorizer | None",
    ) -> bool:
        """The authorizer's decision, which is recorded."""
        is_allowed = authorizer is None or authorizer.allows(
            client.principal, client.client_address, operation, on, name
        )
        if is_allowed and not self.records_allowed:
            return True
        request = client.request or _hot_request(operation)
        key = operation, on, name[: TEXT_MAX + 1], request

        def fields() -> dict[str, Any]:
            decision = None
            if authorizer is not None:
                decision = authorizer.decide(client.principal, client.client_address, operation, on, name)
            return {
                "request": request,
                "operation": title(operation),
                "resource_type": title(on),
                "resource_name": _short(name),
                "result": result,
                "reason": NO_AUTHORIZER if decision is None else _short(decision.reason),
            }

        result = ALLOWED if is_allowed else DENIED
        self._sum_up((OPERATION, result), client, key, client.principal, fields)
        self._meter.count(result)
        return is_allowed

    def logged_in(self, client: AuditedClient, how: str) -> None:
        """`how` is the mechanism, or TLS for a certificate."""
        fields = {"operation": how, "result": ALLOWED}
        self._sum_up((LOGIN, ALLOWED), client, (how,), client.principal, lambda: fields)
        self._meter.count("login")

    def login_failed(self, client: AuditedClient, how: str | None, why: str, user: str | None = None) -> None:
        """`user` is the name that the client claims to have."""
        principal = None if user is None else f"User:{_short(user)}"
        fields = {"operation": how, "result": DENIED, "reason": _short(why)}
        self._sum_up((LOGIN, DENIED), client, (how, fields["reason"]), principal, lambda: fields)
        self._meter.count("login_failed")

    def changed(
        self,
        client: AuditedClient,
        operation: str,
        resource_type: str,
        resource_name: str,
        change: Mapping[str, Any],
        failed: str | None = None,
    ) -> None:
        """A change was made; or it may have been, and `failed` says why that is not known."""
        self._write(
            self._line(
                CHANGE,
                client,
                client.principal,
                {
                    "request": client.request,
                    "operation": operation,
                    "resource_type": resource_type,
                    "resource_name": _short(resource_name),
                    "result": DONE if failed is None else FAILED,
                    **({} if failed is None else {"reason": _short(failed)}),
                    "change": {name: _short(each) for name, each in change.items()},
                },
            )
        )
        self._meter.count("change")

    # -- summing up ------------------------------------------------------------------------------------

    def _sum_up(
        self,
        event: tuple[str, str],
        client: AuditedClient,
        kind: tuple[Any, ...],
        principal: str | None,
        fields: Callable[[], dict[str, Any]],
    ) -> None:
        address, client_id = client.client_address, client.client_id
        key = *event, client.listener, address, principal, client_id and client_id[:TEXT_MAX], kind
        repeated = self._repeated.get(key)
        if repeated is not None:
            repeated.count += 1
            self._meter.aggregated += 1
            return
        now_ms = self._world.now_ms()
        if self._window is None:
            self._window = self._world.call_later(WINDOW_MS, self._end_window)
        # A failed log-in has the name that the client claims: its budget is that of its address.
        who = *event, address, client.principal
        of_client, lines = self._of_clients.get(who, 0), self._lines.get(event, 0)
        if of_client >= CLIENT_LINES_MAX or lines >= LINES_MAX:
            self._count_other(event, client, now_ms)
            return
        self._of_clients[who], self._lines[event] = of_client + 1, lines + 1
        line = self._line(event[0], client, principal, fields())
        self._repeated[key] = _Repeated(line, now_ms, 0)
        self._write(line)

    def _count_other(self, event: tuple[str, str], client: AuditedClient, now_ms: TimestampMs) -> None:
        self._meter.aggregated += 1
        key: tuple[str, ...] = *event, client.listener, client.client_address, client.principal
        whose: AuditedClient | None = client
        counts = *event, "clients"
        if key not in self._repeated and self._of_clients.get(counts, 0) >= CLIENTS_MAX:
            key, whose = event, None
        repeated = self._repeated.get(key)
        if repeated is None:
            if whose is not None:
                self._of_clients[counts] = self._of_clients.get(counts, 0) + 1
            fields = {"result": event[1], "reason": OTHERS}
            line = self._line(event[0], whose, client.principal, fields)
            repeated = self._repeated[key] = _Repeated(line, now_ms, 0)
        repeated.count += 1

    def _end_window(self) -> None:
        self._window = None
        repeated, self._repeated = self._repeated, {}
        self._of_clients.clear()
        self._lines.clear()
        now = _time(self._world.now_ms())
        for each in repeated.values():
            if each.count:
                self._write(
                    {**each.fields, "time": now, "count": each.count, "since": _time(each.since_ms)},
                )

    # -- lines -----------------------------------------------------------------------------------------

    def _line(
        self, event: str, client: AuditedClient | None, principal: str | None, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        line: dict[str, Any] = {"time": _time(self._world.now_ms()), "node": self._node_id, "event": event}
        if client is not None:
            line |= {
                "listener": client.listener,
                "client": client.client_address,
                "principal": principal,
                "client_id": client.client_id and _short(client.client_id),
            }
        return {**line, **fields, "count": fields.get("count", 1)}

    def _write(self, line: Mapping[str, Any]) -> None:
        if len(self._pending) >= PENDING_MAX:
            self._dropped += 1
            self._meter.dropped["queue"] += 1
            return
        self._pending.append(_json(line))
        if not self._is_draining:
            self._is_draining = True
            self._world.call_soon(self._drain)

    def _drain(self) -> None:
        """Pass some lines on, and the others in later ticks."""
        pending = self._pending
        some = [pending.popleft() for _ in range(min(LINES_A_TICK, len(pending)))]
        if not pending and self._dropped:
            some.append(_json(self._line(AUDIT, None, None, {"result": DROPPED, "count": self._dropped})))
            self._dropped = 0
        self.recent.extend(some)
        for sink in self._sinks:
            sink(some)
        self._is_draining = bool(pending)
        if pending:
            self._world.call_soon(self._drain)

    def stop(self) -> None:
        """Pass on everything."""
        if self._window is not None:
            self._window.cancel()
            self._end_window()
        while self._pending or self._dropped:
            self._drain()


def _json(line: Mapping[str, Any]) -> str:
    """In ASCII on one line, whatever a client has put into its names."""
    return json.dumps(line, separators=(",", ":"))


def _hot_request(operation: Operation) -> str:
    """The API of a decision without a request: Produce or Fetch, whose sessions are not made for each request."""
    return "Produce" if operation is Operation.WRITE else "Fetch"


def title(value: Enum) -> str:
    """CLUSTER_ACTION as ClusterAction, which is how Kafka's tools show it."""
    return value.name.title().replace("_", "")


def _short(text: Any) -> Any:
    if not isinstance(text, str) or len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}... ({len(text)} characters)"


def _time(at_ms: TimestampMs) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
