"""Mutants that are found at once are tried with every test run; `./dev mutants` tries all."""

import json

import pytest

from samcast.sim.mutant import replace
from samcast.sim.mutant_rules import MUTANTS
from samcast.sim.mutants import main

QUICK = ("CE-3-promise-not-stored", "CE-5-count-across-epochs", "CE-9-drop-by-timer")


def test_quick_mutants_are_caught_by_a_promise_checker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--seeds", "40", "--json", "--jobs", "2"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["mutants"]
    assert sorted(v["name"] for v in verdicts) == sorted(QUICK)
    for verdict in verdicts:
        assert verdict["caught"]
        assert verdict["checker"] in set("AUOCDKFTSLMGR")
        assert 1 <= verdict["seeds"] <= 40


def test_names_are_unique_and_rules_are_named() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert all(mutant.rule.startswith(("CE-", "SAFETY")) for mutant in MUTANTS)


def test_every_counter_example_of_what_is_built_has_a_mutant() -> None:
    rules = {mutant.rule for mutant in MUTANTS}
    wanted = range(1, 32)
    assert [f"CE-{n}" for n in wanted if f"CE-{n}" not in rules] == []
    assert {"CE-4b", "CE-4c"} <= rules


def test_a_mutant_whose_rule_has_moved_says_so() -> None:
    with pytest.raises(LookupError, match="the product changed"):
        replace(object(), "gone", None)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["CE-0-nothing"])
    assert stop.value.code == 2
