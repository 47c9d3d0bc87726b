"""Values of settings that stand in the environment or in files."""

from pathlib import Path

import pytest

from penstock.base.settings import BadSetting
from penstock.client.referenced_values import is_reference, resolve
from penstock.client.security_settings import ClientProperties, parse_security


def test_variables_properties_and_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("old=1\npassword=from-file\n")
    (tmp_path / "password").write_text("from-dir\n")
    environment = {"NAME": "from-env"}
    for text, value in (
        ("${env:NAME}", "from-env"),
        (f"${{file:{tmp_path}/secrets.properties:password}}", "from-file"),
        (f"${{dir:{tmp_path}:password}}", "from-dir"),
        ("a ${env:NAME} and ${env:NAME}", "a from-env and from-env"),
        ("${vault:x} $NAME ${NAME}", "${vault:x} $NAME ${NAME}"),
    ):
        assert resolve(text, "sasl.password", environment) == value
    assert is_reference(" ${env:NAME} ")
    assert not is_reference("${env:NAME};")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("${env:MISSING}", "sasl.password needs the environment variable MISSING, which is not set"),
        ("${file:/nowhere}", "sasl.password has ${file:/nowhere}, expected ${file:PATH:KEY}"),
        ("${file:/nowhere:key}", "sasl.password needs ${file:/nowhere:key}: cannot read /nowhere"),
        ("${file:HERE/file:other}", "has no property other"),
        ("${dir:HERE:..}", "'..' is not the name of a file"),
        ("${dir:HERE:missing}", "cannot read HERE/missing"),
    ],
)
def test_what_is_missing_is_named_and_no_value_shown(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "file").write_text("password=planted")
    here = str(tmp_path)
    with pytest.raises(BadSetting) as refused:
        resolve(text.replace("HERE", here), "sasl.password", {"PLANTED": "planted"})
    assert sentence.replace("HERE", here) in str(refused.value)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(
    "password", ['a "quoted" one', "back\\slash", "${env:PENSTOCK_TEST_SECRET}", "semi;colon"]
)
def test_a_password_in_jaas_may_have_any_character(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    """It is put into the parsed string, not into the text, and is not resolved again."""
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", password)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="alice" password="${{env:PENSTOCK_TEST_SECRET}}";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    security = parse_security(ClientProperties(given))
    assert security.login is not None
    assert security.login.begin().first() == b"\0alice\0" + password.encode()


def test_a_whole_jaas_string_may_be_in_a_file(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="${env:X}";'
    (tmp_path / "jaas").write_text(jaas)
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"${{dir:{tmp_path}:jaas}}",
    }
    security = parse_security(ClientProperties(given))
    assert security.login is not None
    assert security.login.begin().first() == b"\0alice\0${env:X}"
