"""What is repeated, how long, and how errors keep their type over the wire."""

import random
from typing import Any

import grpc
import pytest

import tidelog
from support.fake_broker import FakeBroker
from tidelog import ClientOptions, RetryPolicy, errors
from tidelog._connecting.retry import may_repeat, of_a_leader, retrying
from tidelog._connecting.status import error_from_message, error_from_rpc
from tidelog.client import Client
from tidelog.errors import TidelogError
from tidelog_proto import common_pb2

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=4)


class Attempts:
    def __init__(self, *outcomes: TidelogError | str) -> None:
        self.outcomes = list(outcomes)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, TidelogError):
            raise outcome
        return outcome


async def run(attempts: Attempts, *, repeat_indefinite: bool, timeout_s: float = 5) -> str:
    return await retrying(
        attempts, timeout_s=timeout_s, repeat_indefinite=repeat_indefinite, policy=QUICK, rng=random.Random(1)
    )


async def test_retriable_errors_are_repeated_until_it_works() -> None:
    attempts = Attempts(errors.NotLeader("a"), errors.Stopping("b"), "done")
    assert await run(attempts, repeat_indefinite=False) == "done"
    assert attempts.count == 3


async def test_what_is_not_retriable_is_raised_at_once() -> None:
    attempts = Attempts(errors.StreamExists("there"), "never")
    with pytest.raises(errors.StreamExists):
        await run(attempts, repeat_indefinite=True)
    assert attempts.count == 1


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_indefinite_error_is_repeated_only_where_twice_is_once(allowed: bool) -> None:
    attempts = Attempts(errors.ConnectionLost("gone"), "done")
    if allowed:
        assert await run(attempts, repeat_indefinite=True) == "done"
    else:
        with pytest.raises(errors.ConnectionLost):
            await run(attempts, repeat_indefinite=False)


async def test_a_doubt_outlives_later_definite_failures() -> None:
    attempts = Attempts(errors.TimedOut("maybe"), *[errors.Unavailable("no") for _ in range(50)])
    with pytest.raises(errors.TimedOut) as caught:
        await run(attempts, repeat_indefinite=True, timeout_s=0.02)
    assert isinstance(caught.value.__cause__, errors.Unavailable)


def test_delays_grow_have_jitter_and_respect_the_brokers_hint() -> None:
    policy, rng = RetryPolicy(first_delay_ms=10, delay_ms_max=100), random.Random(3)
    delays = [policy.delay_s(attempt, rng) for attempt in range(1, 9)]
    assert all(
        low <= delay <= high
        for delay, (low, high) in zip(delays[:3], [(5e-3, 1e-2), (1e-2, 2e-2), (2e-2, 4e-2)], strict=True)
    )
    assert max(delays) <= 0.1
    assert policy.delay_s(1, rng, hint_ms=500) == 0.5


def test_a_leader_is_looked_for_often_and_then_with_patience() -> None:
    policy, rng = RetryPolicy(first_delay_ms=10, delay_ms_max=1000), random.Random(3)
    moved = errors.NotLeader("moved", retry_after_ms=500)
    early = [policy.pause_s(moved, attempt, rng) for attempt in range(1, 101)]
    assert max(early) <= 0.05
    assert policy.pause_s(moved, 110, rng) >= 0.5
    assert policy.pause_s(errors.Unavailable("new", retry_after_ms=80), 1, rng) >= 0.08
    few = errors.NotEnoughReplicas("1 of 2")
    assert policy.pause_s(few, 20, rng) >= 0.5


def test_a_failed_disk_and_an_image_that_is_behind_are_one_brokers_matter() -> None:
    assert may_repeat(errors.StorageFailed("fsync"), repeat_indefinite=True)
    assert not may_repeat(errors.StorageFailed("fsync"), repeat_indefinite=False)
    behind = of_a_leader(errors.StreamNotFound("who?"), "s/0")
    assert (behind.retriable, behind.definite) == (True, True)
    full = errors.DiskFull("full")
    assert of_a_leader(full, "s/0") is full


def test_an_unknown_code_in_a_stream_keeps_the_brokers_two_answers() -> None:
    error = error_from_message(common_pb2.Error(code=999, message="new", retriable=True, definite=True))  # type: ignore[arg-type]
    assert error.retriable
    assert error.definite


async def test_details_of_a_status_become_the_typed_error(log: Client, broker: FakeBroker) -> None:
    with pytest.raises(errors.StreamNotFound) as caught:
        await log.describe_stream("nope")
    assert caught.value.details == {"name": "nope"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, errors.FeatureNotImplemented),
        (grpc.StatusCode.PERMISSION_DENIED, errors.InvalidRequest),
        (grpc.StatusCode.INTERNAL, errors.InternalError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.TimedOut),
    ],
)
async def test_a_status_without_details_is_sorted_by_its_code(
    log: Client, broker: FakeBroker, code: Any, kind: type[TidelogError]
) -> None:
    broker.add_stream("s")
    broker.unary_script.append(code)
    with pytest.raises(kind):
        # Deleting is never repeated after an indefinite error.
        await log.delete_stream("s")


async def test_a_brokers_hint_is_waited_for(broker: FakeBroker) -> None:
    broker.add_stream("s")
    async with tidelog.connect(broker.address, options=ClientOptions(retry=QUICK)) as log:
        broker.unary_script.append(errors.ResourceExhausted("busy", retry_after_ms=30))
        assert (await log.describe_stream("s")).name == "s"


def test_a_call_that_grpc_itself_cannot_go_on_with_is_a_lost_connection() -> None:
    broke = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "Internal error from Core", None
    )
    error = error_from_rpc(broke, "localhost:1")
    assert isinstance(error, errors.ConnectionLost)
    assert not error.definite
