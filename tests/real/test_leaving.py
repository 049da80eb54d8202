"""Programs that end, however they end: what they gave to `send` is there, or they say how much may
not be."""

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import samcast
from samcast.errors import NotConnectedError, WaitTimeoutError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES, hear_ctrl_c

WAIT_S = 30.0
COUNT = 1000
BEGIN = """
import asyncio, os, signal, sys, samcast
from samcast.client import leaving
NAME = sys.argv[1]
def send(client):
    group = client.group(NAME)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(1000):
        group.send(str(number))
async def send_by(client):
    group = await client.group(NAME)
    for number in range(1000):
        await group.send(str(number))
"""
# How each program ends, and with which exit code.
ENDS = {
    "exit": ("with samcast.connect() as c:\n    send(c)\n    sys.exit(0)", 0),
    "exit-code": ("with samcast.connect() as c:\n    send(c)\n    sys.exit(7)", 7),
    "error": ("with samcast.connect() as c:\n    send(c)\n    raise KeyError('mine')", 1),
    "ctrl-c": (
        "with samcast.connect() as c:\n    send(c)\n    os.kill(os.getpid(), signal.SIGINT)",
        -2,
    ),
    "unclosed": ("send(samcast.connect())", 0),
    "unclosed-error": ("send(samcast.connect())\nraise KeyError('mine')", 1),
    "unclosed-transaction": (
        "c = samcast.connect()\nsend(c)\nwith c.transaction() as tx:\n"
        "    tx.send(c.group('t'), b'x')",
        0,
    ),
    "async-exit": (
        "async def main():\n"
        "    async with await samcast.aio.connect() as c:\n"
        "        await send_by(c)\n"
        "        sys.exit(0)\n"
        "asyncio.run(main())",
        0,
    ),
    "async-unclosed": (
        "async def main():\n    await send_by(await samcast.aio.connect())\nasyncio.run(main())",
        0,
    ),
}  # fmt: skip


def begun(cluster: LocalCluster, name: str, script: str) -> "subprocess.Popen[str]":
    """A program of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + script, name],
        env=os.environ | {"SAMCAST_CLUSTER": cluster.address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )


def test_however_a_program_ends_all_that_it_sent_is_there(cluster: LocalCluster) -> None:
    runs = {name: begun(cluster, name, script) for name, (script, _) in ENDS.items()}
    for name, run in runs.items():
        _, told = run.communicate("go\n", WAIT_S)
        assert run.returncode == ENDS[name][1], f"{name}: {told}"
        assert "not confirmed" not in told, name
    with samcast.connect(cluster.address) as client:
        for name in ENDS:
            assert client.group(name).head() == COUNT, name
            assert [int(m.body) for m in client.group(name).read(1, count=COUNT)] == [*range(COUNT)]


def kill_all(cluster: LocalCluster) -> None:
    for name in NODES:
        cluster.kill(name)


def test_who_ends_while_nobody_confirms_says_how_many_messages(cluster: LocalCluster) -> None:
    shorter = "leaving.LEAVE_S = 0.2\n"
    runs = {name: begun(cluster, name, shorter + ENDS[name][0]) for name in ("error", "unclosed")}
    for run in runs.values():
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
    kill_all(cluster)
    told = {name: run.communicate("go\n", WAIT_S)[1] for name, run in runs.items()}
    assert {name: run.returncode for name, run in runs.items()} == {"error": 1, "unclosed": 0}
    lines = {name: text.splitlines() for name, text in told.items()}
    said = "1,000 messages were not confirmed within 0.2 s: they may or may not be in their groups"
    assert [line for line in lines["unclosed"] if "confirmed" in line] == [said]
    assert lines["error"][-2:] == ["KeyError: 'mine'", said]
    assert lines["error"].count(said) == 2  # as a warning, and as a note of the error


def in_child(work: Callable[[], list[str]]) -> list[str]:
    """What a forked child comes to."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(int(WAIT_S))  # It must not outlive the test.
        try:
            told = work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            told = [repr(error)]
        os.write(theirs, json.dumps(told).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        found: list[str] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


def test_a_child_is_refused_whatever_it_asks_and_leaves_at_once(cluster: LocalCluster) -> None:
    client = samcast.connect(cluster.address)
    group = client.group("orders")
    group.send(b"a").number(WAIT_S)
    reading = group.read(1)
    next(reading)
    kill_all(cluster)
    under_way = group.send(b"b")
    calls: list[Callable[[], Any]] = [
        lambda: group.send(b"c"),
        lambda: next(group.read(1)),
        lambda: next(reading),
        under_way.number,
        client.transaction,
        group.flush,
        lambda: client.group("new"),
    ]

    def work() -> list[str]:
        told = []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for call in calls:
                try:
                    call()
                except NotConnectedError as error:
                    told.append(str(error))
            client.__exit__(None, None, None)
            client.__exit__(KeyError, KeyError(), None)
            client.close()
        return told + [str(warning.message) for warning in warned]

    refused = "this client was made before a fork; connect again in the child process"
    assert in_child(work) == [refused] * len(calls)
    with pytest.raises(WaitTimeoutError, match="1 message was not confirmed"):
        client.close(0.1)
