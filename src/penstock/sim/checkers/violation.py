"""A rule is broken."""


class Violation(Exception):
    """Ends the run. The message begins with the rule's name."""
