"""`penstock sim run`."""

import json

import pytest
from tests.cli.conftest import Command, penstock  # noqa: F401  # a fixture

from penstock.replica.partition import Partition


def test_a_seed_is_played_and_summed_up(penstock: Command) -> None:  # noqa: F811
    outcome = penstock("sim", "run", "--seed", "3", "--steps", "300")
    assert outcome.code == 0
    assert outcome.out.startswith("seed 3: ")
    assert outcome.err == ""


def test_several_seeds_are_counted_and_told_as_json(penstock: Command) -> None:  # noqa: F811
    outcome = penstock("sim", "run", "--seeds", "3..4", "--steps", "200")
    assert outcome.out.endswith("2 of 2 seeds passed\n")
    outcome = penstock("sim", "run", "--seeds", "3..4", "--steps", "200", "--json")
    told = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(each["seed"], each["ok"]) for each in told] == [(3, True), (4, True)]


def test_a_trace_is_the_same_each_time(penstock: Command) -> None:  # noqa: F811
    arguments = ("sim", "run", "--seed", "4", "--steps", "300", "--trace")
    first = penstock(*arguments)
    assert "process 1 starts" in first.out
    assert penstock(*arguments).out == first.out


def test_a_cluster_is_played_unless_one_node_is_meant(penstock: Command) -> None:  # noqa: F811
    outcome = penstock("sim", "run", "--seed", "3", "--minutes", "0.05", "--trace")
    assert outcome.code == 0
    assert "process 3 of node-3 starts" in outcome.out
    outcome = penstock("sim", "run", "--seed", "3", "--minutes", "0.05", "--nodes", "4", "--trace")
    assert "process 4 of node-4 starts" in outcome.out


def test_a_cluster_may_be_given_more_to_bear(penstock: Command) -> None:  # noqa: F811
    arguments = ("--seed", "5", "--minutes", "0.05", "--with", "renewals", "--with", "bad-sectors", "--trace")
    outcome = penstock("sim", "run", *arguments)
    assert outcome.code == 0
    assert "renewer of renewed-0 has renewed-0 in life 1" in outcome.out
    assert "rereader of topic-0" in outcome.out


def test_a_failure_names_the_rule_and_how_to_see_it_again(
    penstock: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Partition, "advance_high_watermark", lambda _: None)
    outcome = penstock("sim", "run", "--seed", "3", "--steps", "900")
    assert outcome.code == 1
    assert outcome.err.startswith("penstock: seed 3: ")
    assert "to repeat the run: penstock sim run --seed 3 --steps 900 --trace" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--seeds", "5"), "--seeds is '5', expected two numbers as in 1..20"),
        (("--seeds", "5..1"), "--seeds is '5..1', expected two numbers as in 1..20"),
        (("--seed", "1", "--seeds", "1..2"), "--seed and --seeds exclude each other"),
        (
            ("--steps", "9", "--nodes", "3"),
            "--steps is for one node: it cannot be used with --minutes",
        ),
        (("--with", "luck"), "--with is 'luck', expected one of renewals, bad-sectors, apart"),
        (
            ("--with", "renewals", "--steps", "9"),
            "--with renewals is for clusters: it cannot be used with --steps",
        ),
        (("--minutes", "1", "--nodes", "1"), "--minutes is for clusters: use --steps with --nodes 1"),
    ],
)
def test_a_mistake_is_one_sentence(penstock: Command, arguments: tuple[str, ...], sentence: str) -> None:  # noqa: F811
    outcome = penstock("sim", "run", *arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
