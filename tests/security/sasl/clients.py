"""A SCRAM client by the book, which can also be told to lie."""

from base64 import b64decode, b64encode

from penstock.metadata.records import UserScramCredentialRecord
from penstock.metadata.scram import ScramMechanism, digest, hashed, salted_password, server_key, stored_key
from penstock.security.sasl.scram import KnownUser

EXPIRES_MS = 1_800_000_000_000
SALT = b"0123456789abcdef"


def credential(
    password: str,
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256,
    user: str = "alice",
    iterations: int = 4096,
    salt: bytes = SALT,
) -> UserScramCredentialRecord:
    salted = salted_password(mechanism, password, salt, iterations)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key(mechanism, salted),
        server_key=server_key(mechanism, salted),
        iterations=iterations,
    )


class Users:
    """The users in the metadata, which a test may change during an exchange."""

    def __init__(self, *credentials: UserScramCredentialRecord) -> None:
        self.by_key = {(each.mechanism, each.name): each for each in credentials}

    def user(self, mechanism: ScramMechanism, name: str) -> KnownUser | None:
        found = self.by_key.get((mechanism, name))
        return None if found is None else KnownUser(name, found)

    def token(self, mechanism: ScramMechanism, token_id: str) -> KnownUser | None:
        if token_id != "token-1":
            return None
        return KnownUser("carol", credential("key-1", mechanism, token_id), EXPIRES_MS)

    def challenge(self, mechanism: ScramMechanism, name: str) -> tuple[bytes, int]:
        return digest(mechanism, b"secret of the cluster", name.encode())[:20], 4096

    def secret(self) -> bytes:
        return b"secret of the cluster"


class ScramClient:
    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str = "client-nonce",
        extensions: str = "",
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r={nonce}" + (f",{extensions}" if extensions else "")
        self.first = f"n,,{self.bare}".encode()
        self._signature = b""

    def final(self, challenge: bytes) -> bytes:
        fields = dict(each.split("=", 1) for each in challenge.decode().split(","))
        salted = salted_password(self._mechanism, self._password, b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        exchange = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        client_key = digest(self._mechanism, salted, b"Client Key")
        signature = digest(self._mechanism, hashed(self._mechanism, client_key), exchange)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = digest(self._mechanism, server_key(self._mechanism, salted), exchange)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def believes(self, server_final: bytes) -> bool:
        return server_final == b"v=" + b64encode(self._signature)
