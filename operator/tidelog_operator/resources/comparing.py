"""Compares an existing object with a manifest. The API server adds defaults, so the object may have more
fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from tidelog_operator.model import Manifest


def matches(there: Manifest | None, wanted: Manifest) -> bool:
    """Whether the object exists and has everything that `wanted` has. Additional fields are ignored: the hash
    in the manifest shows which fields were removed."""
    return there is not None and difference(there, wanted) is None


def difference(there: object, wanted: object, path: str = "") -> str | None:
    """Returns the path of the first difference, like ``spec.template``; None: there is none."""
    if isinstance(wanted, Mapping):
        if not isinstance(there, Mapping):
            return path
        for key, value in wanted.items():
            below = f"{path}.{key}".lstrip(".")
            if key in there:
                found = difference(there[key], value, below)
            else:
                # The API server may drop empty values.
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
    """Kubernetes normalises quantities: 1000m becomes 1."""
    first, second = _quantity(there), _quantity(wanted)
    return first is not None and first == second


def _quantity(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return Decimal(parse_quantity(value))
    except ValueError:
        return None
