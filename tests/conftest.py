"""Skipped tests are listed at the end, always; under CI=true they fail the run.

A skip means that a tool is missing. On a developer's machine that is fair; in CI it would quietly
turn a promise into a hope.
"""

import os

import pytest


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def skips(config: pytest.Config) -> list[str]:
    """One line per skip, of tests and of whole modules, with its reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter is not None else []
    return [
        f"{report.nodeid}: {report.longrepr[2] if type(report.longrepr) is tuple else ''}"
        for report in reports
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_ci() and skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = skips(config)
    if lines:
        verdict = "CI=true: they fail the run" if is_ci() else "they would fail under CI=true"
        terminalreporter.section(f"skipped tests ({verdict})")
        for line in lines:
            terminalreporter.line(line)
