"""The fixtures that we give to users, used as they would."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
def test_orders_survive_a_crash(cluster):
    orders = cluster.group("orders")
    numbers = [orders.send(b"%d" % i).number() for i in range(5)]
    killed = cluster.kill("sequencer")
    numbers += [orders.send(b"%d" % i).number() for i in range(5, 10)]
    cluster.restart(killed)
    orders.send("last")
    orders.flush()
    assert numbers == list(range(1, 11))
    bodies = [m.body for m in orders.read(1, count=11)]
    assert bodies == [b"%d" % i for i in range(10)] + [b"last"]
    assert [m.number for m in orders.read(9, count=3)] == [9, 10, 11]


def test_everybody_may_crash(cluster):
    orders = cluster.group("orders")
    orders.send(b"before").number()
    for name in cluster.nodes:
        cluster.kill(name)
    for name in cluster.nodes:
        cluster.restart(name)
    orders.send(b"after").number()
    assert [m.body for m in orders.read(1, count=2)] == [b"before", b"after"]
"""


@pytest.mark.parametrize("options", [(), ("--samcast-seed", "7"), ("--samcast-real",)])
def test_the_same_tests_run_simulated_and_real(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest('pytest_plugins = ["samcast.testing.plugin"]')
    Path(pytester.path / "test_it.py").write_text(TESTS)
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=2)
