"""Fixtures for your tests: a whole cluster in the test's process, or one of real processes.

In `conftest.py`:

    pytest_plugins = ["samcast.testing.plugin"]

In a test:

    def test_orders_survive_a_crash(cluster):
        orders = cluster.group("orders")
        orders.send(b"one").number()
        cluster.kill("sequencer")
        orders.send(b"two").number()
        assert [m.body for m in orders.read(1, count=2)] == [b"one", b"two"]

The cluster is simulated: virtual time, and a network that loses and delays by a seed
(`--samcast-seed`), so a failure repeats exactly. `--samcast-real` runs the same tests against real
processes.
"""
