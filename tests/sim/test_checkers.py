"""Each checker can fail: a fact that breaks its promise is a violation of that letter."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from samcast.sim.checkers import (
    Agreement,
    Bounded,
    Collection,
    CommittedOnly,
    Copies,
    Durable,
    Facts,
    Fencing,
    Monotone,
    Names,
    Order,
    Soundness,
    Transactions,
    Uniqueness,
    Violation,
)
from samcast.sim.copies import Places
from samcast.wire.change import Join
from samcast.wire.order import (
    ROLE_COMMIT,
    ROLE_DATA,
    Configuration,
    DecisionEntry,
    GroupRemovedEntry,
    OpenEntry,
    Part,
    SenderRemovedEntry,
    Server,
    StageRef,
)

BOTH = ROLE_COMMIT | ROLE_DATA
CONFIGURATION = Configuration(1, tuple(Server(n, 100 + n, BOTH) for n in (1, 2, 3)), 2, 2, 2)
KEY = (1, bytes(16), 1, 1, 0)
LOW, HIGH = (1, 1, 5), (2, 1, 6)


@pytest.fixture
def facts() -> Facts:
    return Facts(CONFIGURATION)


def broken(promise: str, act: Callable[[], object]) -> None:
    with pytest.raises(Violation) as caught:
        act()
    assert caught.value.promise == promise


def test_two_messages_under_one_number_break_agreement(facts: Facts) -> None:
    agreement = Agreement(facts)
    agreement.on_delivered("a", 1, 1, b"x")
    agreement.on_delivered("b", 1, 1, b"x")
    broken("A", lambda: agreement.on_delivered("c", 1, 1, b"y"))


def test_two_entries_at_one_index_break_agreement(facts: Facts) -> None:
    facts.entries, facts.hashes = [None], [b"h"]  # type: ignore[list-item]
    Agreement(facts).on_committed(1, b"h")
    broken("A", lambda: Agreement(facts).on_committed(1, b"other"))
    broken("A", lambda: Agreement(facts).on_folded("a", 1, b"other"))


def test_states_that_differ_at_an_index_break_agreement(facts: Facts) -> None:
    agreement = Agreement(facts)
    agreement.on_snapshot("a", 10, b"state")
    broken("A", lambda: agreement.on_snapshot("b", 10, b"other"))


def test_a_sender_told_another_number_breaks_agreement(facts: Facts) -> None:
    facts.number_of[(b"s", 1)] = (1, 7)
    Agreement(facts).on_confirmed((b"s", 1), 1, 7)
    broken("A", lambda: Agreement(facts).on_confirmed((b"s", 1), 1, 8))


def test_a_message_under_two_numbers_breaks_uniqueness(facts: Facts) -> None:
    uniqueness = Uniqueness(facts)
    uniqueness.on_delivered((b"s", 1), 1, 1)
    broken("U", lambda: uniqueness.on_delivered((b"s", 1), 1, 2))
    uniqueness.on_numbered(KEY, 1)
    broken("U", lambda: uniqueness.on_numbered(KEY, 2))


def test_gaps_and_wrong_order_break_order(facts: Facts) -> None:
    order = Order(facts)
    order.on_numbered(1, 1, 2)
    broken("O", lambda: order.on_numbered(1, 4, 1))
    order.on_member("m", 1)
    order.on_delivered("m", 1)
    broken("O", lambda: order.on_delivered("m", 3))
    order.on_first_seen((b"s", 1), 1, 1)
    broken("O", lambda: order.on_first_seen((b"s", 3), 1, 2))
    facts.given_up[(b"s", 2)] = None
    order.on_first_seen((b"s", 3), 1, 2)
    broken("O", lambda: order.on_first_seen((b"s", 2), 1, 3))


def test_what_too_few_accepted_is_not_committed(facts: Facts) -> None:
    committed = CommittedOnly(facts)
    facts.accepted[LOW] = {101: 5, 102: 4, 999: 9}
    committed.on_committed(LOW, 4, CONFIGURATION)
    broken("C", lambda: committed.on_committed(LOW, 5, CONFIGURATION))
    broken("C", lambda: committed.on_folded("a", 1))
    broken("C", lambda: committed.on_delivered("m", 1, 1))
    broken("C", lambda: committed.on_confirmed((b"s", 1), 1, 1))


def test_copies_on_disks_that_are_not_listed_do_not_count(facts: Facts) -> None:
    facts.payloads[(KEY, b"d")] = {101: True, 102: True}
    Copies(facts).on_numbered(KEY, b"d", CONFIGURATION)
    facts.payloads[(KEY, b"d")] = {101: True, 999: True}
    broken("K", lambda: Copies(facts).on_numbered(KEY, b"d", CONFIGURATION))


def test_who_leaves_takes_no_copies_along_that_the_others_lack(facts: Facts) -> None:
    disks = {1: ROLE_COMMIT, 2: BOTH, 3: BOTH, 4: BOTH}

    def of(number: int, *nodes: int) -> Configuration:
        servers = tuple(Server(n, 100 + n, disks[n]) for n in nodes)
        return Configuration(number, servers, 2, 2, 2)

    facts.payloads[(KEY, b"d")] = {102: True, 109: True}  # One of the disks is gone.
    facts.digest_of_run[KEY] = b"d"
    change = Copies(facts).on_changed
    change(of(1, 1, 2, 3, 4), of(2, 2, 3, 4), [KEY])  # It had none.
    broken("K", lambda: change(of(1, 1, 2, 3, 4), of(2, 1, 2, 3), [KEY]))
    facts.payloads[(KEY, b"d")] = {102: True, 103: True}
    change(of(1, 1, 2, 3, 4), of(2, 1, 2, 3), [KEY])


def test_accepting_below_a_promise_breaks_fencing(facts: Facts) -> None:
    fencing = Fencing(facts)
    fencing.on_promised(101, HIGH)
    fencing.on_accepted(101, HIGH)
    broken("F", lambda: fencing.on_accepted(101, LOW))


def test_an_epoch_led_twice_breaks_fencing(facts: Facts) -> None:
    fencing = Fencing(facts)
    fencing.on_elected(LOW, 1, 1)
    fencing.on_elected(LOW, 1, 1)
    broken("F", lambda: fencing.on_elected(LOW, 1, 2))


def test_bytes_that_nobody_sent_break_soundness(facts: Facts) -> None:
    facts.sent[b"x"] = (b"s", 1)
    assert Soundness(facts).on_delivered("m", 1, 1, b"x") == (b"s", 1)
    broken("S", lambda: Soundness(facts).on_delivered("m", 1, 1, b"y"))


def test_going_back_breaks_monotony() -> None:
    monotone = Monotone()
    monotone.on_folded("a", 1, 5)
    monotone.on_folded("a", 2, 3)  # another life starts from its disk
    broken("M", lambda: monotone.on_folded("a", 1, 4))
    monotone.on_disk(101, HIGH)
    broken("M", lambda: monotone.on_disk(101, LOW))
    monotone.on_log(101, 10, is_known=True)
    broken("M", lambda: monotone.on_log(101, 9, is_known=True))
    monotone.on_log(101, 12, is_known=False)
    monotone.on_log(101, 9, is_known=True)  # mended by an install


def test_half_a_transaction_breaks_atomicity(facts: Facts) -> None:
    transactions = Transactions(facts)
    facts.transactions[(b"tx", 1)] = 2
    transactions.on_seen((b"tx", 1), b"1", 1)
    broken("T", transactions.check_whole)
    broken("T", lambda: transactions.on_seen((b"tx", 1), b"2", 2))
    transactions.on_seen((b"tx", 1), b"1", 2)
    transactions.check_whole()


def test_a_member_that_stops_within_a_transaction_breaks_atomicity(facts: Facts) -> None:
    transactions = Transactions(facts)
    refs = tuple(StageRef(stage, 2, b"d" * 16) for stage in (1, 2))
    transactions.on_decided(DecisionEntry(b"n" * 16, 1, 1, (Part(1, 5, refs),)))
    for number in (5, 9):
        transactions.on_position("member", 1, number)
    for number in (6, 7, 8):
        with pytest.raises(Violation, match="part of a transaction"):
            transactions.on_position("member", 1, number)


def test_giving_up_what_is_numbered_breaks_collection(facts: Facts) -> None:
    Collection(facts).on_dropped("d", KEY, [b"d"])
    facts.digest_of_run[KEY] = b"d"
    Collection(facts).on_dropped("d", KEY, [b"of another"])
    broken("G", lambda: Collection(facts).on_dropped("d", KEY, [b"of another", b"d"]))


def test_a_false_word_about_a_name_is_found() -> None:
    names = Names()
    names.on_committed(OpenEntry(1, b"n", 1, 0, 0, 70))
    broken("N", lambda: names.on_removed("p", 1, b"n", 1))
    broken("N", lambda: names.on_fenced("p", 1, b"n", 1, 70))
    names.on_fenced("q", 1, b"n", 1, 71)
    names.on_committed(SenderRemovedEntry(1, b"n", 1))
    names.on_removed("p", 1, b"n", 1)
    broken("N", lambda: names.on_removed("q", 1, b"n", 2))
    names.on_committed(SenderRemovedEntry(1, b"n"))
    names.on_removed("q", 1, b"n", 2)
    names.on_committed(GroupRemovedEntry(2))
    names.on_removed("p", 2, b"n", 1)


def test_more_than_the_limit_breaks_the_bound() -> None:
    bounded = Bounded()
    bounded.on_size("d", 1, "runs", 5, 3)  # what a disk gave back
    bounded.on_size("d", 1, "runs", 4, 3)
    broken("R", lambda: bounded.on_size("d", 1, "runs", 5, 3))


def test_a_confirmed_message_that_is_lost_or_changed_breaks_durability(facts: Facts) -> None:
    facts.confirmed[(b"s", 1)] = (1, 1)
    broken("D", Durable(facts).check)
    facts.number_of[(b"s", 1)] = (1, 1)
    facts.body_at[(1, 1)] = b"x"
    facts.confirmed_bodies[b"x"] = (b"s", 1)
    Durable(facts).check()
    facts.confirmed_bodies[b"y"] = (b"s", 1)
    broken("D", Durable(facts).check)


def test_a_disk_that_was_heard_just_before_may_not_lose_its_place() -> None:
    now = Configuration(1, tuple(Server(n, 100 + n, ROLE_COMMIT) for n in (1, 2, 3)), 2, 2, 1)
    servers = (*now.servers[:2], Server(3, 333, ROLE_COMMIT))
    later = Configuration(2, servers, 2, 2, 1)
    sequencer: Any = SimpleNamespace(configuration=now, tail=SimpleNamespace(configuration=later))
    places = Places(silence_us=400)
    places.on_ordered(1, sequencer, 1000)
    places.on_arrived(1, Join(3, 103, 1), 1000)
    places.on_arrived(2, Join(3, 103, 1), 1399)  # by somebody else
    places.on_ordered(1, sequencer, 1400)
    with pytest.raises(Violation, match="J: disk 103 of server 3 lost its place"):
        places.on_ordered(1, sequencer, 1050)
