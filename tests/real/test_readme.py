"""What the README tells a new user to do does what it says there."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samcast.runtime.local_cluster import LocalCluster, can_connect
from tests.real.striking import hear_ctrl_c

ROOT = Path(__file__).resolve().parents[2]
SAMCAST = [sys.executable, "-m", "samcast.cli.main"]


def blocks(language: str) -> list[str]:
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    found = fenced.findall((ROOT / "README.md").read_text())
    return [block for spoken, block in found if spoken == language]


def in_shell(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = line.split("#")[0].replace("samcast", " ".join(SAMCAST))
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True,
                          check=False)  # fmt: skip


@pytest.mark.req("OPS-01", "OPS-02", "OPS-03", "OPS-09")
def test_its_commands_and_its_program_do_what_they_say(tmp_path: Path) -> None:
    commands = next(block for block in blocks("") if "samcast up --detach" in block)
    up, send, read, status = commands.strip().splitlines()
    try:
        started = in_shell(up, tmp_path)
        assert started.returncode == 0, started.stderr
        assert in_shell(send, tmp_path).returncode == 0
        assert in_shell(read, tmp_path).stdout.splitlines() == [
            f"{number}\t{number}" for number in range(990, 1001)
        ]
        assert "sequencing" in in_shell(status, tmp_path).stdout
        program = next(block for block in blocks("python") if "samcast.connect()" in block)
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        told = [f"confirmed as number {number}" for number in range(1, 6)]
        assert ran.stdout.splitlines() == told + [f"{i + 1} order {i}" for i in range(5)]
        assert len(program.strip().splitlines()) <= 10
        table = next(block for block in blocks("python") if "client.table" in block)
        connected = "import samcast\nclient = samcast.connect()\n"
        ran = subprocess.run(
            [sys.executable, "-c", connected + table], cwd=tmp_path, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert ran.stdout.splitlines() == ["b'eth0'", "2"]
    finally:
        in_shell("samcast down", tmp_path)


@pytest.mark.req("OPS-01")
def test_the_demo_shows_numbers_without_a_gap_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*SAMCAST, "up", "--plain"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        preexec_fn=hear_ctrl_c,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        lines = [line for line, _ in zip(demo.stdout, range(60), strict=False) if "gaps" in line]
        demo.send_signal(signal.SIGINT)
        rest = demo.communicate(timeout=30)[0]
    assert demo.returncode == 0
    assert "stopped; the data is in" in rest
    assert all(" gaps 0 " in line for line in lines)
    assert re.search(r" delivered [1-9]\d*", lines[-1])
    nodes = LocalCluster(tmp_path / ".samcast").plan().nodes
    assert not any(can_connect(node.host, node.port) for node in nodes)
