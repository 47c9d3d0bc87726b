"""The exception that a broken rule raises."""


class Violation(Exception):
    """A broken rule, which ends the run. The message begins with the rule's name."""
