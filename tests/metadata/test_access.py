"""Changes of rules and tokens: what they become in the image, and what is refused."""

from __future__ import annotations

import hashlib

import pytest

from metadata.samples import CLUSTER, applied, solo_cluster
from tidelog.errors import InvalidRequest, ResourceExhausted, Unavailable
from tidelog.model import AclRule, Operation, Quota, Resource
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, AddToken, FormatCluster
from tidelog_broker.core.metadata.decisions import access as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image

HASH = hashlib.sha256(b"one").digest()
PRODUCE = AclRule(principal="user:ann", operation=Operation.PRODUCE, resource=Resource.STREAM, name="orders")
CONSUME = AclRule(
    principal="user:ann", operation=Operation.CONSUME, resource=Resource.STREAM, name="", prefix=True
)


def image() -> ClusterImage:
    return applied(ClusterImage(), [FormatCluster(CLUSTER, FEATURE_LEVEL)])


def with_rules(*rules: AclRule) -> ClusterImage:
    command = decide.change_acl(image(), rules, ())
    assert command is not None
    return applied(image(), [command])


def token(at: ClusterImage, **given: object) -> AddToken | None:
    facts = {"principal": "user:ann", "now_us": 10, "expires_us": 0, "note": "", **given}
    return decide.add_token(at, HASH, **facts)  # type: ignore[arg-type]


def test_rules_are_added_and_removed_in_one_step() -> None:
    command = decide.change_acl(with_rules(PRODUCE), [CONSUME], [PRODUCE])
    assert command is not None

    assert applied(with_rules(PRODUCE), [command]).acl == (CONSUME,)


def test_what_is_so_already_is_no_command() -> None:
    assert decide.change_acl(with_rules(PRODUCE), [PRODUCE], [CONSUME]) is None


def test_a_rule_cannot_be_added_and_removed_at_once() -> None:
    with pytest.raises(InvalidRequest, match="adds and removes the same rule: allow user:ann produce"):
        decide.change_acl(image(), [PRODUCE], [PRODUCE])


def test_rules_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "RULES_MAX", 1)

    with pytest.raises(ResourceExhausted, match="would have 2 rules, and 1 are allowed"):
        decide.change_acl(with_rules(PRODUCE), [CONSUME], ())
    assert decide.change_acl(with_rules(PRODUCE), [CONSUME], [PRODUCE]) is not None


def test_a_token_is_added_once_and_removed_by_its_id() -> None:
    command = token(image(), note="laptop", expires_us=99)
    assert command is not None
    after = applied(image(), [command])
    found = after.tokens[HASH]

    assert (found.id, found.principal, found.note, found.expires_us) == (
        HASH[:8].hex(),
        "user:ann",
        "laptop",
        99,
    )
    assert token(after, note="laptop", expires_us=99) is None
    assert not applied(after, [decide.remove_token(after, found.id)]).tokens


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"principal": "serviceaccount:a/b"}, "give user:NAME"),
        ({"expires_us": 10}, "would expire in the past"),
        ({"note": "two\nlines"}, "printable text"),
    ],
)
def test_wrong_tokens_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        token(image(), **given)


def test_a_hash_of_another_token_is_not_taken_over() -> None:
    after = applied(image(), [AddToken(HASH, "user:ann", 10)])

    with pytest.raises(InvalidRequest, match="a token with this hash exists already"):
        token(after, principal="user:bob")


def test_an_unknown_token_cannot_be_removed() -> None:
    with pytest.raises(InvalidRequest, match="there is no token with id 'abc'"):
        decide.remove_token(image(), "abc")


def test_a_cluster_with_an_older_broker_waits() -> None:
    old = applied(ClusterImage(), [FormatCluster(CLUSTER, 3)])

    with pytest.raises(Unavailable, match="update all brokers first"):
        decide.change_acl(old, [PRODUCE], ())
    with pytest.raises(Unavailable, match="update all brokers first"):
        token(old)


def test_a_quota_replaces_the_one_before_and_is_removed() -> None:
    first, second = (Quota(principal="user:ann", calls_max=number) for number in (1, 2))
    command = decide.set_quota(image(), first)
    assert command is not None
    after = applied(image(), [command])

    assert decide.set_quota(after, first) is None
    replaced = decide.set_quota(after, second)
    assert replaced is not None
    assert applied(after, [replaced]).quotas == {"user:ann": second}
    assert decode_image(encode_image(after)) == after
    assert not applied(after, [decide.remove_quota(after, "user:ann")]).quotas
    with pytest.raises(InvalidRequest, match="has no quota"):
        decide.remove_quota(image(), "user:ann")


def test_rules_and_tokens_survive_a_snapshot() -> None:
    full = applied(with_rules(PRODUCE, CONSUME), [AddToken(HASH, "user:ann", 10, 20, "laptop")])

    assert decode_image(encode_image(full)) == full
    assert decode_image(encode_image(solo_cluster())).acl == ()
