"""Settings, configurations, names: what is accepted, and the sentence that says why not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.model import (
    DAY_MS,
    Durability,
    Listener,
    Receipt,
    Record,
    Retention,
    StreamConfig,
    StreamSettings,
    id_bytes,
    id_text,
    validate_config,
    validate_labels,
    validate_stream_name,
    validate_subject_pattern,
)


@pytest.mark.parametrize("name", ["a", "orders", "Orders-2.eu_1", "0", "_x", "a" * 200])
def test_these_names_are_fine(name: str) -> None:
    validate_stream_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "ä", "a" * 201, "a\n", "..", "__cursors"])
def test_these_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid stream name"):
        validate_stream_name(name)


def test_internal_streams_may_start_with_two_underscores() -> None:
    validate_stream_name("__cursors", internal=True)


@pytest.mark.parametrize("subject", ["a", "a.b", "a.*", "*", ">", "a.>", "a.*.c.>", "größe.ß", "$JS.x"])
def test_these_subjects_can_be_recorded(subject: str) -> None:
    validate_subject_pattern(subject)


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("$KV.>", "wildcards never record"),
        ("$SYS.*.x", "wildcards never record"),
        ("_INBOX.>", "wildcards never record"),
        ("", "empty"),
        ("a b", "space"),
        ("a\tb", "control"),
        (".a", "a token is empty"),
        ("a..b", "a token is empty"),
        ("a.", "a token is empty"),
        ("a.>.b", "last token"),
        ("a.b*", "must be whole tokens"),
        ("a.b>", "must be whole tokens"),
        ("a" * 1025, "1024 bytes"),
        ("\ud800", "cannot be printed"),
    ],
)
def test_these_subjects_are_refused_and_the_sentence_says_why(subject: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        validate_subject_pattern(subject)


def test_a_new_stream_has_as_many_copies_as_there_are_brokers_up_to_three() -> None:
    assert [StreamSettings().for_new_stream(count).replication_factor for count in (0, 1, 2, 3, 9)] == [
        1,
        1,
        2,
        3,
        3,
    ]


def test_defaults_are_valid_and_fsync_keeps_a_week() -> None:
    config = StreamSettings().for_new_stream(1)

    assert config == StreamConfig(replication_factor=1)
    assert config.durability is Durability.FSYNC
    assert config.retention == Retention(age_ms=7 * DAY_MS)


def test_the_effective_minimum_is_capped_by_the_replication_factor() -> None:
    assert StreamConfig(replication_factor=1, min_insync_replicas=2).min_insync_effective == 1
    assert StreamConfig(replication_factor=3, min_insync_replicas=2).min_insync_effective == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (StreamSettings(partitions=0), "partitions is 0; it must lie in 1–10000"),
        (
            StreamSettings(segment_bytes=1 << 32),
            "segment_bytes is 4294967296; it must lie in 4096–4294967295 bytes",
        ),
        (StreamSettings(batch_bytes_max=65 << 20), "batch_bytes_max"),
        (StreamSettings(segment_bytes=8192), "a batch never spans segments"),
        (StreamSettings(retention=Retention(bytes=0)), "retention.bytes is 0"),
        (StreamSettings(replication_factor=2, min_insync_replicas=3), "min_insync_replicas is 3, more than"),
        (StreamSettings(segment_age_ms=1), "segment_age_ms"),
        (StreamSettings(subject="a b"), "not a NATS subject"),
    ],
)
def test_a_setting_that_cannot_be_right_gets_one_sentence(settings: StreamSettings, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as raised:
        settings.for_new_stream(3)
    assert "\n" not in str(raised.value)
    assert raised.value.details["field"]


def test_given_fields_replace_and_the_others_stay() -> None:
    config = StreamConfig(subject="a.>", partitions=4)

    changed = StreamSettings(subject="", retention=Retention()).on(config)

    assert changed == dataclasses.replace(config, subject="", retention=Retention())


def test_only_given_fields_can_differ() -> None:
    config = StreamConfig(partitions=4, segment_bytes=1 << 20)

    assert StreamSettings(partitions=4).differing(config) == {}
    assert StreamSettings(partitions=3, subject="x").differing(config) == {
        "partitions": (4, 3),
        "subject": ("", "x"),
    }


def test_labels_are_bounded() -> None:
    validate_labels({"team": "payments"})
    for wrong in ({"": "x"}, {"k": "v" * 512}, {str(number): "" for number in range(65)}):
        with pytest.raises(InvalidRequest, match="label"):
            validate_labels(wrong)


@given(st.binary(min_size=16, max_size=16))
def test_identifiers_survive_the_way_to_text_and_back(identifier: bytes) -> None:
    assert id_bytes(id_text(identifier)) == identifier


@pytest.mark.parametrize("text", ["", "abc", "g" * 32, "0" * 31])
def test_what_is_no_identifier_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="32 hexadecimal digits"):
        id_bytes(text)


def test_the_configuration_of_every_default_is_itself_valid() -> None:
    validate_config(StreamConfig())


def test_values_show_themselves_in_one_line() -> None:
    record = Record(
        5, b"k", None, (("h", b"1"), ("h", b"2")), "a.b", 1_700_000_000_000_001, 1, 2, "orders", 3
    )

    assert repr(record) == "<Record orders/3 offset=5 key=b'k' tombstone>"
    assert record.header("h") == b"1"
    assert record.timestamp.isoformat() == "2023-11-14T22:13:20.000001+00:00"
    assert repr(Receipt(0, 5, 7, 1, 2, True)) == "<Receipt partition=0 offset=5–7 epoch=1 duplicate>"
    assert Listener("internal", "::1", 9210).target == "[::1]:9210"
