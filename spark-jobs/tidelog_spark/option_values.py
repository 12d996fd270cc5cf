"""Reads the values of options: numbers, booleans, times, names, JSON. Pure.

`Given` has the options that a user gave, with names compared without case as in Spark. Each method reads one
option and raises `InvalidRequest` with one sentence that names the option, its value, and what is right.
`options` uses it for reads, `sink_options` for writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidelog.errors import InvalidRequest

SHOWN_CHARACTERS_MAX: Final = 200
"""An error shows at most this many characters of a wrong value."""

NUMBER_MAX: Final = (1 << 62) - 1
"""The largest number of an option. The sum of two such numbers still fits in 64 bits."""

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)")


class Given:
    """The options of one read or write, each with a known name."""

    def __init__(
        self, given: Mapping[str, str], names: Sequence[str], refusal: Callable[[str], str | None]
    ) -> None:
        """`refusal`: the sentence for a name that is known and never taken; None: the name is not known.

        Raises `InvalidRequest` for a name that is not in `names`.
        """
        known = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in known:
                sentence = refusal(name)
                raise InvalidRequest(
                    sentence or f"option {name!r} is not known; the options are {', '.join(names)}"
                )
            self._values[known[name.lower()]] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The value without spaces around it; None: not given."""
        value = self._values.get(name)
        return None if value is None else value.strip()

    def exact(self, name: str) -> str | None:
        """The value as it was given; None: not given."""
        return self._values.get(name)

    def names(self, name: str) -> tuple[str, ...]:
        """The names in a list with commas, each once."""
        parts = (part.strip() for part in self._values.get(name, "").split(","))
        return tuple(dict.fromkeys(part for part in parts if part))

    def number(
        self, name: str, *, at_least: int = 1, at_most: int = NUMBER_MAX, right: str = ""
    ) -> int | None:
        """A whole number; None: not given. `right` completes "it must be …" where bounds say too little."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not at_least <= int(text[:20]) <= at_most:
            raise self.wrong(name, right or f"a whole number from {at_least} to {at_most}")
        return int(text)

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise self.wrong(name, "'true' or 'false'")
        return text.lower() == "true"

    def choice(self, name: str, choices: Sequence[str], *, default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in choices:
            raise self.wrong(name, " or ".join(repr(choice) for choice in choices))
        return text.lower()

    def seconds(self, name: str) -> float | None:
        """A duration as Spark writes it: '90s', '15m', '2h'; without a unit it is milliseconds."""
        text = self.text(name)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.lower())
        if found is None or (found[2] or "ms") not in _UNITS_S:
            raise self.wrong(name, "a duration such as '90s', '15m' or '2h'")
        return int(found[1]) * _UNITS_S[found[2] or "ms"]

    def json(self, name: str, right: str) -> Any:
        """A JSON value without repeated names; None: not given. `right` completes "it must be …"."""
        text = self.text(name)
        if text is None:
            return None
        wrong = self.wrong(name, right)

        def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                raise wrong
            return found

        try:
            return json.loads(text, object_pairs_hook=build)
        except (ValueError, RecursionError):
            raise wrong from None

    def wrong(self, name: str, right: str) -> InvalidRequest:
        """The error for a value that is not allowed."""
        shown = self._values.get(name, "")[:SHOWN_CHARACTERS_MAX]
        return InvalidRequest(f"{name} is {shown!r}; it must be {right}")
