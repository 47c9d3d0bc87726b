"""What a stream's offsets carry beside topics; here by itself, so that a checkpoint can be read without Spark."""

from typing import Final

START_KEY: Final = "@start"
"""In the end of a first batch: where it started. No topic can have this name."""
