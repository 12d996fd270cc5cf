"""By which of its addresses a client reaches a broker."""

from __future__ import annotations

import pytest

from tidelog._connecting.listeners import Listeners
from tidelog.errors import InvalidRequest
from tidelog.model import BrokerDescription, Listener


def broker(number: int, **addresses: str) -> BrokerDescription:
    """Of each listener, by its name, where it is."""
    listeners = []
    for name, address in {"peer": f"p{number}:9212", "internal": f"main-{number}:9210", **addresses}.items():
        host, _, port = address.partition(":")
        listeners.append(Listener(name, host, int(port)))
    return BrokerDescription(number, bytes(16), bytes(16), tuple(listeners), "", "active")


OUTSIDE = [broker(0, outside="n1:30000"), broker(1, outside="n2:30001")]


@pytest.mark.parametrize(
    ("given", "name", "chosen"),
    [
        (("main:9210",), "", {0: "main-0:9210", 1: "main-1:9210"}),
        (("main-1:9210",), "", {0: "main-0:9210", 1: "main-1:9210"}),
        (("n1:30000",), "", {0: "n1:30000", 1: "n2:30001"}),
        (("balancer:443",), "outside", {0: "n1:30000", 1: "n2:30001"}),
        (("n1:30000",), "internal", {0: "main-0:9210", 1: "main-1:9210"}),
    ],
)
def test_the_listener_of_an_address_that_was_given_or_the_one_that_was_named(
    given: tuple[str, ...], name: str, chosen: dict[int, str]
) -> None:
    assert Listeners(given, name).reachable(OUTSIDE) == chosen


def test_a_broker_that_moved_away_from_the_given_address_is_reached_at_its_new_one() -> None:
    listeners = Listeners(("n1:30000",))
    listeners.reachable(OUTSIDE)

    moved = [broker(0, outside="n4:30000"), broker(1, outside="n2:30001")]

    assert listeners.reachable(moved) == {0: "n4:30000", 1: "n2:30001"}


def test_a_broker_without_the_listener_that_was_named_is_left_out() -> None:
    assert Listeners(("n1:30000",), "outside").reachable([*OUTSIDE, broker(2)]) == {
        0: "n1:30000",
        1: "n2:30001",
    }


def test_a_listener_that_no_broker_has_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"no broker has a listener cloud; the brokers have internal, outside"
    ):
        Listeners(("n1:30000",), "cloud").reachable(OUTSIDE)


def test_no_brokers_are_no_reason_to_refuse() -> None:
    assert Listeners(("n1:30000",), "cloud").reachable([]) == {}
