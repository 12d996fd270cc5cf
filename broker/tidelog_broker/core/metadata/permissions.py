"""Decides whether a principal may do something: by the rules in the image, deny by default (A4 to A6).

Pure; `api.access` asks for each call and remembers the answers. Neighbour: `decisions.access` changes the
rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.model.access import ANONYMOUS, EVERY_PRINCIPAL, INCLUDES, AclRule, Operation, Resource

Principals = tuple[str, ...]
"""A principal and its groups, the principal first."""


NOTHING: Final[frozenset[Operation]] = frozenset()


class Decision(NamedTuple):
    """The answer, and the rule that decides it."""

    allowed: bool
    rule: AclRule | None
    """None: no rule allows it."""


class Permissions:
    """The rules of one image, by principal."""

    def __init__(self, rules: Iterable[AclRule]) -> None:
        self._by_principal: dict[str, list[AclRule]] = {}
        for rule in rules:
            self._by_principal.setdefault(rule.principal, []).append(rule)

    def __repr__(self) -> str:
        return f"<Permissions of {len(self._by_principal)} principals>"

    def names(self, principal: str) -> bool:
        """Whether a rule is for it by its name."""
        return principal in self._by_principal

    def decide(
        self, principals: Principals, operation: Operation, resource: Resource, name: str = ""
    ) -> Decision:
        """Whether these may do `operation`; `name`: of the stream or group."""
        allowing: AclRule | None = None
        for rule in self._rules_of(principals):
            if rule.resource is not resource or not _holds_for(rule, name):
                continue
            if rule.deny:
                if _denies(rule, operation):
                    return Decision(False, rule)
            elif allowing is None and _allows(rule, operation):
                allowing = rule
        return Decision(allowing is not None, allowing)

    def may_somewhere(self, principals: Principals, operation: Operation, resource: Resource) -> bool:
        """Whether a rule allows `operation` on any resource of the kind; other rules may deny it."""
        return any(
            rule.resource is resource and not rule.deny and _allows(rule, operation)
            for rule in self._rules_of(principals)
        )

    def _rules_of(self, principals: Principals) -> Iterable[AclRule]:
        for principal in principals:
            yield from self._by_principal.get(principal, ())
        if principals[0] != ANONYMOUS:
            yield from self._by_principal.get(EVERY_PRINCIPAL, ())


def _holds_for(rule: AclRule, name: str) -> bool:
    return name.startswith(rule.name) if rule.prefix else name == rule.name


def _allows(rule: AclRule, operation: Operation) -> bool:
    return rule.operation in (operation, Operation.ALL) or operation in _included(rule)


def _denies(rule: AclRule, operation: Operation) -> bool:
    """An operation is denied with each that it includes (A5)."""
    return rule.operation in (operation, Operation.ALL) or (
        rule.operation in INCLUDES[rule.resource].get(operation, NOTHING)
    )


def _included(rule: AclRule) -> frozenset[Operation]:
    return INCLUDES[rule.resource].get(rule.operation, NOTHING)


def sorted_rules(rules: Iterable[AclRule]) -> tuple[AclRule, ...]:
    """Each rule once, in the order of lists: equal sets of rules are equal values."""
    return tuple(sorted(dict.fromkeys(rules), key=lambda rule: rule.order))
