"""Addresses of clients, and limits by address."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


def canonical_address(text: str) -> str:
    """An address in the form in which all forms of it are equal; anything else as it is."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


@lru_cache(maxsize=4)
def limits_of_addresses(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`, as in `10.0.0.7:200,::1:500`."""
    found = {}
    for each in text.split(","):
        address, _, count = each.strip().rpartition(":")
        if address:
            found[canonical_address(address.strip("[]"))] = int(count)
    return found
