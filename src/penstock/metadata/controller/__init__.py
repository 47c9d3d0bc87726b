"""The controller's state machine; `controller` describes how it is run."""

from .controller import SESSION_TIMEOUT_MS, Controller
from .requests import Result
from .view import ControllerView, Validate

__all__ = ["SESSION_TIMEOUT_MS", "Controller", "ControllerView", "Result", "Validate"]
