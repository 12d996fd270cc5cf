"""The two messages that bypass protobuf, against protobuf itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog._connecting.framing import parse_fetch_answer, produce_request
from tidelog.errors import CorruptBatch
from tidelog.large_field import SMALL_MESSAGE_BYTES
from tidelog_proto import log_pb2

U64 = st.integers(0, (1 << 64) - 1)
BATCHES = st.builds(
    bytes.__mul__, st.binary(min_size=1, max_size=3000), st.sampled_from([1, SMALL_MESSAGE_BYTES])
)
"""Some are small enough to be left to protobuf, most are not."""


@given(U64, st.binary(min_size=16, max_size=16), st.integers(0, 1 << 31), st.binary(max_size=2000))
def test_a_produce_request_is_what_protobuf_would_have_written(
    request_id: int, stream_id: bytes, partition: int, batch: bytes
) -> None:
    facts = log_pb2.ProduceRequest(
        request_id=request_id, stream_id=stream_id, partition=partition, reset=True
    )
    found = log_pb2.ProduceRequest.FromString(produce_request(facts, batch))
    facts.batch = batch
    assert found == facts


@given(st.integers(0, 1 << 31), U64, U64, BATCHES, st.booleans())
def test_a_fetch_answer_reads_as_protobuf_reads_it(
    index: int, high: int, offset: int, batches: bytes, has_batches: bool
) -> None:
    message = log_pb2.FetchResponse(index=index, high_watermark=high, next=log_pb2.Position(offset=offset))
    if has_batches:
        message.batches = batches
    else:
        message.error.message = "x" * len(batches)
    found = parse_fetch_answer(message.SerializeToString())
    assert bytes(found.batches) == message.batches
    facts = log_pb2.FetchResponse()
    facts.CopyFrom(message)
    facts.ClearField("batches")
    found.facts.ClearField("batches")
    assert found.facts == facts or not has_batches


@pytest.mark.parametrize("cut", [1, 5, 100, 7500])
def test_an_answer_that_is_cut_short_is_refused(cut: int) -> None:
    data = log_pb2.FetchResponse(index=1, high_watermark=7, batches=bytes(8000)).SerializeToString()
    with pytest.raises(CorruptBatch):
        parse_fetch_answer(data[:-cut])
