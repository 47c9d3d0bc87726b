"""What a node reads of an X.509 certificate: the subject as Java prints it, and the end of its validity.

    Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature }
    TBSCertificate ::= SEQUENCE { [0] version, serial, signature, issuer, validity, subject, ... }
    Name ::= SEQUENCE OF RDN;  RDN ::= SET OF SEQUENCE { type OBJECT IDENTIFIER, value ANY }

Only certificates that OpenSSL has parsed, and for clients verified, are read here. The subject follows RFC 2253 in the
way of `X500Principal.getName()`, whose text Kafka's ACLs and `ssl.principal.mapping.rules` refer to.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_INTEGER, _OID, _UTC_TIME, _SEQUENCE, _SET, _VERSION = 0x02, 0x06, 0x17, 0x30, 0x31, 0xA0

_TEXT: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of text: UTF8-, Printable-, T61-, IA5-, General- and BMPString. Java reads all of them as UTF-8."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types of RFC 2253. Others are written as a number, with their value in hexadecimal."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')


class BadCertificate(ValueError):
    """The bytes are not a certificate."""


class _Element(NamedTuple):
    tag: int
    value: bytes
    encoded: bytes


def subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER: `CN=alice,OU=dev,O=Example`, the most specific part first."""
    name = _fields(certificate)[4]
    rdns = ["+".join(_attribute(each) for each in _parts(rdn, _SET)) for rdn in _parts(name, _SEQUENCE)]
    return ",".join(reversed(rdns))


def not_after(certificate: bytes) -> datetime:
    """Return when a certificate in DER expires."""
    *_, end = _parts(_fields(certificate)[3], _SEQUENCE)
    text = end.value.decode("ascii", "replace")
    if end.tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = f"{'19' if text >= '50' else '20'}{text}"
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise BadCertificate(f"the certificate expires at {text!r}, expected a time") from error


def _fields(certificate: bytes) -> list[_Element]:
    """Serial number, signature algorithm, issuer, validity, subject, and what follows."""
    whole = list(_elements(certificate))
    if len(whole) != 1:
        raise BadCertificate("the certificate is not one ASN.1 sequence")
    first, *_ = _parts(whole[0], _SEQUENCE)
    fields = list(_parts(first, _SEQUENCE))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5 or fields[0].tag != _INTEGER:
        raise BadCertificate("the certificate lacks fields")
    return fields


def _parts(element: _Element, tag: int) -> list[_Element]:
    parts = list(_elements(element.value)) if element.tag == tag else []
    if not parts and (element.tag != tag or element.value):
        raise BadCertificate(f"the certificate has the ASN.1 tag {element.tag}, expected {tag}")
    return parts


def _elements(data: bytes) -> Iterator[_Element]:
    """Read tag, length and value until the end of the data."""
    at = 0
    while at < len(data):
        start = at
        if len(data) - at < 2:
            raise BadCertificate("the certificate ends within an element")
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise BadCertificate("the certificate has an element of unknown length")
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if length > len(data) - at:
            raise BadCertificate("the certificate ends within an element")
        yield _Element(tag, data[at : at + length], data[start : at + length])
        at += length


def _attribute(element: _Element) -> str:
    parts = _parts(element, _SEQUENCE)
    if len(parts) != 2 or parts[0].tag != _OID:
        raise BadCertificate("the subject of the certificate has an attribute that is not a type and a value")
    kind, value = _oid(parts[0].value), parts[1]
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _TEXT:
        return f"{keyword or kind}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.value.decode('utf-8', 'replace'))}"


def _oid(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise BadCertificate("the subject of the certificate has an attribute without a type")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Escape as Java does: special characters wherever they stand, and spaces at either end."""
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    inner = escaped.strip(" \r")
    lead = escaped.index(inner) if inner else len(escaped)
    ends = escaped[:lead], escaped[lead + len(inner) :]
    before, after = ("".join(f"\\{each}" for each in end) for end in ends)
    return f"{before}{inner}{after}"
