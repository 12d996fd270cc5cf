"""Protobuf values become columns, and bad ones do not harm the others. No Spark session here."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload import NAMES, Payload, options, parse_payload, protobuf_scan
from tidelog_spark.payload.decoded import Decoded

F = descriptor_pb2.FieldDescriptorProto
Field = tuple[str, int, str | None]
"""Name (with `*` behind it if repeated, `?` if optional), type, and the name of a message or enum."""


def _fields(message: descriptor_pb2.DescriptorProto, *fields: Field) -> None:
    for number, (name, kind, other) in enumerate(fields, 1):
        field = message.field.add(name=name.rstrip("*?"), number=number, type=kind)
        field.label = F.LABEL_REPEATED if name.endswith("*") else F.LABEL_OPTIONAL
        if other:
            field.type_name = other
        if name.endswith("?"):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _set(*fields: Field, syntax: str = "proto3") -> descriptor_pb2.FileDescriptorSet:
    found = descriptor_pb2.FileDescriptorSet()
    # The file comes before the file that it imports: the order must not matter.
    file = found.file.add(name="t.proto", package="t", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("NEW", "PAID")):
        enum.value.add(name=name, number=number)
    file.message_type.add(name="Nothing")
    _fields(
        file.message_type.add(name="Point"), ("x", F.TYPE_INT32, None), ("none", F.TYPE_MESSAGE, ".t.Nothing")
    )
    _fields(file.message_type.add(name="R"), *fields)
    entry = file.message_type[-1].nested_type.add(name="MEntry")
    _fields(entry, ("key", F.TYPE_INT32, None), ("value", F.TYPE_MESSAGE, ".t.Point"))
    entry.options.map_entry = True
    return found


def _payload(found: descriptor_pb2.FileDescriptorSet, **given: str) -> Payload:
    text = base64.b64encode(found.SerializeToString()).decode()
    values = {"valueFormat": "protobuf", "valueSchema": text, "valueMessage": "t.R", **given}
    payload = parse_payload(Given(values, NAMES, lambda name: None))
    assert payload is not None
    return pickle.loads(pickle.dumps(payload))  # type: ignore[no-any-return]


def _decode(found: descriptor_pb2.FileDescriptorSet, *values: bytes | None) -> Decoded:
    decoded = _payload(found).decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert len(decoded.columns) == len(decoded.reasons) == len(values)
    return decoded


def _message(found: descriptor_pb2.FileDescriptorSet) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(found.file):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.R"))()


_MAP: Field = ("m*", F.TYPE_MESSAGE, ".t.R.MEntry")
_POINT: Field = ("f", F.TYPE_MESSAGE, ".t.Point")
_POINTS: Field = ("f*", F.TYPE_MESSAGE, ".t.Point")
_AT: Field = ("f", F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
_STATE: Field = ("f", F.TYPE_ENUM, ".t.E")


@pytest.mark.parametrize(
    ("field", "value", "wanted", "spark"),
    [
        (("f", F.TYPE_INT64, None), b"\x08\x07", 7, "bigint"),
        (("f", F.TYPE_INT64, None), b"", 0, "bigint"),
        (("f?", F.TYPE_INT64, None), b"", None, "bigint"),
        (("f?", F.TYPE_INT64, None), b"\x08\x00", 0, "bigint"),
        (("f", F.TYPE_UINT32, None), b"\x08\xff\xff\xff\xff\x0f", -1, "int"),
        (("f", F.TYPE_UINT64, None), b"\x08" + b"\xff" * 9 + b"\x01", -1, "bigint"),
        (("f", F.TYPE_FIXED32, None), b"\x0d\x00\x00\x00\x80", -(2**31), "int"),
        (("f", F.TYPE_SINT32, None), b"\x08\x01", -1, "int"),
        (("f", F.TYPE_BOOL, None), b"\x08\x01", True, "boolean"),
        (("f", F.TYPE_FLOAT, None), b"\x0d\x00\x00\xc0\x3f", 1.5, "float"),
        (("f", F.TYPE_STRING, None), b"\x0a\x02\xc3\xa4", "ä", "string"),
        (("f", F.TYPE_BYTES, None), b"\x0a\x01\xff", b"\xff", "binary"),
        (("f*", F.TYPE_INT32, None), b"\x0a\x02\x01\x02\x08\x03", [1, 2, 3], "array<int>"),
        (("f*", F.TYPE_STRING, None), b"", [], "array<string>"),
        (_STATE, b"\x08\x01", "PAID", "string"),
        (_STATE, b"\x08\x05", "UNKNOWN_ENUM_VALUE_E_5", "string"),
        (_POINT, b"", None, "struct<x:int>"),
        (_POINT, b"\x0a\x00", {"x": 0}, "struct<x:int>"),
        (_POINTS, b"\x0a\x02\x08\x01\x0a\x00", [{"x": 1}, {"x": 0}], "array<struct<x:int>>"),
        (_AT, b"\x0a\x06\x08\x02\x10\xc0\x84\x3d", datetime(1970, 1, 1, 0, 0, 2, 1000, UTC), "timestamp"),
        (_MAP, b"\x0a\x06\x08\x05\x12\x02\x08\x01", [(5, {"x": 1})], "map<int,struct<x:int>>"),
        (("f", F.TYPE_INT32, None), b"\x08\x01\x90\x03\x07", 1, "int"),
    ],
)  # fmt: skip
def test_each_type_becomes_that_of_spark(field: Field, value: bytes, wanted: Any, spark: str) -> None:
    found, name = _set(field), field[0].rstrip("*?")
    assert _decode(found, value).columns.to_pylist() == [{name: wanted}]
    assert _payload(found).schema.simpleString() == f"struct<{name}:{spark}>"


_WIDE = (("n", F.TYPE_INT64, None), ("s?", F.TYPE_STRING, None), ("p*", F.TYPE_MESSAGE, ".t.Point"),
         ("e", F.TYPE_ENUM, ".t.E"), ("l*", F.TYPE_SINT32, None))  # fmt: skip
_ROWS = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=5),
        "p": st.lists(st.fixed_dictionaries({"x": st.integers(-9, 9)}), max_size=3),
        "e": st.sampled_from(["NEW", "PAID"]),
        "l": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    }
)
_SET = _set(*_WIDE)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | _ROWS | st.binary(max_size=12), max_size=8))
def test_each_value_is_the_message_that_was_written(values: list[Any]) -> None:
    """The dumb twin: the library's own parser says which bytes are a message."""
    written = [_written(row) if isinstance(row, dict) else row for row in values]
    found = _decode(_SET, *written)
    rows = zip(values, written, found.columns.to_pylist(), found.reasons.to_pylist(), strict=True)
    for value, octets, row, why in rows:
        if isinstance(value, dict):
            assert (row, why) == (value, None)
        elif value is not None:
            assert (row is None) == (why is not None) == (not _parses(octets))


def _written(row: dict[str, Any]) -> bytes:
    message = _message(_SET)
    message.n, message.e = row["n"], ("NEW", "PAID").index(row["e"])
    if row["s"] is not None:
        message.s = row["s"]
    for point in row["p"]:
        message.p.add(x=point["x"])
    message.l.extend(row["l"])
    return bytes(message.SerializeToString())


def _parses(octets: bytes) -> bool:
    try:
        _message(_SET).ParseFromString(octets)
    except Exception:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(_ROWS, st.binary(max_size=6))
def test_the_walk_counts_at_least_what_a_value_has(row: dict[str, Any], tail: bytes) -> None:
    scan = protobuf_scan.scanner(_message(_SET).DESCRIPTOR)
    most = scan(_written(row))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protobuf_scan, "DECODED_BYTES_MAX", 0)
        walked = scan(_written(row))
        if _parses(_written(row) + tail):
            scan(_written(row) + tail)
    assert 128 * (1 + len(row["p"]) + len(row["l"])) <= walked <= most


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (("f", F.TYPE_INT32, None), b"oops", "not a message of this type"),
        (("f", F.TYPE_INT32, None), b"\x08", "not a message of this type"),
        (("f", F.TYPE_STRING, None), b"\x0a\x01\xff", "not a message of this type"),
        (("f*", F.TYPE_STRING, None), b"\x0a\x00\x0a\x01\xff", "not a message of this type"),
        (("f", F.TYPE_BYTES, None), b"\x0a\xff\xff\xff\xff\x7f", "not a message of this type"),
        (_AT, b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", ""),
        (("f", F.TYPE_INT32, None), b"\x13" * 200_000, "not a message of this type"),
    ],
)  # fmt: skip
def test_a_bad_value_harms_no_other(field: Field, value: bytes, why: str) -> None:
    found = _decode(_set(field), None, b"", value, b"")
    assert [reason is None for reason in found.reasons.to_pylist()] == [True, True, False, True]
    assert why in found.reasons[2].as_py()
    assert found.columns[3].as_py() is not None


def test_a_small_value_of_many_wide_messages_is_bad_before_it_is_read() -> None:
    found = _set(("f*", F.TYPE_MESSAGE, ".t.W"))
    wide = found.file[0].message_type.add(name="W")
    _fields(wide, *[(f"c{number}", F.TYPE_INT32, None) for number in range(1000)])
    decoded = _decode(found, b"\x0a\x00" * 20_000, b"\x0a\x00" * 2)
    assert "would become more than" in decoded.reasons[0].as_py()
    assert len(decoded.columns[1].as_py()["f"]) == 2


def test_the_content_of_a_group_counts_as_that_of_its_message() -> None:
    found = _set(("g*", F.TYPE_GROUP, ".t.W"), syntax="proto2")
    wide = found.file[0].message_type.add(name="W")
    _fields(wide, ("p*", F.TYPE_MESSAGE, ".t.V"))
    narrow = found.file[0].message_type.add(name="V")
    _fields(narrow, *[(f"c{number}", F.TYPE_INT32, None) for number in range(1000)])
    value = b"\x0b" + b"\x0a\x00" * 20_000 + b"\x0c"
    decoded = _decode(found, value, b"\x0b\x0a\x00\x0c")
    assert "would become more than" in decoded.reasons[0].as_py()
    assert len(decoded.columns[1].as_py()["g"][0]["p"]) == 1


def test_proto2_has_defaults_and_required_fields() -> None:
    found = _set(
        ("f", F.TYPE_INT32, None),
        ("d", F.TYPE_INT32, None),
        ("q", F.TYPE_INT32, None),
        ("e", F.TYPE_ENUM, ".t.E"),
        syntax="proto2",
    )
    message = next(one for one in found.file[0].message_type if one.name == "R")
    message.field[1].default_value = "5"
    message.field[2].label = F.LABEL_REQUIRED
    decoded = _decode(found, b"\x18\x01", b"\x18\x01\x20\x07", b"\x08\x01")
    assert decoded.columns.to_pylist() == [{"f": None, "d": 5, "q": 1, "e": None}] * 2 + [None]
    assert decoded.reasons[2].as_py() == "the value lacks the required fields q"


def test_a_field_may_have_the_name_of_a_method() -> None:
    names = ("HasField?", "FromString?", "IsInitialized?", "items?")
    found = _set(*[(name, F.TYPE_INT32, None) for name in names])
    (row,) = _decode(found, b"\x08\x05\x18\x06").columns.to_pylist()
    assert row == {"HasField": 5, "FromString": None, "IsInitialized": 6, "items": None}


def test_the_fast_library_is_in_use() -> None:
    assert api_implementation.Type() == "upb"


def test_descriptors_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.desc"
    path.write_bytes(_SET.SerializeToString())
    given = {"valueFormat": "protobuf", "valueDescriptorFile": str(path), "valueMessage": "t.R"}
    found = parse_payload(Given(given, NAMES, lambda name: None))
    assert found is not None
    assert found.schema.fieldNames() == ["n", "s", "p", "e", "l"]


_GIVEN = {"valueFormat": "protobuf", "valueMessage": "t.R"}
_TEXT = base64.b64encode(_SET.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (_GIVEN, "valueSchema is missing; give the Base64 of a FileDescriptorSet"),
        ({**_GIVEN, "valueSchema": "id bigint"}, "valueSchema is not Base64"),
        ({**_GIVEN, "valueSchema": "AAAA"}, "not a FileDescriptorSet"),
        ({**_GIVEN, "valueSchema": "A" * 300_000}, "give valueDescriptorFile"),
        ({**_GIVEN, "valueSchema": _TEXT, "valueDescriptorFile": "x"}, "are both given"),
        ({**_GIVEN, "valueDescriptorFile": "/no/such/file"}, "which the driver cannot read"),
        ({"valueFormat": "protobuf", "valueSchema": _TEXT}, "valueMessage is missing"),
        ({**_GIVEN, "valueSchema": _TEXT, "valueMessage": "t.X"}, "valueMessage is 't.X', which the"),
        ({**_GIVEN, "valueSchema": _TEXT, "valueMessage": "t.Nothing"}, "has no fields"),
        ({**_GIVEN, "valueSchema": _TEXT, "timestampUnit": "ms"}, "only with valueFormat=json"),
        (
            {"valueFormat": "json", "valueSchema": "n int", "valueMessage": "t.R"},
            "only with valueFormat=protobuf",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        parse_payload(Given(given, NAMES, lambda name: None))
    assert sentence in str(failure.value)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.desc"
    path.write_bytes(_SET.SerializeToString())
    monkeypatch.setattr(options, "DESCRIPTOR_BYTES_MAX", 10)
    given = {"valueFormat": "protobuf", "valueDescriptorFile": str(path), "valueMessage": "t.R"}
    with pytest.raises(InvalidRequest, match="has more than 10 bytes"):
        parse_payload(Given(given, NAMES, lambda name: None))


def test_a_message_in_itself_and_a_missing_import_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"value\.f contains the message t\.R in itself"):
        _payload(_set(("f", F.TYPE_MESSAGE, ".t.R")))
    alone = _set(_AT)
    del alone.file[1]
    with pytest.raises(InvalidRequest, match="run protoc with --include_imports"):
        _payload(alone)
    circle = _set(_AT)
    circle.file[0].dependency[0] = "t.proto"
    with pytest.raises(InvalidRequest, match=r"the file 't\.proto' of the FileDescriptorSet imports itself"):
        _payload(circle)
