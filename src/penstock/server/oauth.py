"""Validators of bearer tokens, with the provider's keys from a file or a URL.

The keys of a JWKS are fetched at the start and then every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, on a thread,
with bounded size and time. A token whose key is unknown has them fetched again, at most once in `MISSING_MS`. If a
fetch fails, the keys stay in use, an ERROR line says why, and `penstock_oauth_keys_stale` is 1 until a fetch succeeds.
It is repeated after a pause that doubles from `retry.backoff.ms` to `retry.backoff.max.ms`.

Until the first fetch has succeeded, log-ins are closed without an answer, so that clients try again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.base.errors import KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.metrics import KeysMeter, Metrics
from penstock.base.settings import BadSetting
from penstock.base.world import Timer, World
from penstock.security.bearer import BearerToken, KeysPending, TokenRules, TokenValidator
from penstock.security.jwt import BadKeys, JwtValidator, KeySet, UnknownKey, parse_jwks
from penstock.security.unsecured_jws import UnsecuredValidator
from penstock.server.oauth_config import KeysConfig, OAuthConfig

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

logger = logging.getLogger(__name__)

JWKS_BYTES_MAX: Final = 1 << 20
FETCH_S_MAX: Final = 10.0
"""For the connection, and again for the whole answer."""

MISSING_MS: Final = 10_000
"""Unknown keys have the keys fetched again at most once in this time: their number is a client's choice."""


class TokenValidators:
    """The validators of a node. Listeners with the same JWKS share its keys."""

    def __init__(self, world: World, metrics: Metrics) -> None:
        self._world = world
        self._metrics = metrics
        self._keys: dict[KeysConfig, RefreshingKeys] = {}

    def validator(self, config: OAuthConfig) -> TokenValidator:
        if config.keys is None:
            logger.warning("bearer tokens without a signature are accepted: anyone can log in as anyone")
            return UnsecuredValidator(config.unsecured)
        _load_libraries()
        if config.keys not in self._keys:
            self._keys[config.keys] = RefreshingKeys(
                self._world, config.keys, self._metrics.oauth_keys(config.keys.url)
            )
        return RefreshingValidator(self._keys[config.keys], config.rules)

    def stop(self) -> None:
        for each in self._keys.values():
            each.stop()


class RefreshingValidator:
    """A `TokenValidator` that has the keys fetched again for a token with an unknown one."""

    __slots__ = ("_jwt", "_keys")

    def __init__(self, keys: "RefreshingKeys", rules: TokenRules) -> None:
        self._keys = keys
        self._jwt = JwtValidator(lambda: keys.known, rules)

    def validate(self, token: str, now_ms: TimestampMs) -> BearerToken:
        try:
            return self._jwt.validate(token, now_ms)
        except UnknownKey as error:
            if self._keys.fetch_missing():
                raise KeysPending(f"{error}; the keys are being fetched") from None
            raise


class RefreshingKeys:
    """The keys of one JWKS."""

    def __init__(
        self, world: World, config: KeysConfig, meter: KeysMeter, load: Callable[[str], bytes] | None = None
    ) -> None:
        self.known = KeySet()
        """Of the last fetch that succeeded."""
        self._world = world
        self._config = config
        self._meter = meter
        self._load = fetch if load is None else load
        self._timer: Timer | None = None
        self._is_fetching = False
        self._failures = 0
        """Since the last fetch that succeeded."""
        self._fetched_ns: int | None = None
        """When the last fetch ended; None before the first."""
        self._is_stopped = False
        if config.url.startswith("file:"):
            self._read_file()
        else:
            self._fetch()

    def fetch_missing(self) -> bool:
        """A token has an unknown key: fetch, unless that was done just now. Returns whether to wait for the result."""
        if not self._is_fetching and (self._fetched_ns is None or self._since_ms() >= MISSING_MS):
            self._fetch()
        return self._is_fetching or not len(self.known)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _since_ms(self) -> int:
        assert self._fetched_ns is not None
        return (self._world.clock_ns() - self._fetched_ns) // 1_000_000

    def _read_file(self) -> None:
        """At the start, a file is read at once, so that clients can log in as soon as the node is ready."""
        url = self._config.url
        try:
            keys = parse_jwks(self._load(url), url)
        except BadKeys as error:
            self._fetched(None, error)
        else:
            self._fetched(keys, None)

    def _fetch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_stopped or self._is_fetching:
            return
        self._is_fetching = True
        url = self._config.url
        self._world.beside(lambda: parse_jwks(self._load(url), url), self._fetched)

    def _fetched(self, keys: KeySet | None, error: Exception | None) -> None:
        self._is_fetching = False
        self._fetched_ns = self._world.clock_ns()
        if self._is_stopped:
            return
        config = self._config
        if keys is not None:
            if self._failures or not len(self.known):
                logger.info("%s has %d keys for bearer tokens", config.url, len(keys))
            self.known, self._failures, wait_ms = keys, 0, config.refresh_ms
        else:
            if not self._failures:
                logger.error(
                    "cannot fetch the keys of bearer tokens, %s: %s",
                    "those known stay in use" if len(self.known) else "so clients cannot log in with one",
                    error,
                )
            wait_ms = min(config.backoff_ms << min(self._failures, 20), config.backoff_ms_max)
            self._failures += 1
            self._meter.errors += 1
        self._meter.is_stale = bool(self._failures)
        self._meter.keys = len(self.known)
        self._timer = self._world.call_later(max(wait_ms, 1), self._fetch)


def _load_libraries() -> None:
    """Load what verifies signatures at the start, not at the first log-in."""
    try:
        import cryptography  # noqa: F401, PLC0415
        import jwt  # noqa: F401, PLC0415
    except ImportError as error:
        raise BadSetting(
            f"the keys of bearer tokens need the package {error.name}: install it with pip install 'penstock[oauth]'"
        ) from error


def fetch(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The content at a URL; with a body, the answer to POST. Runs on a thread."""
    from time import monotonic  # noqa: PLC0415  (used on the thread only)
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import Request  # noqa: PLC0415

    deadline = monotonic() + FETCH_S_MAX
    content = b""
    try:
        request = Request(url, body, dict(headers or {}))
        with _opener().open(request, timeout=FETCH_S_MAX) as answer:
            while more := answer.read1(65_536) if hasattr(answer, "read1") else answer.read(65_536):
                content += more
                if len(content) > JWKS_BYTES_MAX:
                    raise BadKeys(f"{url} has more than {JWKS_BYTES_MAX} bytes, expected a JWKS")
                if monotonic() > deadline:
                    raise BadKeys(f"{url} did not answer within {FETCH_S_MAX:.0f} s")
    except KafkaError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it is the response, with its connection
        raise BadKeys(f"{url} cannot be read: {error}") from error
    return content


def _opener() -> "OpenerDirector":
    """Without redirects: a redirect would let any server that the provider names decide which clients may log in."""
    from urllib.request import HTTPRedirectHandler, build_opener  # noqa: PLC0415  (loads http.client)

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    return build_opener(NoRedirects)
