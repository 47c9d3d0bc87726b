"""The page about testing is executed: each of its examples, with the client that it is for."""

import pytest
from tests.test_docs import ROOT, blocks, run

EXAMPLES = blocks("python", (ROOT / "docs/testing.md").read_text())


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=["confluent-kafka", "kafka-python", "aiokafka", "secured", "cluster"]
)
def test_the_example_runs(example: str) -> None:
    done = run("-c", example)
    assert done.returncode == 0, done.stderr
