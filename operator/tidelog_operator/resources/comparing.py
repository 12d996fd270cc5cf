"""Whether an object that is there says all that a manifest says. The API server adds defaults to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from tidelog_operator.model import Manifest


def is_so(there: Manifest | None, wanted: Manifest) -> bool:
    """None: it is not there. More keys than `wanted` has are not looked at: its hash tells which went."""
    return there is not None and _says(there, wanted)


def _says(there: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(
            # What is empty need not be there.
            _says(there[key], value) if key in there else value in ({}, [], "")
            for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(there, Sequence)
            and len(there) == len(wanted)
            and all(_says(*pair) for pair in zip(there, wanted, strict=True))
        )
    return there == wanted or _same_quantity(there, wanted)


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
