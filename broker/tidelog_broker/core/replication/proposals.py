"""R4: changes of the ISR that were proposed, and of which nobody knows yet whether they happened.

A proposal may take effect long after it was sent; neither a timeout nor a refusal decides
anything: what is refused as stale may be the second copy of a proposal, and the first one
what made it stale. It is decided by a newer partition epoch in the image: from then on the
controller refuses all that named the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Proposal(NamedTuple):
    partition_epoch: int
    joining: tuple[int, ...]
    leaving: tuple[int, ...]


class Proposals:
    """Those of one leader epoch. The same one, sent again, is one."""

    __slots__ = ("_undecided",)

    def __init__(self) -> None:
        self._undecided: dict[_Proposal, None] = {}

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
        return tuple(dict.fromkeys(broker for one in self._undecided for broker in one.joining))

    @property
    def leaving(self) -> tuple[int, ...]:
        """Members that may have been removed by now."""
        if not self._undecided:
            return ()
        return tuple(dict.fromkeys(broker for one in self._undecided for broker in one.leaving))

    def sent(self, partition_epoch: int, isr: Sequence[int], proposed: Sequence[int]) -> None:
        """Takes note of a proposal in place of `isr`."""
        joining = tuple(broker for broker in proposed if broker not in isr)
        leaving = tuple(broker for broker in isr if broker not in proposed)
        self._undecided[_Proposal(partition_epoch, joining, leaving)] = None

    def image_at(self, partition_epoch: int) -> None:
        """The image has this partition epoch: what named an older one is decided."""
        self._undecided = {one: None for one in self._undecided if one.partition_epoch >= partition_epoch}
