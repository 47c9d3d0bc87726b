"""Apache Kafka's tools, for the tests that have them look at a cluster."""

from tests.compat.conftest import kafka

__all__ = ["kafka"]
