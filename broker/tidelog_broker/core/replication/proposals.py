"""R4: proposed changes of the ISR that are undecided: the leader does not know whether they happened.

A proposal may take effect long after it was sent. Neither a timeout nor a refusal decides
it: the refused proposal may be a second copy, stale because the first copy took effect. A newer
partition epoch in the image decides it: from then on the controller refuses all proposals that name the
old epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Proposal(NamedTuple):
    partition_epoch: int
    joining: tuple[int, ...]
    leaving: tuple[int, ...]


class Proposals:
    """The undecided proposals of one leader epoch. The same proposal, sent again, counts once."""

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
        """Brokers that may be in the ISR already."""
        if not self._undecided:
            return ()
        return tuple(dict.fromkeys(broker for one in self._undecided for broker in one.joining))

    @property
    def leaving(self) -> tuple[int, ...]:
        """Members that may be removed already."""
        if not self._undecided:
            return ()
        return tuple(dict.fromkeys(broker for one in self._undecided for broker in one.leaving))

    def sent(self, partition_epoch: int, isr: Sequence[int], proposed: Sequence[int]) -> None:
        """Records a proposal to replace `isr`."""
        joining = tuple(broker for broker in proposed if broker not in isr)
        leaving = tuple(broker for broker in isr if broker not in proposed)
        self._undecided[_Proposal(partition_epoch, joining, leaving)] = None

    def image_at(self, partition_epoch: int) -> None:
        """The image has this partition epoch: proposals that name an older epoch are decided."""
        self._undecided = {one: None for one in self._undecided if one.partition_epoch >= partition_epoch}
