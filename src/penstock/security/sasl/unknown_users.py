"""The challenge for a SCRAM user that does not exist, which should look like one for a user that does.

The salt follows from the name and from a secret of the cluster (`scram.unknown.users.secret`), so it is the same at
every broker and after every restart, as a real user's is. Its length, its alphabet and the iterations are those that
most users of the mechanism have: tools differ in what they choose. Only users with other parameters can be
distinguished from unknown ones.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.metadata.image import ALL_BROKERS, ClusterImage, ScramUser
from penstock.metadata.maps import FrozenMap
from penstock.metadata.records import UserScramCredentialRecord
from penstock.metadata.scram import ITERATIONS_MIN, UNKNOWN_USERS_SECRET, ScramMechanism, digest

_TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""The alphabet of the salts that Kafka's tools make."""


class Shape(NamedTuple):
    """What a client sees of a credential, apart from the salt itself."""

    salt_bytes: int = 26
    iterations: int = ITERATIONS_MIN
    is_text: bool = True


class UnknownUsers:
    def __init__(self, image: Callable[[], ClusterImage], fallback: bytes) -> None:
        """`fallback` is random, and used while the cluster has no secret: it then has no users either."""
        self._image = image
        self._fallback = fallback
        self._shapes: dict[int, Shape] = {}
        self._users: FrozenMap[ScramUser, UserScramCredentialRecord] | None = None
        """Those that the shapes are of."""

    def challenge(self, mechanism: ScramMechanism, name: str) -> tuple[bytes, int]:
        """Salt and iterations."""
        shape = self._shape(mechanism)
        material = b""
        while len(material) < shape.salt_bytes:
            block = len(material).to_bytes(4, "big")
            material += digest(mechanism, self.secret(), b"salt" + block + name.encode("utf-8", "replace"))
        salt = material[: shape.salt_bytes]
        if shape.is_text:
            salt = bytes(_TEXT[each % len(_TEXT)] for each in salt)
        return salt, shape.iterations

    def secret(self) -> bytes:
        found = self._image().config(ALL_BROKERS).get(UNKNOWN_USERS_SECRET)
        return self._fallback if found is None else found.encode()

    def _shape(self, mechanism: ScramMechanism) -> Shape:
        users = self._image().scram_users
        if users is not self._users:
            self._users = users
            self._shapes = {each: _commonest(users, each) for each in ScramMechanism}
        return self._shapes[mechanism]


def _commonest(users: FrozenMap[ScramUser, UserScramCredentialRecord], mechanism: ScramMechanism) -> Shape:
    found = Counter(
        Shape(len(each.salt), each.iterations, all(byte in _TEXT for byte in each.salt))
        for each in users.values()
        if each.mechanism == mechanism
    )
    return max(found, key=lambda shape: (found[shape], shape), default=Shape())
