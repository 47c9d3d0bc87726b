"""Keys in a stream's offsets that are not topics; a separate module, so that checkpoints can be read without Spark."""

from typing import Final

START_KEY: Final = "@start"
"""The start of a first batch, in its end. No topic can have this name."""
