"""Warnings in a node's log: the first at once, a flood in a few lines."""

import pytest

from samcast.machine.ports import Warn
from samcast.runtime.warnings import PAUSE_S, Warnings


def test_a_flood_of_warnings_is_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("samcast.runtime.warnings.time.monotonic", lambda: now)
    said: list[str] = []
    warnings = Warnings(lambda code, text, **facts: said.append(text))
    for _ in range(5):
        warnings.on_warn(Warn("misdirected", "Head from 7"))
    warnings.on_warn(Warn("lease-lapsed", "'archive'"))
    assert said == ["misdirected: Head from 7", "lease-lapsed: 'archive'"]
    now += PAUSE_S
    warnings.on_warn(Warn("misdirected", "Head from 8"))
    assert said[2:] == ["misdirected: Head from 8 (4 more of this kind in between)"]
