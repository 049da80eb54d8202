"""Bad networks between real processes. Numbers in names are the rows of the fault catalogue."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from samcast.client.leading import sequencer_of
from samcast.group.settings import GroupSettings
from samcast.runtime.local_cluster import LocalCluster, log_path
from tests.real.conftest import running
from tests.real.relay import Relay
from tests.real.striking import SECONDS, every, judged, pause
from tests.real.weather import CLIENTS, Sky, Weather
from tests.real.workload import check_history, working


@pytest.fixture
def weather(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Weather]:
    settings = getattr(request, "param", GroupSettings())
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(3, settings)
    with Weather(cluster, random.Random(request.node.name)) as made, running(cluster):
        yield made


def judged_under(weather: Weather, sky: Sky) -> None:
    """Senders at work while all links are like this."""

    def strike() -> None:
        weather.everywhere(sky)
        pause(SECONDS)
        weather.clear()

    judged(weather.cluster, strike)


@pytest.mark.req("GRP-09", "GRP-18", "GRP-27")
@pytest.mark.parametrize("loss", [0.02, 0.3])
def test_01_frames_are_lost_on_all_links(weather: Weather, loss: float) -> None:
    judged_under(weather, Sky(loss=loss))
    assert weather.lost


def test_02_everything_is_lost_for_a_while(weather: Weather) -> None:
    def strike() -> None:
        weather.everywhere(Sky(loss=1.0))
        pause(0.1 + weather.chance.random())
        weather.clear()

    judged(weather.cluster, lambda: every(1, strike))
    assert weather.lost


@pytest.mark.req("GRP-27")
def test_03_every_frame_comes_several_times(weather: Weather) -> None:
    judged_under(weather, Sky(doubled=1.0))


@pytest.mark.req("GRP-27")
def test_04_frames_overtake_each_other(weather: Weather) -> None:
    judged_under(weather, Sky(delayed=0.3, delay_s=min(10.0, SECONDS / 2)))
    assert weather.delayed


def test_05_frames_of_long_ago_come_again_after_fail_overs(weather: Weather) -> None:
    cluster = weather.cluster

    def strike() -> None:
        leader = cluster.plan().node(sequencer_of(cluster)).id
        weather.alone(leader)
        pause(0.8)
        weather.clear()
        weather.replay()

    judged(cluster, lambda: every(1, strike))
    assert weather.replayed


@pytest.mark.req("GRP-21")
def test_06_the_sequencer_is_cut_off(weather: Weather) -> None:
    cluster = weather.cluster

    def strike() -> None:
        weather.alone(cluster.plan().node(sequencer_of(cluster)).id)
        pause(1)
        weather.clear()

    judged(cluster, lambda: every(1, strike))


@pytest.mark.parametrize("is_deaf", [True, False])
def test_07_the_sequencer_is_not_heard_or_hears_nothing(weather: Weather, is_deaf: bool) -> None:
    cluster = weather.cluster

    def strike() -> None:
        leader = cluster.plan().node(sequencer_of(cluster)).id
        others = [node.id for node in cluster.plan().nodes if node.id != leader]
        weather.cut(*[(o, leader) if is_deaf else (leader, o) for o in others])
        pause(1)
        weather.clear()

    judged(cluster, lambda: every(1, strike))


def test_08_two_nodes_reach_each_other_only_through_the_third(weather: Weather) -> None:
    pairs = [(1, 2), (2, 3), (1, 3)]

    def strike() -> None:
        a, b = weather.chance.choice(pairs)
        weather.cut((a, b), (b, a))
        pause(1)
        weather.clear()

    judged(weather.cluster, lambda: every(1, strike))


def test_11_bits_flip_on_the_way(weather: Weather) -> None:
    judged_under(weather, Sky(flipped=0.02))
    assert weather.flipped
    logs = [log_path(node).read_text() for node in weather.cluster.plan().nodes]
    assert any("the bytes changed on their way" in log for log in logs)


@pytest.mark.req("GRP-09")
def test_14_gaps_are_filled_by_servers_that_lag(weather: Weather) -> None:
    """Readers lose frames, and one server after the other hears nothing for a while."""
    nodes = (1, 2, 3)

    def strike() -> None:
        weather.everywhere(Sky(loss=0.05))
        behind = weather.chance.choice(nodes)
        weather.cut(*[(node, behind) for node in nodes if node != behind])
        pause(0.7)
        weather.clear()

    judged(weather.cluster, lambda: every(1, strike))


def test_16_connections_are_chopped_to_bytes_and_reset_in_mid_frame(cluster: LocalCluster) -> None:
    node = cluster.plan().nodes[0]
    with (
        Relay((node.host, node.port), random.Random(16)) as relay,
        working(cluster, 1, address=relay.address) as staff,
    ):
        for _ in range(max(3, int(SECONDS))):
            pause(0.4)
            relay.reset()
    assert relay.resets > 0
    assert check_history(cluster, staff)


def test_21_two_stand_for_election_again_and_again(weather: Weather) -> None:
    cluster = weather.cluster

    def strike() -> None:
        leader = cluster.plan().node(sequencer_of(cluster)).id
        others = [node.id for node in cluster.plan().nodes if node.id != leader]
        weather.cut(*[(leader, o) for o in others])  # Both miss it from the same moment on.
        pause(0.6)
        weather.clear()

    judged(cluster, lambda: every(0.7, strike))


TIGHT = GroupSettings(held_runs_max=20, held_runs_reserve=20)


@pytest.mark.parametrize("weather", [TIGHT], indirect=True)
def test_65_servers_are_full_of_what_the_others_lack(weather: Weather) -> None:
    """Each client's messages reach its own node only, until there is no room for more."""
    nodes = (1, 2, 3)

    def strike() -> None:
        weather.cut(*[(a, b) for a in nodes for b in nodes if a != b])
        pause(SECONDS / 2)
        weather.clear()
        weather.everywhere(Sky(loss=0.1))
        pause(SECONDS / 2)
        weather.clear()

    judged(weather.cluster, strike, workers=6)


def test_a_client_that_is_cut_off_goes_on_later(weather: Weather) -> None:
    def strike() -> None:
        for node in (1, 2, 3):
            weather.cut((CLIENTS, node), (node, CLIENTS))
        pause(min(4.0, SECONDS))
        weather.clear()

    judged(weather.cluster, strike)
