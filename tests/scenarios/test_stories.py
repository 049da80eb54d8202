"""Every story goes as it is told, so that a reader may follow the source S1 through these files.

`./dev test tests/scenarios --rewrite` puts what happens in the place of what was expected; the diff
then shows what a change of the protocol means.
"""

import re
from pathlib import Path

import pytest

from tests.scenarios.story import retold

FOLDER = Path(__file__).parent
CLAIMS = range(1, 23)
# Consolidation of messages, and what stands on it: checkpoint servers are not built yet. Of claims
# 18, 19 and 21, which also stand on it, the stories show what they add.
CLAIMS_LATER = {6, 12, 13, 14, 15, 16, 17, 20}

# The rows are those of the stories' heads, said again here where a reader of marks finds them.
STORIES = [
    pytest.param(
        "claim_01_five_steps",
        marks=pytest.mark.req("GRP-01", "GRP-03", "GRP-06", "GRP-07", "GRP-08"),
    ),
    pytest.param("claim_03_one_report_names_many", marks=pytest.mark.req("GRP-02")),
    pytest.param("claim_04_one_submit_names_many", marks=pytest.mark.req("GRP-02", "GRP-06")),
    pytest.param("claim_09_many_gaps_in_one_question", marks=pytest.mark.req("GRP-09")),
    pytest.param("claim_09_two_step_repair", marks=pytest.mark.req("GRP-08", "GRP-09")),
    pytest.param("claim_10_one_step_repair", marks=pytest.mark.req("GRP-10")),
    pytest.param("claim_11_heartbeat_shows_a_lost_tail", marks=pytest.mark.req("GRP-11")),
    pytest.param("claim_18_birth_stays", marks=pytest.mark.req("GRP-18")),
    pytest.param("claim_19_expired", marks=pytest.mark.req("GRP-18", "GRP-19")),
    pytest.param("claim_22_before", marks=pytest.mark.req("GRP-05")),
    pytest.param("claim_22_without_before", marks=pytest.mark.req("GRP-07")),
    pytest.param("every_message_may_come_twice", marks=pytest.mark.req("GRP-04", "GRP-27")),
    pytest.param("every_message_may_get_lost", marks=pytest.mark.req("GRP-27")),
    pytest.param("failover_after_a_store", marks=pytest.mark.req("GRP-04", "GRP-21")),
    pytest.param("failover_after_the_commit", marks=pytest.mark.req("GRP-04", "GRP-08", "GRP-21")),
    pytest.param("failover_before_the_submit", marks=pytest.mark.req("GRP-04", "GRP-21", "GRP-27")),
    pytest.param("figure_2_only_the_id_was_missing", marks=pytest.mark.req("GRP-09")),
    pytest.param("figure_2_only_the_message_was_missing", marks=pytest.mark.req("GRP-09")),
    pytest.param("k_commit_is_not_reached", marks=pytest.mark.req("GRP-07")),
    pytest.param("k_data_is_not_reached", marks=pytest.mark.req("GRP-03")),
    pytest.param("k_data_is_reached_by_copying", marks=pytest.mark.req("GRP-03", "GRP-27")),
    pytest.param("k_minus_one_of_each_are_dead", marks=pytest.mark.req("GRP-21", "GRP-22")),
    pytest.param("member_catches_up", marks=pytest.mark.req("GRP-08", "GRP-09")),
    pytest.param("members_without_multicast", marks=pytest.mark.req("GRP-09", "GRP-12")),
    pytest.param("named_sender_resumes", marks=pytest.mark.req("GRP-26")),
    pytest.param("old_sequencer_comes_back", marks=pytest.mark.req("GRP-04", "GRP-21")),
    pytest.param("open_group", marks=pytest.mark.req("GRP-12")),
    pytest.param("resent_is_answered_not_numbered", marks=pytest.mark.req("GRP-04", "GRP-26")),
    pytest.param("roles_apart", marks=pytest.mark.req("GRP-01", "GRP-14")),
    pytest.param("roles_in_one_process", marks=pytest.mark.req("GRP-14")),
    pytest.param("server_comes_back_from_its_disk", marks=pytest.mark.req("GRP-23", "GRP-27")),
    pytest.param("transaction_over_two_groups", marks=pytest.mark.req("GRP-03", "GRP-04")),
    pytest.param("wiped_server_comes_back", marks=pytest.mark.req("GRP-23")),
]


def told(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def rows_of(text: str) -> list[str]:
    """The requirement rows that the head of a story names."""
    found = re.search(r"^req: (.+)$", text, re.MULTILINE)
    return found[1].split() if found else []


def claims_of(text: str) -> set[int]:
    """The claims of S1 that the head of a story names."""
    head = text.partition("\nreq:")[0].replace("\n# ", " ")
    lists = re.findall(r"S1 claims? ((?:\d+(?:, | and )?)+)", head)
    return {int(number) for numbers in lists for number in re.findall(r"\d+", numbers)}


@pytest.mark.parametrize("name", STORIES)
def test_the_story_goes_as_it_is_told(name: str, is_rewriting: bool) -> None:
    text = told(name)
    happened = retold(text)
    if is_rewriting:
        (FOLDER / f"{name}.txt").write_text(happened, encoding="utf-8")
    else:
        assert happened == text


def test_every_story_is_listed_with_the_rows_of_its_head() -> None:
    listed = {
        str(story.values[0]): [row for mark in story.marks for row in mark.args]
        for story in STORIES
    }
    assert listed == {path.stem: rows_of(told(path.stem)) for path in FOLDER.glob("*.txt")}


def test_every_story_says_what_it_shows() -> None:
    for path in FOLDER.glob("*.txt"):
        text = told(path.stem)
        assert re.match(r"# (S1|Beyond S1)\b", text), path.name
        assert rows_of(text), path.name


def test_every_claim_of_the_source_is_shown_or_comes_later() -> None:
    shown = {claim for path in FOLDER.glob("*.txt") for claim in claims_of(told(path.stem))}
    assert shown.isdisjoint(CLAIMS_LATER)
    assert shown | CLAIMS_LATER == set(CLAIMS)


# The interpreter itself.

SHORT = """
cluster data=1 commit=1 members=1 k_data=1 k_commit=1
show delivers
alice sends a
run until quiet
----
member-1 delivers 1 a
"""


def test_a_story_that_goes_otherwise_is_found() -> None:
    assert retold(SHORT) == SHORT
    wrong = SHORT.replace("delivers 1 a", "delivers 1 b")
    assert retold(wrong) == SHORT
    assert retold(SHORT.replace("member-1 delivers 1 a\n", "")) == SHORT


def test_where_nothing_happens_the_story_says_so() -> None:
    assert retold(SHORT + "\nrun 10ms\n----\n").endswith("----\nnothing\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("dance", "no such command: dance"),
        ("show dances", "no such kind of sentence: dances"),
        ("drop Dance", "no such message: Dance"),
        ("crash bob", "nobody is called bob"),
        ("cluster dances=3", "no such setting: dances"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"line 2: {problem}"):
        retold(f"# A story.\n{line}\n")
