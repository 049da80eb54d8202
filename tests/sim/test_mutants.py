"""Mutants that are found at once are tried with every test run; `./dev mutants` tries all."""

import json
import multiprocessing

import pytest

from samcast.sim import mutants
from samcast.sim.mutant import Mutant, replace
from samcast.sim.mutant_rules import MUTANTS
from samcast.sim.mutants import main, play_briefly

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
    assert all(mutant.rule.startswith(("CE-", "SAFETY", "FAULTS", "ADR")) for mutant in MUTANTS)


def test_every_counter_example_of_what_is_built_has_a_mutant() -> None:
    rules = {mutant.rule for mutant in MUTANTS}
    wanted = range(1, 32)
    assert [f"CE-{n}" for n in wanted if f"CE-{n}" not in rules] == []
    assert {"CE-4b", "CE-4c"} <= rules


def test_a_mutant_whose_rule_has_moved_says_so() -> None:
    with pytest.raises(LookupError, match="the product changed"):
        replace(object(), "gone", None)


def test_every_mutant_still_fits_the_product() -> None:
    """It may break a promise, or none in so short a time; any other error means that it has rotted.
    A part of one seed each."""
    names = [mutant.name for mutant in MUTANTS]
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        errors = pool.starmap(play_briefly, [(name, 6) for name in names], chunksize=1)
    assert [(n, error) for n, error in zip(names, errors, strict=True) if error] == []


def test_a_broken_mutant_is_told_and_the_others_are_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rot() -> None:
        raise TypeError("the product has changed")

    changed = [Mutant("rotten", "CE-0", rot), *(m for m in MUTANTS if m.name == QUICK[2])]
    monkeypatch.setattr(mutants, "MUTANTS", changed)
    assert main(["--seeds", "20", "--json", "--jobs", "1"]) == 1
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert report["broken"] == ["rotten"]
    assert report["survived"] == 0
    by_name = {v["name"]: v for v in report["mutants"]}
    assert "the product has changed" in by_name["rotten"]["error"]
    assert by_name[QUICK[2]]["caught"]
    assert "broken: rotten" in said.err


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["CE-0-nothing"])
    assert stop.value.code == 2
