"""The controller, by role; `core` says how it is run."""

from .core import SESSION_TIMEOUT_MS, Controller
from .requests import Result
from .scene import Scene, Validate

__all__ = ["SESSION_TIMEOUT_MS", "Controller", "Result", "Scene", "Validate"]
