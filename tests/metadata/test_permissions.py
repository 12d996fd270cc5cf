"""What the rules allow (A4 to A6), beside an obviously right twin."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.model import AclRule, Operation, Resource
from tidelog.model.access import INCLUDES
from tidelog_broker.core.metadata.permissions import Permissions, Principals, sorted_rules

STREAM, GROUP, CLUSTER = Resource.STREAM, Resource.GROUP, Resource.CLUSTER
DESCRIBE, PRODUCE, CONSUME = Operation.DESCRIBE, Operation.PRODUCE, Operation.CONSUME
ALTER, ADMIN, ALL = Operation.ALTER, Operation.ADMIN, Operation.ALL


def rule(
    principal: str, operation: Operation, name: str = "orders", *, prefix: bool = False, deny: bool = False
) -> AclRule:
    return AclRule(
        principal=principal, operation=operation, resource=STREAM, name=name, prefix=prefix, deny=deny
    )


def may(
    rules: list[AclRule],
    operation: Operation,
    name: str = "orders",
    principals: Principals = ("user:ann", "group:shop"),
) -> bool:
    return Permissions(rules).decide(principals, operation, STREAM, name).allowed


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not any(may([], operation) for operation in INCLUDES[STREAM])


@pytest.mark.parametrize("principal", ["user:ann", "group:shop", "*"])
def test_a_rule_for_the_principal_or_a_group_or_all_allows(principal: str) -> None:
    assert may([rule(principal, PRODUCE)], PRODUCE)
    assert not may([rule("user:bob", PRODUCE), rule("group:other", PRODUCE)], PRODUCE)


def test_a_rule_for_all_is_not_for_calls_without_credentials() -> None:
    assert not may([rule("*", PRODUCE)], PRODUCE, principals=("anonymous",))
    assert may([rule("anonymous", PRODUCE)], PRODUCE, principals=("anonymous",))


def test_a_rule_that_denies_counts_more_whatever_the_order() -> None:
    allow, deny = rule("user:ann", PRODUCE), rule("group:shop", PRODUCE, "or", prefix=True, deny=True)

    assert not may([allow, deny], PRODUCE)
    assert not may([deny, allow], PRODUCE)
    assert may([deny, rule("user:ann", PRODUCE, "zoo")], PRODUCE, "zoo")


def test_a_principal_that_may_not_describe_can_do_nothing() -> None:
    rules = [rule("user:ann", ALL), rule("user:ann", DESCRIBE, deny=True)]

    assert not any(may(rules, operation) for operation in INCLUDES[STREAM])


def test_a_denied_part_leaves_what_does_not_include_it() -> None:
    rules = [rule("user:ann", ALL), rule("user:ann", ALTER, deny=True)]

    assert {operation for operation in INCLUDES[STREAM] if may(rules, operation)} == {
        DESCRIBE,
        PRODUCE,
        CONSUME,
    }


def test_prefixes_and_names() -> None:
    assert may([rule("user:ann", PRODUCE, "ord", prefix=True)], PRODUCE)
    assert not may([rule("user:ann", PRODUCE, "ord")], PRODUCE)
    assert may([rule("user:ann", PRODUCE, "", prefix=True)], PRODUCE, "any")


def test_the_rule_that_decides_is_told() -> None:
    allow, deny = rule("user:ann", PRODUCE), rule("*", DESCRIBE, deny=True)

    assert Permissions([allow]).decide(("user:ann",), PRODUCE, STREAM, "orders").rule == allow
    assert Permissions([allow, deny]).decide(("user:ann",), PRODUCE, STREAM, "orders").rule == deny
    assert Permissions([]).decide(("user:ann",), PRODUCE, STREAM, "orders").rule is None


PRINCIPALS = ("user:ann", "user:bob", "group:shop", "*", "anonymous")
KINDS = [(resource, operation) for resource in Resource for operation in (*INCLUDES[resource], ALL)]


@st.composite
def some_rule(draw: st.DrawFn) -> AclRule:
    resource, operation = draw(st.sampled_from(KINDS))
    named = resource is not CLUSTER
    return AclRule(
        principal=draw(st.sampled_from(PRINCIPALS)),
        operation=operation,
        resource=resource,
        name=draw(st.sampled_from(["o", "orders", "pay"])) if named else "",
        prefix=named and draw(st.booleans()),
        deny=draw(st.booleans()),
    )


def twin(
    rules: list[AclRule], principals: Principals, operation: Operation, resource: Resource, name: str
) -> bool:
    """A4 and A5, word by word."""
    mine = [
        one
        for one in rules
        if one.resource is resource
        and (one.principal in principals or (one.principal == "*" and principals[0] != "anonymous"))
        and (name.startswith(one.name) if one.prefix else name == one.name)
    ]
    needed = {operation, *INCLUDES[resource][operation]}
    denied = any(one.deny and (one.operation is ALL or one.operation in needed) for one in mine)
    allowed = any(
        not one.deny
        and (
            one.operation is ALL
            or one.operation is operation
            or operation in INCLUDES[resource].get(one.operation, ())
        )
        for one in mine
    )
    return allowed and not denied


@given(st.lists(some_rule(), max_size=8))
def test_decisions_are_those_of_the_twin(rules: list[AclRule]) -> None:
    permissions = Permissions(rules)
    for principals, (resource, operation), name in product(
        [("user:ann", "group:shop"), ("user:bob",), ("anonymous",)],
        [kind for kind in KINDS if kind[1] is not ALL],
        ["o", "orders", "pay", "x"],
    ):
        given_name = "" if resource is CLUSTER else name
        decided = permissions.decide(principals, operation, resource, given_name)

        assert decided.allowed == twin(rules, principals, operation, resource, given_name)
        assert decided.rule is None or decided.rule in rules
        if decided.allowed:
            assert permissions.may_somewhere(principals, operation, resource)


@given(st.lists(some_rule(), max_size=8))
def test_equal_sets_of_rules_are_equal_values(rules: list[AclRule]) -> None:
    assert sorted_rules(rules) == sorted_rules([*reversed(rules), *rules])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (rule("ann", PRODUCE), "is not a principal; give user:NAME or"),
        (rule("user:", PRODUCE), "a name has 1 to"),
        (rule("user: ann", PRODUCE), "without spaces at its ends"),
        (rule("broker:1", PRODUCE), "is not a principal"),
        (rule("serviceaccount:shop", PRODUCE), "give serviceaccount:NAMESPACE/NAME"),
        (rule("user:ann", Operation.COMMIT), "a stream has no operation commit"),
        (rule("user:ann", PRODUCE, ""), "the rule names no stream"),
        (rule("user:ann", PRODUCE, "a b"), "is not the name of a stream"),
        (AclRule(principal="*", operation=ALTER, resource=CLUSTER, name="x"), "has no name"),
    ],
)
def test_wrong_rules_are_refused_with_what_would_be_right(wrong: AclRule, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        wrong.check()
