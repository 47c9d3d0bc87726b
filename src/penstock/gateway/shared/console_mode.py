"""`console.mode`: whether the console is served, and whether it may change anything."""

from typing import Final

from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting

OFF: Final = "off"
READ_ONLY: Final = "read-only"
FULL: Final = "full"


def console_mode(context: Context) -> str:
    return broker_setting("console.mode", context.image, context.settings) or FULL
