"""The garbage collector leaves out what stays, and looks at it again when that has become much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tidelog_broker.limits.collector import Collector

MORE = 50_000


class Node:
    """One of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def cycle() -> weakref.ref[Node]:
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector(spared_more_max=MORE, counted_after=1)
    made.start()
    yield made
    made.stop()


def test_what_is_there_at_the_start_is_spared(collector: Collector) -> None:
    assert gc.get_freeze_count() > 0


def test_what_a_full_collection_lets_live_is_spared_from_then_on(collector: Collector) -> None:
    before, lasting = gc.get_freeze_count(), [[number] for number in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(lasting)


def test_new_garbage_is_collected(collector: Collector) -> None:
    garbage = cycle()
    gc.collect()
    assert garbage() is None


def test_when_much_was_spared_all_of_it_is_looked_at_again() -> None:
    """In a process of its own: as much again as the process of the tests has would be millions of objects."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(spare_much).result()


def spare_much() -> None:
    Collector(spared_more_max=MORE, counted_after=1).start()
    one, two = Node(), Node()
    one.other, two.other = two, one
    spared = weakref.ref(one)
    gc.collect()
    del one, two
    gc.collect()
    assert spared() is not None, "it was spared while it was in use"
    many = [[number] for number in range(gc.get_freeze_count() + 2 * MORE)]
    gc.collect()
    gc.collect()
    assert spared() is None
    assert gc.get_freeze_count() >= len(many), "and what is in use is spared again"


def test_a_stop_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold(), len(gc.callbacks)
    made = Collector()
    made.start()
    made.stop()
    assert (gc.get_threshold(), len(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
