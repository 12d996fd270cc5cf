"""The configurations of the metadata log: who votes, and from which entry on.

Neighbour: `driver` keeps one beside the log, because a node that begins again needs them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_broker.model import Configuration


class ConfigurationHistory:
    """The configurations on disk, each with the index of its entry, in order."""

    def __init__(self, configurations: Iterable[tuple[int, Configuration]]) -> None:
        self._configurations = list(configurations)

    def __repr__(self) -> str:
        return f"<ConfigurationHistory entries={[index for index, _ in self._configurations]}>"

    def up_to(self, index: int) -> list[tuple[int, Configuration]]:
        """The configurations whose entry is at `index` or before."""
        return [one for one in self._configurations if one[0] <= index]

    def committed(self, index: int, configuration: Configuration) -> None:
        """The configuration at `index` is committed.

        A configuration at or behind `index` that the log had when it was opened may be another leader's.
        """
        before = [one for one in self._configurations if one[0] < index]
        self._configurations = [*before, (index, configuration)]

    def restored(self, index: int, configuration: Configuration) -> None:
        """A leader's snapshot replaced the log up to `index`."""
        self._configurations = [(index, configuration)]

    def compacted(self, index: int, configuration: Configuration) -> None:
        """A snapshot of this broker replaced the entries up to `index`."""
        later = [one for one in self._configurations if one[0] > index]
        self._configurations = [(index, configuration), *later]
