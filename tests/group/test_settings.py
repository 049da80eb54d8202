"""The settings check themselves, once, and say what is wrong."""

import pytest

from samcast.errors import ConfigError
from samcast.group.settings import GroupSettings


def test_the_defaults_are_sound() -> None:
    assert GroupSettings().sender_runs_max == 256


@pytest.mark.parametrize("name", ["sender_runs_max", "retry_ms", "member_runs_max", "suspect_ms"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one_is_refused_with_its_name(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}; it must be at least 1"):
        GroupSettings(**{name: value})  # type: ignore[arg-type]


def test_one_lost_heartbeat_may_not_start_an_election() -> None:
    with pytest.raises(ConfigError, match="one lost packet would start an election"):
        GroupSettings(heartbeat_interval_ms=50, suspect_ms=100)
    GroupSettings(heartbeat_interval_ms=50, suspect_ms=101)


def test_switches_may_be_off() -> None:
    assert not GroupSettings(is_before=False).is_before
