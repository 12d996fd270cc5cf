"""Whether an object that is there says all that a manifest says. The API server adds defaults to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from tidelog_operator.model import Manifest


def matches(there: Manifest | None, wanted: Manifest) -> bool:
    """None: it is not there. More keys than `wanted` has are not looked at: its hash tells which went."""
    return there is not None and difference(there, wanted) is None


def difference(there: object, wanted: object, path: str = "") -> str | None:
    """Where they differ first, like ``spec.template``; None: nowhere."""
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            return path
        for key, value in wanted.items():
            below = f"{path}.{key}".lstrip(".")
            if key in there:
                found = difference(there[key], value, below)
            else:
                # What is empty need not be there.
                found = None if value in ({}, [], "") else below
            if found is not None:
                return found
        return None
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(there, Sequence) or len(there) != len(wanted):
            return path
        pairs = enumerate(zip(there, wanted, strict=True))
        return next(
            (found for at, pair in pairs if (found := difference(*pair, f"{path}[{at}]")) is not None), None
        )
    return None if there == wanted or _same_quantity(there, wanted) else path


def _same_quantity(there: object, wanted: object) -> bool:
    """Kubernetes writes quantities in a form of its own: 1000m is 1."""
    first, second = _quantity(there), _quantity(wanted)
    return first is not None and first == second


def _quantity(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return Decimal(parse_quantity(value))
    except ValueError:
        return None
