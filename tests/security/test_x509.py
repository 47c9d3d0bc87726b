"""Subjects are written as `X500Principal.getName()` of OpenJDK 17 writes them; the expected texts are its own."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type as Tag
from cryptography.x509.oid import NameOID as Name
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.x509 import BadCertificate, not_after, subject

KEY = ec.generate_private_key(ec.SECP256R1())
Attributes = list[list[x509.NameAttribute]]


def of(oid: x509.ObjectIdentifier, value: str, tag: Tag | None = None) -> x509.NameAttribute:
    return x509.NameAttribute(oid, value, tag)


def certificate(rdns: Attributes, end: datetime = datetime(2060, 1, 1)) -> bytes:
    name = x509.Name([x509.RelativeDistinguishedName(each) for each in rdns])
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, datetime(2026, 1, 1), end)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("rdns", "expected"),
    [
        (
            [
                [of(Name.COUNTRY_NAME, "US")],
                [of(Name.ORGANIZATION_NAME, 'Ex, "Inc" <a+b>;=#\\')],
                [of(Name.COMMON_NAME, "alice")],
            ],
            r"CN=alice,O=Ex\, \"Inc\" \<a\+b\>\;\=\#\\,C=US",
        ),
        ([[of(Name.COMMON_NAME, "  x y ")]], r"CN=\ \ x y" + "\\ "),
        ([[of(Name.COMMON_NAME, "  ")]], "CN=\\ \\ "),
        (
            [[of(Name.EMAIL_ADDRESS, "a@b.c", Tag.IA5String)], [of(Name.COMMON_NAME, "ünï")]],
            "CN=ünï,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                [of(Name.COMMON_NAME, "a"), of(Name.USER_ID, "u1")],
                [of(Name.DOMAIN_COMPONENT, "org", Tag.IA5String)],
                [of(Name.STREET_ADDRESS, "s")],
                [of(Name.STATE_OR_PROVINCE_NAME, "st")],
                [of(Name.LOCALITY_NAME, "l")],
                [of(Name.ORGANIZATIONAL_UNIT_NAME, "ou")],
            ],
            "OU=ou,L=l,ST=st,STREET=s,DC=org,CN=a+UID=u1",
        ),
        ([[of(Name.COMMON_NAME, "bmp", Tag.BMPString)]], r"CN=\00b\00m\00p"),
        ([[of(Name.COMMON_NAME, "uni", Tag.UniversalString)]], "CN=#1c0c000000750000006e00000069"),
        ([[of(Name.COMMON_NAME, "té", Tag.T61String)]], "CN=té"),
        ([[of(Name.SERIAL_NUMBER, "1")], [of(Name.COMMON_NAME, "\rq\r")]], "CN=\\\rq\\\r,2.5.4.5=#130131"),
        ([[of(Name.COMMON_NAME, "nul\0x")]], r"CN=nul\00x"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(rdns: Attributes, expected: str) -> None:
    assert subject(certificate(rdns)) == expected


@pytest.mark.parametrize("year", [2027, 2049, 2050, 3000])
def test_the_end_of_a_certificate(year: int) -> None:
    end = datetime(year, 2, 3, 4, 5, 6)
    assert not_after(certificate([[of(Name.COMMON_NAME, "a")]], end)) == end.replace(tzinfo=UTC)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_other_bytes_are_no_certificate(junk: bytes, at: int) -> None:
    whole = bytearray(certificate([[of(Name.COMMON_NAME, "alice")]]))
    whole[at : at + len(junk)] = junk
    for data in (junk, bytes(whole), bytes(whole[:at])):
        for read in (subject, not_after):
            try:
                read(data)
            except BadCertificate:
                continue
