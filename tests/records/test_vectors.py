"""The vectors that other languages are held to (F5), held against the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from records import twin
from records.vectors import generate
from tidelog.errors import DataCorrupt, InvalidRequest
from tidelog.records import (
    BatchHeader,
    BatchLimits,
    decode_batch,
    encode_batch,
    header_crc,
    validate_batch,
    verify_batch,
)
from tidelog.records.layout import Compression

FILES = Path(__file__).parent / "vectors"


def vectors(name: str) -> list[Any]:
    found = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(vector, id=vector["name"]) for vector in found]


def check_meaning(vector: dict[str, Any], batch: bytes) -> None:
    header = BatchHeader.unpack(batch)._asdict()
    assert header | {"magic": header["magic"].decode()} == vector["header"]
    assert generate.header_json(batch) == vector["header"]
    decoded = [generate.plain_json(record) for record in twin.records_of(decode_batch(batch))]
    assert decoded == vector["records"]
    assert [generate.plain_json(record) for record in twin.read_records(batch)] == vector["records"]


@pytest.mark.parametrize("vector", vectors("accepted"))
def test_an_accepted_vector_validates_and_means_what_it_says(vector: dict[str, Any]) -> None:
    batch = bytes.fromhex(vector["batch"])

    validate_batch(batch, BatchLimits(), now_us=0)

    check_meaning(vector, batch)


@pytest.mark.parametrize("vector", vectors("accepted"))
def test_an_accepted_vector_encoded_again_means_the_same(vector: dict[str, Any]) -> None:
    batch = bytes.fromhex(vector["batch"])
    header = BatchHeader.unpack(batch)

    again = encode_batch(
        decode_batch(batch),
        compression=Compression(header.compression),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )

    of_the_bytes = {"length", "body_crc"}
    found = {name: value for name, value in generate.header_json(again).items() if name not in of_the_bytes}
    assert found == {name: value for name, value in vector["header"].items() if name not in of_the_bytes}
    assert [generate.plain_json(record) for record in twin.read_records(again)] == vector["records"]


@pytest.mark.parametrize("vector", vectors("projected"))
def test_a_projected_vector_means_what_it_says(vector: dict[str, Any]) -> None:
    found = generate.projected_json(bytes.fromhex(vector["projected"]))

    assert found == {name: vector[name] for name in ("header", "records")}


@pytest.mark.parametrize("vector", vectors("stored"))
def test_a_stored_vector_passes_both_crcs_at_its_place_and_means_what_it_says(
    vector: dict[str, Any],
) -> None:
    batch, stream_id = bytes.fromhex(vector["batch"]), bytes.fromhex(vector["stream_id"])

    verify_batch(batch, BatchHeader.unpack(batch), stream_id, vector["partition"])

    assert header_crc(stream_id, vector["partition"], batch) == vector["header"]["header_crc"]
    assert twin.header_crc(stream_id, vector["partition"], batch) == vector["header"]["header_crc"]
    assert twin.body_crc(batch) == vector["header"]["body_crc"]
    check_meaning(vector, batch)


@pytest.mark.parametrize("vector", vectors("damaged"))
def test_a_damaged_vector_fails_a_crc_at_its_place(vector: dict[str, Any]) -> None:
    batch = bytes.fromhex(vector["batch"])

    with pytest.raises(DataCorrupt) as caught:
        verify_batch(
            batch, BatchHeader.unpack(batch), bytes.fromhex(vector["stream_id"]), vector["partition"]
        )

    assert caught.value.code == vector["error"]


@pytest.mark.parametrize("vector", vectors("refused"))
def test_a_refused_vector_is_refused_with_its_error_code(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_batch(bytes.fromhex(vector["batch"]), BatchLimits(), now_us=0)

    assert caught.value.code == vector["error"]


@pytest.mark.parametrize("name", sorted(generate.MAKERS))
def test_the_committed_vectors_are_what_the_script_writes(name: str) -> None:
    committed = (FILES / f"{name}.json").read_text(encoding="utf-8")
    made_with = json.loads(committed)["made_with"]
    if made_with != f"pyarrow {pa.__version__}":
        pytest.skip(
            f"made with {made_with}: another version may lay out or compress the same records otherwise"
        )

    assert generate.render(name) == committed


def test_vector_names_are_unique_and_every_file_has_a_maker() -> None:
    assert {path.stem for path in FILES.glob("*.json")} == set(generate.MAKERS)
    names = [param.id for name in generate.MAKERS for param in vectors(name)]
    assert len(names) == len(set(names))
