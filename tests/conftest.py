"""How Hypothesis runs: the same examples on every machine by default, many and new ones for `make test-long`."""

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    stateful_step_count=30,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "long", deadline=None, max_examples=500, stateful_step_count=60, suppress_health_check=_SLOW
)
settings.load_profile("ci")
