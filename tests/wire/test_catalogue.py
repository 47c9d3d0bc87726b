import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from penstock.base.errors import ErrorCode
from penstock.wire import (
    CONTROLLER_APIS,
    KAFKA_RANGES,
    Api,
    VersionRange,
    api_name,
    api_versions_error,
    api_versions_reply,
    read_response,
)
from penstock.wire.catalogue import BROKER_APIS

SERVED = {
    Api.API_VERSIONS: VersionRange(0, 4),
    Api.PRODUCE: VersionRange(3, 13),
    Api.FETCH: VersionRange(4, 18),
}
FEATURES = {"metadata.version": VersionRange(7, 27), "kraft.version": VersionRange(0, 1)}
FINALIZED = {"metadata.version": 27, "kraft.version": 0}

REMOVED = {Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN}
UNSTABLE = {Api.INIT_PRODUCER_ID: 6}


def test_keys_and_ranges_agree_with_kios_schemas() -> None:
    assert {int(api) for api in KAFKA_RANGES} == set(api_key_map)
    assert set(Api) - set(KAFKA_RANGES) == REMOVED
    for api, (low, high) in KAFKA_RANGES.items():
        versions = schema_name_map[api_key_map[api]]
        assert (low, high) == (min(versions), UNSTABLE.get(api, max(versions) + 1) - 1)


def test_apis_are_named_as_kafka_names_them() -> None:
    assert Api.OFFSET_FOR_LEADER_EPOCH.label == "OffsetForLeaderEpoch"
    assert api_name(1) == "Fetch"
    assert api_name(7) == "ControlledShutdown"
    assert api_name(999) == "unknown API 999"


def test_listeners() -> None:
    assert Api.PRODUCE in BROKER_APIS - CONTROLLER_APIS
    assert Api.VOTE in CONTROLLER_APIS - BROKER_APIS
    assert Api.FETCH in BROKER_APIS & CONTROLLER_APIS
    assert REMOVED.isdisjoint(BROKER_APIS | CONTROLLER_APIS)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(version: int) -> None:
    body = api_versions_reply(SERVED, FEATURES, FINALIZED, version, finalized_epoch=5, throttle_time_ms=70)
    reply = read_response(Api.API_VERSIONS, version, memoryview(body))
    assert reply.error_code == 0
    assert [(each.api_key, each.min_version, each.max_version) for each in reply.api_keys] == [
        (0, 0, 13),
        (1, 4, 18),
        (18, 0, 4),
    ]
    if version >= 1:
        assert reply.throttle_time.total_seconds() == 0.07
    if version >= 3:
        assert reply.finalized_features_epoch == 5
        assert [(each.name, each.max_version_level) for each in reply.finalized_features] == [
            ("metadata.version", 27)
        ]


def test_produce_is_advertised_from_0() -> None:
    """KAFKA-18659: without versions 0 to 2 librdkafka takes the broker for one that knows no compression."""
    body = api_versions_reply({**SERVED, Api.PRODUCE: VersionRange(3, 9)}, {}, {}, 0)
    assert body[6:12] == b"\0\0\0\0\0\x09"


@pytest.mark.parametrize(
    ("version", "names"), [(3, ["metadata.version"]), (4, ["kraft.version", "metadata.version"])]
)
def test_a_feature_from_level_0_is_listed_from_version_4_on(version: int, names: list[str]) -> None:
    """KAFKA-17011: older readers refuse a supported feature whose least level is 0."""
    body = api_versions_reply(SERVED, FEATURES, FINALIZED, version)
    reply = read_response(Api.API_VERSIONS, version, memoryview(body))
    assert [each.name for each in reply.supported_features] == names
    assert reply.finalized_features_epoch == -1


@pytest.mark.parametrize("version", [5, 6, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    """KIP-511: with error 35 and the versions of ApiVersions alone."""
    reply = read_response(
        Api.API_VERSIONS, 0, memoryview(api_versions_reply(SERVED, FEATURES, FINALIZED, version))
    )
    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in reply.api_keys] == [(18, 0, 4)]


@given(st.integers(0, 4))
def test_a_refusal_has_the_form_of_its_version(version: int) -> None:
    body = api_versions_error(SERVED, version, ErrorCode.INVALID_REQUEST)
    reply = read_response(Api.API_VERSIONS, version, memoryview(body))
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert reply.api_keys == ()
