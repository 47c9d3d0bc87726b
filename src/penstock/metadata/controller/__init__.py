"""The controller's state machine; `controller` describes how it is run."""
