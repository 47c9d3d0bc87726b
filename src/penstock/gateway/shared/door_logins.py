"""Log-ins at the doors: a password or a bearer token in, a `Login` out.

    Password --> PLAIN's users --> delegation tokens --> SCRAM's users, by the controller's latest metadata
    BearerToken --> the validator of OAUTHBEARER

SCRAM users are checked by the keys in the metadata log, which takes thousands of hashes: they are computed on a
thread, for few clients at a time, and by turns for each address. A password that was right is remembered for some
minutes, by a keyed hash and together with the user's key: it counts only as long as the metadata log has that key.

A stranger learns nothing: an unknown user costs the same work and gets the same answer as a wrong password, after the
same delay (`connection.failed.authentication.delay.ms`). An address with many failures has to wait before its next
password is checked.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps, sleep
from penstock.base.world import World
from penstock.gateway.shared.login import (
    AuthorizationCode,
    BearerToken,
    Credentials,
    Login,
    LoginRefused,
    LoginUndecided,
    Password,
    TooManyLogins,
)
from penstock.handlers.sasl import FailedLogins
from penstock.handlers.support.context import Context, Session
from penstock.metadata.delegation_tokens import is_expired, owner_name
from penstock.metadata.scram import ITERATIONS_MIN, ScramMechanism, hashed, salted_password, stored_key
from penstock.security.bearer import InvalidToken, KeysPending, TokenValidator
from penstock.security.sasl.plain import PlainUsers
from penstock.security.sasl.scram import KnownUser, ScramUsers

if TYPE_CHECKING:
    from penstock.gateway.shared.oidc_client import OidcProvider

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"

NAME_CHARS_MAX: Final = 1024
PASSWORD_CHARS_MAX: Final = 4096
"""Of a log-in. Names in ACLs and passwords are far shorter."""

HASHING_MAX: Final = 2
"""Passwords that are hashed at the same time, each for 2 to 20 ms."""
WAITING_MAX: Final = 256
WAITING_MAX_OF_ADDRESS: Final = 16
"""Passwords that wait to be hashed."""

REMEMBERED_MAX: Final = 1000
REMEMBERED_NS: Final = 300_000_000_000
"""Passwords that were right."""

FAILURES_MAX: Final = 20
"""Failed log-ins of an address before it has to wait."""
FAILURES_A_SECOND: Final = 1
"""Failures of an address that are forgotten each second: so many passwords can be guessed."""
ADDRESSES_MAX: Final = 10_000
"""Addresses whose failures are counted; the one that failed longest ago is forgotten."""

_READY: Final[Promise[bool]] = Promise()
_READY.resolve(True)


def promised(steps: Steps[Login]) -> Promise[Login]:
    """The log-in at the end of steps."""
    found: Promise[Login] = Promise()

    def failed(error: Exception) -> None:
        found.fail(error if isinstance(error, KafkaError) else KafkaError(f"{type(error).__name__}: {error}"))

    RunningSteps(steps, found.resolve, failed)
    return found


class DoorLogins:
    """What the clients of one door log in with."""

    def __init__(
        self,
        context: Context,
        *,
        plain: PlainUsers | None,
        scrams: Sequence[ScramMechanism],
        users: ScramUsers,
        tokens: TokenValidator | None,
        reached_latest: Callable[[], Promise[bool]],
        failed_delay_ms: int,
        session_ms: Mapping[str, int],
        secret: bytes,
        console_secret: str | None = None,
        oidc: "OidcProvider | None" = None,
    ) -> None:
        """`plain` and `tokens` are None if PLAIN or OAUTHBEARER is off; `session_ms` has the lifetime of connections'
        sessions by mechanism, 0 for no end; `secret` is random; `console_secret` is that of the console's sessions at
        all nodes of the cluster, if there is one; `oidc` is the provider that the console's users can log in at."""
        self._context = context
        self._plain = plain
        self._scrams = tuple(scrams)
        self._labels = {each.label: each for each in scrams}
        self._users = users
        self._tokens = tokens
        self._reached_latest = reached_latest
        self._failed_delay_ms = failed_delay_ms
        self.session_ms = session_ms
        self._secret = secret
        self._console_secret = console_secret
        self.oidc = oidc
        self._remembered: OrderedDict[bytes, tuple[ScramMechanism | None, bytes, int]] = OrderedDict()
        """By the keyed hash of a user and a password that was right: the user's mechanism and stored key, and until
        when. Users of PLAIN have none, and are checked again."""
        self._hashing = HashingQueue(context.world)
        self._guesses = Guesses(context.world)
        self._failed = FailedLogins(context.world)

    @property
    def takes_passwords(self) -> bool:
        return self._plain is not None or bool(self._scrams)

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    def check(self, credentials: Credentials, session: Session) -> Promise[Login]:
        """Fails with `LoginRefused`, `LoginUndecided` or `TooManyLogins`."""
        return promised(self._check(credentials, session))

    def _check(self, credentials: Credentials, session: Session) -> Steps[Login]:
        address, audit = network_of(session.client_address), self._context.audit
        try:
            if isinstance(credentials, BearerToken):
                login = self._of_token(credentials.token)
            elif isinstance(credentials, AuthorizationCode):
                login = yield from self._guesses.counted(address, self._of_code(credentials))
            elif self._proof(credentials) in self._remembered:
                login = yield from self._of_password(credentials, address)
            else:
                login = yield from self._guesses.counted(address, self._of_password(credentials, address))
        except LoginRefused as refused:
            self._failed.add(session, refused.why)
            if audit is not None:
                how, user = (
                    (None, credentials.user) if isinstance(credentials, Password) else (OAUTHBEARER, None)
                )
                audit.login_failed(session, how, refused.why, user)
            yield sleep(self._context.world, self._failed_delay_ms)
            raise
        if audit is not None:
            audit.logged_in(login.session_of(session), login.mechanism)
        return login

    # -- bearer tokens -----------------------------------------------------------------------------------

    def _of_token(self, token: str) -> Login:
        if self._tokens is None:
            raise LoginRefused("bearer tokens are not accepted here")
        try:
            found = self._tokens.validate(token, self._context.world.now_ms())
        except KeysPending as error:
            raise LoginUndecided(str(error)) from None
        except InvalidToken as error:
            raise LoginRefused(str(error)) from None
        return Login(found.user, OAUTHBEARER, expires_ms=found.expires_ms)

    def _of_code(self, given: AuthorizationCode) -> Steps[Login]:
        if self.oidc is None:
            raise LoginRefused("there is no identity provider to log in at")
        return (yield from self.oidc.log_in(given))

    # -- passwords ---------------------------------------------------------------------------------------

    def _of_password(self, given: Password, address: str) -> Steps[Login]:
        user, password = given
        if not user or not password or len(user) > NAME_CHARS_MAX or len(password) > PASSWORD_CHARS_MAX:
            raise LoginRefused("the user or the password is empty or too long")
        proof = self._proof(given)
        if self._plain is not None and self._plain.knows(user, password):
            self._remember(proof, None, b"")
            return Login(user, PLAIN, basis=self._plain.kept(user) or b"")
        if not self._scrams:
            raise LoginRefused("unknown user or wrong password")
        is_latest = yield self._reached_latest()
        login = self._of_delegation_token(given) or self._of_remembered(user, proof)
        if login is None:
            login = yield from self._of_scram(given, proof, address, is_latest=is_latest)
        return login

    def _of_delegation_token(self, given: Password) -> Login | None:
        """The token's owner, if the user is a token's id and the password its key in base64."""
        import hmac  # noqa: PLC0415  (loads OpenSSL)
        from base64 import b64encode  # noqa: PLC0415

        context, token_id = self._context, given.user
        found, keys = context.image.tokens.get(token_id), context.token_keys
        if found is None or keys is None:
            return None
        owner = owner_name(found)
        is_right = hmac.compare_digest(b64encode(keys.key(token_id)), given.password.encode())
        if not is_right or owner is None or is_expired(found, context.world.now_ms()):
            return None
        return self._token_login(token_id)

    def _token_login(self, token_id: str) -> Login | None:
        """The owner of a delegation token that has not expired."""
        context = self._context
        found, keys = context.image.tokens.get(token_id), context.token_keys
        owner = None if found is None else owner_name(found)
        if found is None or keys is None or owner is None or is_expired(found, context.world.now_ms()):
            return None
        return Login(
            owner,
            self._scrams[0].label,
            lambda: token_id in context.image.tokens,
            min(found.expiration_timestamp, found.max_timestamp),
            is_by_token=True,
            basis=keys.key(token_id),
            token_id=token_id,
        )

    # -- users who logged in before ----------------------------------------------------------------------

    def latest(self, mechanism: str) -> Promise[bool]:
        """Resolved when the node has the controller's latest users of a mechanism, or cannot have them."""
        return self._reached_latest() if mechanism in self._labels else _READY

    def standing(self, mechanism: str, user: str, token_id: str = "") -> Login | None:
        """The log-in that a user has today, by its `basis` also with the same password; None without such a user."""
        if mechanism == PLAIN:
            kept = None if self._plain is None else self._plain.kept(user)
            return None if kept is None else Login(user, PLAIN, basis=kept)
        if mechanism == OAUTHBEARER:
            return Login(user, OAUTHBEARER) if self._tokens is not None else None
        scram = self._labels.get(mechanism)
        if scram is None:
            return None
        if token_id:
            found = self._token_login(token_id)
            return found if found is not None and found.user == user else None
        known = self._user(scram, user)
        return None if known is None else self._login(scram, known)

    def _proof(self, given: Password) -> bytes:
        return self.fingerprint(f"{len(given.user)} {given.user}{given.password}")

    def fingerprint(self, secret: str) -> bytes:
        """Stands for a secret of a client, so that it need not be kept."""
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        return hmac.digest(self._secret, secret.encode("utf-8", "surrogatepass"), "sha256")

    def console_key(self) -> bytes:
        """The key that signs sessions of the console: the cluster's, or that of this process."""
        import hashlib  # noqa: PLC0415  (loads OpenSSL)

        if self._console_secret is None:
            return self.fingerprint("sessions of the console")
        return hashlib.sha256(b"sessions of the console\0" + self._console_secret.encode()).digest()

    def _of_remembered(self, user: str, proof: bytes) -> Login | None:
        remembered = self._remembered.get(proof)
        if remembered is None:
            return None
        mechanism, key, until_ns = remembered
        found = None if mechanism is None else self._user(mechanism, user)
        if (
            mechanism is None
            or found is None
            or found.credential.stored_key != key
            or self._context.world.clock_ns() > until_ns
        ):
            del self._remembered[proof]
            return None
        return self._login(mechanism, found)

    def _of_scram(self, given: Password, proof: bytes, address: str, *, is_latest: bool) -> Steps[Login]:
        """Whether or not the user exists, one key of each mechanism is computed and compared."""
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        user, password = given
        found = {mechanism: self._user(mechanism, user) for mechanism in self._scrams}
        salts = [
            (mechanism, known.credential.salt, known.credential.iterations)
            if known is not None
            else (mechanism, *self._users.challenge(mechanism, user))
            for mechanism, known in found.items()
        ]
        keys: list[bytes] = yield self._hashing.run(address, lambda: _keys(password, salts))
        right: Login | None = None
        for (mechanism, known), key in zip(found.items(), keys, strict=True):
            expected = (
                known.credential.stored_key if known is not None else hashed(mechanism, self._users.secret())
            )
            is_right = hmac.compare_digest(expected, key)
            if is_right and known is not None and self._user(mechanism, user) == known:
                right = self._login(mechanism, known)
                self._remember(proof, mechanism, key)
        if right is not None:
            return right
        if not is_latest:
            raise LoginUndecided("the log-in cannot be decided before the controller answers. Retry.")
        if any(self._user(mechanism, user) != known for mechanism, known in found.items()):
            raise LoginUndecided("the user changed during the log-in. Retry.")
        raise LoginRefused("unknown user or wrong password")

    def _user(self, mechanism: ScramMechanism, name: str) -> KnownUser | None:
        found = self._users.user(mechanism, name)
        return found if found is not None and found.credential.iterations >= ITERATIONS_MIN else None

    def _login(self, mechanism: ScramMechanism, known: KnownUser) -> Login:
        return Login(
            known.user,
            mechanism.label,
            lambda: self._user(mechanism, known.user) == known,
            basis=known.credential.stored_key,
        )

    def _remember(self, proof: bytes, mechanism: ScramMechanism | None, key: bytes) -> None:
        self._remembered[proof] = mechanism, key, self._context.world.clock_ns() + REMEMBERED_NS
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _keys(password: str, salts: Sequence[tuple[ScramMechanism, bytes, int]]) -> list[bytes]:
    """On a thread: the stored keys that the user would have with this password."""
    return [
        stored_key(mechanism, salted_password(mechanism, password, salt, iterations))
        for mechanism, salt, iterations in salts
    ]


def network_of(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 address, which one client may have all of."""
    return ":".join(address.split(":")[:4]) if ":" in address else address


class HashingQueue:
    """Computes keys on threads, a few at a time, by turns for each address."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running = 0
        self._waiting: OrderedDict[str, deque[tuple[Callable[[], list[bytes]], Promise[list[bytes]]]]] = (
            OrderedDict()
        )
        self._waiting_count = 0

    def run(self, address: str, work: Callable[[], list[bytes]]) -> Promise[list[bytes]]:
        own = self._waiting.setdefault(address, deque())
        if len(own) >= WAITING_MAX_OF_ADDRESS or self._waiting_count >= WAITING_MAX:
            if not own:
                del self._waiting[address]
            raise TooManyLogins("too many clients log in at the same time")
        promise: Promise[list[bytes]] = Promise()
        own.append((work, promise))
        self._waiting_count += 1
        self._next()
        return promise

    def _next(self) -> None:
        while self._waiting and self._running < HASHING_MAX:
            address, own = self._waiting.popitem(last=False)
            work, promise = own.popleft()
            self._waiting_count -= 1
            if own:
                self._waiting[address] = own
            self._running += 1
            self._begin(work, promise)

    def _begin(self, work: Callable[[], list[bytes]], promise: Promise[list[bytes]]) -> None:
        def done(keys: list[bytes] | None, error: Exception | None) -> None:
            self._running -= 1
            self._next()
            if keys is not None:
                promise.resolve(keys)
            else:
                promise.fail(KafkaError(f"the password could not be checked: {error}"))

        self._world.beside(work, done)


class Guesses:
    """Bounds how many wrong passwords an address can try."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: log-ins that failed or are under way, less those that are forgotten, and when it was counted."""

    def counted(self, address: str, steps: Steps[Login]) -> Steps[Login]:
        """Check a password, unless the address has failed too often. It counts as failed until it is known."""
        now = self._now(address)
        if now >= FAILURES_MAX:
            wait_s = int((now - FAILURES_MAX) / FAILURES_A_SECOND) + 1
            raise TooManyLogins("too many failed log-ins from this address", wait_s)
        self._add(address, 1)
        try:
            return (yield from steps)
        except LoginRefused:
            self._add(address, 1)
            raise
        finally:
            self._add(address, -1)

    def _now(self, address: str) -> float:
        count, counted_ns = self._failures.get(address, (0.0, 0))
        seconds = (self._world.clock_ns() - counted_ns) / 1e9
        return max(count - seconds * FAILURES_A_SECOND, 0.0)

    def _add(self, address: str, more: int) -> None:
        self._failures[address] = max(self._now(address) + more, 0.0), self._world.clock_ns()
        self._failures.move_to_end(address)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
