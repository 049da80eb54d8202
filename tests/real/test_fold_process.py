"""Whatever the process that folds says, the node goes on, and the process begins anew."""

import asyncio
import sys
from pathlib import Path

import pytest

from samcast.runtime import fold_process
from samcast.runtime.fold_process import FoldProcess, Said

WAIT_S = 10.0


async def heard(what: str, folder: Path) -> tuple[list[Said], list[str], bool]:
    """What was said, what the log has of it, and whether the process has been ended."""
    said: list[Said] = []
    told: list[str] = []
    process = FoldProcess(what, folder, said.append, lambda code, text: told.append(text))
    await process.ensure()
    limit = asyncio.get_running_loop().time() + WAIT_S
    while not said and not (told and not process.pid):
        assert asyncio.get_running_loop().time() < limit
        await asyncio.sleep(0.02)
    is_over = not process.pid
    await process.stop()
    return said, told, is_over


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_process, "WORKER", "tests.real.bad_worker")


@pytest.mark.req("GRP-15")
@pytest.mark.parametrize("what", ["long", "no-json", "no-hash", "huge"])
def test_nonsense_ends_the_process_and_nothing_else(tmp_path: Path, what: str) -> None:
    said, told, is_over = asyncio.run(heard(what, tmp_path))
    assert said == []
    assert len(told) == 1
    assert "said something else" in told[0]
    assert is_over


@pytest.mark.req("GRP-15")
def test_a_checkpoint_is_heard(tmp_path: Path) -> None:
    said, told, is_over = asyncio.run(heard("sound", tmp_path))
    assert said == [Said(1, 5, 1, 2, "ab" * 32, "table")]
    assert (told, is_over) == ([], False)


@pytest.mark.req("GRP-15")
def test_a_process_that_cant_be_started_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))

    async def main() -> list[str]:
        told: list[str] = []
        process = FoldProcess("sound", tmp_path, lambda said: None, lambda code, t: told.append(t))
        await process.ensure()
        return told

    assert "can't be started" in asyncio.run(main())[0]
