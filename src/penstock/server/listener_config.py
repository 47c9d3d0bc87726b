"""Settings of single listeners: `listener.name.NAME.SETTING` is stronger than SETTING, for the listener NAME alone."""

import re
from collections.abc import Iterable, Mapping

from penstock.base.settings import BadSetting
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.server.config_sources import ConfigEntry

CONNECTION_RATE = "max.connection.creation.rate"

_OVERRIDE = re.compile(r"listener\.name\.([A-Za-z0-9_-]+)\.(.+)")


class ListenerSettings:
    """The settings of one listener, each with its name and source for errors."""

    def __init__(
        self, listener: str, entries: Mapping[str, ConfigEntry], own: Mapping[str, ConfigEntry]
    ) -> None:
        self.listener = listener
        self._entries = {**entries, **own}
        self._own = own

    def text(self, name: str) -> str | None:
        """The value, or its default."""
        entry = self._entries.get(name)
        return BROKER_SETTINGS[name].default if entry is None else entry.text.strip()

    def is_set(self, name: str) -> bool:
        return name in self._entries and bool(self._entries[name].text.strip())

    def is_own(self, name: str) -> bool:
        """Whether it is set for this listener, not for all."""
        return name in self._own

    def shown(self, name: str) -> str:
        """The setting's name and source."""
        entry = self._entries.get(name)
        return name if entry is None else f"{entry.name} ({entry.where})"


def is_override(name: str) -> bool:
    return name.startswith("listener.name.")


def parse_overrides(
    given: Iterable[ConfigEntry], listeners: Iterable[str]
) -> dict[str, dict[str, ConfigEntry]]:
    """The settings of single listeners, by listener and by setting. Raises for a listener that does not exist, and for
    a setting that cannot differ between listeners."""
    names = {name.lower(): name for name in listeners}
    found: dict[str, dict[str, ConfigEntry]] = {name: {} for name in names.values()}
    for each in given:
        matched = _OVERRIDE.fullmatch(each.name)
        setting = matched[2] if matched is not None else ""
        is_known = setting == CONNECTION_RATE or (setting.startswith("ssl.") and setting in BROKER_SETTINGS)
        if matched is None or not is_known:
            raise BadSetting(
                f"unknown setting {each.name} ({each.where}), expected listener.name.NAME and {CONNECTION_RATE}, or a "
                "setting of TLS or SASL: others cannot be set for a single listener yet"
            )
        if matched[1].lower() not in names:
            raise BadSetting(
                f"{each.name} ({each.where}) is for the listener {matched[1].upper()}, expected one of "
                f"{', '.join(names.values())}"
            )
        own = found[names[matched[1].lower()]]
        if setting not in own or own[setting].rank <= each.rank:
            own[setting] = each
    return found
