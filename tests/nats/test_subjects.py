"""Subjects: validity with a sentence for each fault, matching and overlap against slow twins, N6."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.nats.errors import SubjectInvalid
from tidelog_broker.nats.subjects import (
    SUBJECT_BYTES_MAX,
    check_pattern,
    check_recordable,
    check_subject,
    is_reserved,
    matcher,
    may_match_reserved,
    overlap,
)

tokens = st.sampled_from([b"a", b"b", b"ab", b"\xff\n", b"$", b"_INBOX", b"(a|b)", b"a+"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(b".".join)


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    parts = draw(st.lists(tokens | st.just(b"*"), max_size=4))
    if not parts or draw(st.booleans()):
        parts.append(draw(st.sampled_from([b">", b"*", b"a"])))
    return b".".join(parts)


def slow_match(pattern: list[bytes], subject: list[bytes]) -> bool:
    if not pattern or not subject:
        return not pattern and not subject
    if pattern[0] == b">":
        return True
    return pattern[0] in (b"*", subject[0]) and slow_match(pattern[1:], subject[1:])


@given(patterns(), subjects)
def test_matching_agrees_with_the_slow_twin(pattern: bytes, subject: bytes) -> None:
    assert matcher(pattern)(subject) == slow_match(pattern.split(b"."), subject.split(b"."))


small_patterns = [
    b".".join(parts)
    for length in (1, 2, 3)
    for parts in itertools.product([b"a", b"b", b"*", b">"], repeat=length)
    if b">" not in parts[:-1]
]
small_subjects = [
    b".".join(parts) for n in (1, 2, 3, 4) for parts in itertools.product([b"a", b"b", b"c"], repeat=n)
]


def test_overlap_means_that_some_subject_matches_both() -> None:
    matched = {
        pattern: {subject for subject in small_subjects if matcher(pattern)(subject)}
        for pattern in small_patterns
    }
    for first, second in itertools.product(small_patterns, repeat=2):
        assert overlap(first, second) == bool(matched[first] & matched[second]), (first, second)


@pytest.mark.parametrize(
    "pattern", [b"a", b"a.b", b"*", b">", b"a.*.c", b"a.>", b"*.*.>", b"\xff\xfe", b"a-b_c/d"]
)
def test_a_valid_pattern_passes(pattern: bytes) -> None:
    check_pattern(pattern)
    check_recordable(pattern)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (b"", "is empty"),
        (b"a b", "contains a space"),
        (b"a\tb", "control character"),
        (b"a\r\nPUB x", "contains a space"),
        (b"a\n", "line break"),
        (b"a\x00", "control character"),
        (b".a", "begins with a dot"),
        (b"a.", "ends with a dot"),
        (b"a..b", "two dots in a row"),
        (b"orders*", "wildcard inside the word 'orders*'"),
        (b"a.b>", "wildcard inside the word 'b>'"),
        (b"a.**", "wildcard inside the word '**'"),
        (b"a.>.b", "'>' can only be the last word"),
        (b"a" * (SUBJECT_BYTES_MAX + 1), f"the limit is {SUBJECT_BYTES_MAX}"),
        (b"\xff .", "contains a space"),
    ],
)
def test_an_invalid_pattern_is_refused_with_a_sentence(pattern: bytes, says: str) -> None:
    with pytest.raises(SubjectInvalid) as caught:
        check_pattern(pattern)
    assert says in str(caught.value)
    assert caught.value.subject == pattern


def test_a_subject_to_publish_to_has_no_wildcards() -> None:
    check_subject(b"a.b")
    for wild in (b"a.*", b">", b"a.>"):
        with pytest.raises(SubjectInvalid, match="has wildcards"):
            check_subject(wild)


@pytest.mark.parametrize("pattern", [b"$JS.>", b"$SYS.*", b"_INBOX.>", b"_INBOX.*.a", b"$*"])
def test_a_pattern_that_could_only_record_reserved_subjects_is_refused(pattern: bytes) -> None:
    with pytest.raises(SubjectInvalid):
        check_recordable(pattern)


@pytest.mark.parametrize("subject", [b"$KV.bucket.key", b"_INBOX.x", b"_INBOXES.>", b"a.$.>", b"_INBOX"])
def test_reserved_subjects_can_be_recorded_by_name(subject: bytes) -> None:
    check_recordable(subject)


@given(patterns(), subjects)
def test_what_needs_no_test_per_message_never_matches_a_reserved_subject(
    pattern: bytes, subject: bytes
) -> None:
    try:
        check_recordable(pattern)
    except SubjectInvalid:
        return
    wildcards = b"*" in pattern or b">" in pattern
    if wildcards and not may_match_reserved(pattern) and matcher(pattern)(subject):
        assert not is_reserved(subject)


def test_reserved_are_dollar_and_inbox() -> None:
    assert is_reserved(b"$SYS.ACCOUNT.x")
    assert is_reserved(b"$")
    assert is_reserved(b"_INBOX.abc")
    assert not is_reserved(b"_INBOX")
    assert not is_reserved(b"_INBOXES.a")
    assert not is_reserved(b"a.$b")
