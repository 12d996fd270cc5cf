"""R8: a producer writes under an id that InitProducer gave, and under no other."""

import asyncio

import msgspec
import pytest

from support.api import Api, batch, code_of
from tidelog.errors import InvalidRequest, Stopping, Unavailable, UnknownProducer
from tidelog.records import NO_PRODUCER_ID
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.hosting.producer_ids import ProducerIds
from tidelog_proto import log_pb2


class LaggingController:
    """The image here is behind what is committed until somebody asks for the newest."""

    def __init__(self, known: int, committed: int) -> None:
        self.image = ClusterImage(next_producer_id=known)
        self._committed = committed
        self.asked = 0
        self.answer: asyncio.Event | None = None
        """The controller answers once it is set; None: at once."""
        self.error: Exception | None = None

    def give(self, count: int) -> None:
        self._committed += count

    async def newest(self) -> ClusterImage:
        self.asked += 1
        committed = self._committed
        if self.answer is not None:
            await self.answer.wait()
        if self.error is not None:
            raise self.error
        self.image = msgspec.structs.replace(self.image, next_producer_id=committed)
        return self.image


def ids(controller: LaggingController) -> ProducerIds:
    return ProducerIds(controller)  # type: ignore[arg-type]


async def test_an_id_that_the_image_knows_asks_nobody() -> None:
    controller = LaggingController(1001, 1001)
    await ids(controller).check(1000)
    await ids(controller).check(NO_PRODUCER_ID)
    assert controller.asked == 0


async def test_an_id_of_which_this_broker_has_not_heard_yet_is_no_unknown_one() -> None:
    controller = LaggingController(1, 1001)
    await ids(controller).check(1000)
    assert controller.asked == 1


async def test_an_id_that_was_never_given_is_refused_for_good() -> None:
    with pytest.raises(UnknownProducer) as caught:
        await ids(LaggingController(1, 1001)).check(1001)
    assert (caught.value.definite, caught.value.retriable) == (True, False)


@pytest.mark.parametrize("producer_id", [0, 1 << 63, NO_PRODUCER_ID - 1])
async def test_an_id_that_is_reserved_is_refused_without_asking(producer_id: int) -> None:
    controller = LaggingController(1, 1001)
    with pytest.raises(InvalidRequest):
        await ids(controller).check(producer_id)
    assert controller.asked == 0


@pytest.mark.parametrize("error", [Unavailable("no controller"), Stopping("it stops"), TimeoutError()])
async def test_while_nobody_can_tell_the_refusal_may_be_tried_again(error: Exception) -> None:
    controller = LaggingController(1, 1001)
    controller.error = error
    with pytest.raises(Unavailable) as caught:
        await ids(controller).check(5)
    assert (caught.value.definite, caught.value.retriable) == (True, True)


async def test_a_batch_rests_on_what_was_asked_after_it_came_and_many_share_that() -> None:
    """An id that is given while an earlier question is on its way is not refused by its answer."""
    controller = LaggingController(1, 1001)
    controller.answer = asyncio.Event()
    checked = ids(controller)
    early = asyncio.create_task(checked.check(5000))
    await asyncio.sleep(0)
    controller.give(10_000)
    late = [asyncio.create_task(checked.check(5000)) for _ in range(20)]
    await asyncio.sleep(0)
    controller.answer.set()

    with pytest.raises(UnknownProducer):
        await early
    await asyncio.gather(*late)

    assert controller.asked == 2


async def _given(api: Api) -> int:
    return int((await api.log.InitProducer(log_pb2.InitProducerRequest())).producer_id)


async def test_a_batch_under_an_id_that_nobody_was_given_leaves_nothing(api: Api) -> None:
    stream, call = await api.create(), api.produce()

    refused = (await call.produce(stream, batch(b"x", producer_id=123_456_789))).error

    assert code_of(refused) == "UNKNOWN_PRODUCER"
    assert (refused.definite, refused.retriable) == (True, False)
    assert refused.details["producer_id"] == "123456789"
    assert await api.values(stream) == []


async def test_a_batch_of_a_sink_that_was_not_opened_leaves_nothing(api: Api) -> None:
    stream, call = await api.create(), api.produce()

    refused = (await call.produce(stream, batch(b"x", producer_id=1 << 63))).error

    assert code_of(refused) == "UNKNOWN_PRODUCER"
    assert "call OpenSink first" in refused.message
    assert refused.definite
    assert await api.values(stream) == []


async def test_what_stands_behind_a_refused_producer_keeps_its_order(api: Api) -> None:
    stream, other, given, call = await api.create(), await api.create(), await _given(api), api.produce()
    await call.send(stream, batch(b"a", producer_id=given))
    await call.send(stream, batch(b"never given", producer_id=123_456_789))
    await call.send(stream, batch(b"behind it", producer_id=given, sequence=1))
    await call.send(other, batch(b"elsewhere"))
    await call.send(stream, batch(b"again", producer_id=given, sequence=1), reset=True)
    answers = {(one := await call.answer()).request_id: one for _ in range(5)}

    codes = [code_of(answers[n].error) if answers[n].HasField("error") else "ok" for n in range(1, 6)]
    assert codes == ["ok", "UNKNOWN_PRODUCER", "PRECEDING_FAILED", "ok", "ok"]
    assert await api.values(stream) == [b"a", b"again"]
