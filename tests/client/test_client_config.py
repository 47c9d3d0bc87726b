"""A client's settings from a file and the environment."""

from pathlib import Path

import pytest

from penstock.base.settings import BadSetting
from penstock.client.client_config import ClientConfig
from penstock.client.security import PLAINTEXT


def write(directory: Path, text: str) -> str:
    file = directory / "client.properties"
    file.write_text(text)
    return str(file)


def test_servers_client_id_and_security_are_taken_and_the_rest_is_ignored(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "bootstrap.servers=broker:9094\nclient.id=me\nmax.poll.records=5\nclient.rack=a\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n",
    )
    config = ClientConfig.load(file, {"PENSTOCK_CLIENT_SASL_PASSWORD": "planted"})
    assert (config.servers, config.client_id) == ("broker:9094", "me")
    assert config.security().protocol == "SASL_PLAINTEXT"
    assert config.properties.from_environment == {"sasl.password": "${env:PENSTOCK_CLIENT_SASL_PASSWORD}"}


def test_without_a_file_there_is_no_security() -> None:
    config = ClientConfig.load(None, {"PENSTOCK_CLIENT_CONFIG": "", "HOME": "/"})
    assert config.servers is None
    assert config.security() == PLAINTEXT


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "bootstrap.server=x",
            "(FILE line 2) is no setting of a client, did you mean bootstrap.servers",
        ),
        (
            "sasl.mechanisms=PLAIN",
            "(FILE line 2) is no setting of a client, did you mean sasl.mechanism",
        ),
        ("ssl.engine.factory.class=x", "ssl.engine.factory.class (FILE line 2) is not supported: remove it"),
        ("security.protocol=TLS", "security.protocol (FILE line 2) is 'TLS', expected one of PLAINTEXT"),
    ],
)
def test_a_setting_that_is_not_known_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    file = write(tmp_path, f"# of Kafka's tools\n{line}\n")
    with pytest.raises(BadSetting) as refused:
        ClientConfig.load(file, {}).security()
    assert sentence.replace("FILE", file) in str(refused.value)
