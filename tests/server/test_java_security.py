"""A secured Kafka's server.properties: what chooses something of Java is ignored or refused, never silently weaker."""

from pathlib import Path

import pytest
from tests.server.test_sasl import SECURED

from penstock.base.settings import BadSetting
from penstock.server.config import load
from penstock.server.java_security import CLASSES, WITHOUT_EFFECT


def warnings_of(path: Path, **settings: str) -> list[str]:
    file = path / "server.properties"
    lines = {**SECURED, **settings, "log.dirs": str(path), "http.listener": "off", "line.listener": "off"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return list(load(file=str(file), environment={}).warnings)


@pytest.mark.parametrize("name", [*WITHOUT_EFFECT, "listener.name.outside.ssl.provider"])
def test_what_chooses_an_implementation_is_ignored_with_one_warning(tmp_path: Path, name: str) -> None:
    [warning] = warnings_of(tmp_path, **{name: "SunJSSE"})
    assert warning.startswith(f"{name} ({tmp_path}/server.properties line ")
    assert " has no effect: " in warning


@pytest.mark.parametrize("name", [*CLASSES, "listener.name.outside.plain.sasl.server.callback.handler.class"])
def test_what_decides_who_gets_in_stops_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSetting, match="names a Java class, which Penstock cannot load") as refused:
        warnings_of(tmp_path, **{name: "org.example.Mine"})
    assert str(refused.value).startswith(f"{name} is 'org.example.Mine' (")


@pytest.mark.parametrize("name", [name for name, default in CLASSES.items() if default])
def test_kafkas_default_is_accepted_by_its_name(tmp_path: Path, name: str) -> None:
    [warning] = warnings_of(tmp_path, **{name: CLASSES[name]})
    assert warning.endswith("has no effect: it is Kafka's default, which is built in")
