"""The measurement of costs runs and says all that it promises. No test asserts a time."""

import gc

import msgspec
import pytest

from samcast.sim import costs
from samcast.sim.costs import QUICK, Report, Row

ROLES = {"sender", "entry", "data server", "leader", "follower", "member", "core"}


@pytest.fixture(scope="module")
def report() -> Report:
    """Measured once, small, and through its JSON form."""
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", printed.append)
        assert costs.main(["--quick", "--json"]) == 0
    return msgspec.json.decode(printed[0], type=Report)


def test_every_role_is_measured_with_outstanding_runs(report: Report) -> None:
    assert {row.role for row in report.outstanding} == ROLES


def test_every_role_that_meets_several_senders_is_measured_with_many(report: Report) -> None:
    assert {row.role for row in report.senders} == ROLES - {"sender"}


def test_every_case_is_measured_in_steps_of_one_run_and_of_a_hundred(report: Report) -> None:
    rows = report.outstanding + report.senders
    steps = [(row.role, row.counted, row.runs_per_step) for row in rows]
    cases = [(case.role, case.counted) for case in costs.OUTSTANDING + costs.SENDERS]
    assert steps == [(*case, runs) for case in cases for runs in (1, 100)]


def test_every_figure_is_a_positive_number_for_each_size(report: Report) -> None:
    assert report.sizes == list(QUICK.sizes)
    for row in report.outstanding + report.senders:
        assert row.growth > 0
        for figures in (row.us_per_run, row.us_per_event):
            assert len(figures) == len(report.sizes)
            assert min(figures) > 0
    assert [once.what for once in report.once]
    assert all(min(once.milliseconds) > 0 for once in report.once)


def test_the_tables_put_the_ratio_before_the_times() -> None:
    row = Row("member", "overheard", 1, 1.25, [2.0, 2.5], [1.0, 1.1])
    report = Report("3.11.0", False, 1, [10, 200], [row], [row], [])
    assert "| role | counted | runs per step | 200 / 10 | per run, 10 |" in costs.tables(report)
    assert "| member | overheard | 1 | **1.25** | 2.0 | 2.5 | 1.0 | 1.1 |" in costs.tables(report)


def test_the_collector_is_on_again_afterwards(report: Report) -> None:
    assert gc.isenabled()
