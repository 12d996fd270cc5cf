"""R4: changes of the ISR that were proposed, and of which nobody knows yet whether they happened.

A proposal may take effect long after it was sent; a timeout decides nothing. It is
decided by its own refusal, or by a newer partition epoch in the image: from then on the
controller refuses all that named the old one. Every attempt is counted by itself, because
the refusal of one (*stale partition epoch*, say) may mean that an earlier one, whose
answer was lost, has taken effect.
"""

from __future__ import annotations

from collections.abc import Sequence


class _Attempt:
    __slots__ = ("joining", "leaving", "partition_epoch")

    def __init__(self, partition_epoch: int, joining: tuple[int, ...], leaving: tuple[int, ...]) -> None:
        self.partition_epoch = partition_epoch
        self.joining = joining
        self.leaving = leaving


class Proposals:
    """Those of one leader epoch."""

    __slots__ = ("_attempts", "_undecided")

    def __init__(self) -> None:
        self._attempts = 0
        self._undecided: dict[int, _Attempt] = {}

    def __repr__(self) -> str:
        return f"<Proposals undecided={len(self._undecided)} joining={self.joining} leaving={self.leaving}>"

    @property
    def undecided(self) -> bool:
        return bool(self._undecided)

    @property
    def joining(self) -> tuple[int, ...]:
        """Brokers that may be in the ISR by now."""
        if not self._undecided:
            return ()
        return tuple(dict.fromkeys(broker for one in self._undecided.values() for broker in one.joining))

    @property
    def leaving(self) -> tuple[int, ...]:
        """Members that may have been removed by now."""
        if not self._undecided:
            return ()
        return tuple(dict.fromkeys(broker for one in self._undecided.values() for broker in one.leaving))

    def sent(self, partition_epoch: int, isr: Sequence[int], proposed: Sequence[int]) -> int:
        """Takes note of a proposal in place of `isr`; its number."""
        self._attempts += 1
        joining = tuple(broker for broker in proposed if broker not in isr)
        leaving = tuple(broker for broker in isr if broker not in proposed)
        self._undecided[self._attempts] = _Attempt(partition_epoch, joining, leaving)
        return self._attempts

    def refused(self, attempt: int) -> bool:
        """The controller refused one; whether it was undecided."""
        return self._undecided.pop(attempt, None) is not None

    def image_at(self, partition_epoch: int) -> None:
        """The image has this partition epoch: what named an older one is decided."""
        self._undecided = {
            number: one for number, one in self._undecided.items() if one.partition_epoch >= partition_epoch
        }
