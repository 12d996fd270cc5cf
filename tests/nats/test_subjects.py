"""Subjects: validity with a sentence for each fault, and what wildcards never record (N6)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog_broker.nats.errors import SubjectInvalid
from tidelog_broker.nats.subjects import (
    SUBJECT_BYTES_MAX,
    check_pattern,
    check_subject,
    has_wildcard,
    is_reserved,
    may_match_reserved,
)

tokens = st.sampled_from([b"a", b"b", b"ab", b"\xff\n", b"$", b"_INBOX", b"(a|b)", b"a+"])


@st.composite
def patterns_with_a_match(draw: st.DrawFn) -> tuple[bytes, bytes]:
    subject = draw(st.lists(tokens, min_size=1, max_size=5))
    pattern = [draw(st.sampled_from([token, b"*"])) for token in subject]
    if draw(st.booleans()):
        pattern[draw(st.integers(0, len(pattern) - 1)) :] = [b">"]
    return b".".join(pattern), b".".join(subject)


@pytest.mark.parametrize(
    "pattern", [b"a", b"a.b", b"*", b">", b"a.*.c", b"a.>", b"*.*.>", b"\xff\xfe", b"a-b_c/d"]
)
def test_a_valid_pattern_passes(pattern: bytes) -> None:
    check_pattern(pattern)


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


@given(patterns_with_a_match())
def test_what_needs_no_test_per_message_never_matches_a_reserved_subject(
    matched: tuple[bytes, bytes],
) -> None:
    pattern, subject = matched
    # Wildcards behind a reserved beginning are refused when a stream is made.
    assume(has_wildcard(pattern) and not is_reserved(pattern))

    assert may_match_reserved(pattern) or not is_reserved(subject)


def test_reserved_are_dollar_and_inbox() -> None:
    assert is_reserved(b"$SYS.ACCOUNT.x")
    assert is_reserved(b"$")
    assert is_reserved(b"_INBOX.abc")
    assert not is_reserved(b"_INBOX")
    assert not is_reserved(b"_INBOXES.a")
    assert not is_reserved(b"a.$b")
