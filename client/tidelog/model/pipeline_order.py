"""The order of batches that a client sends to one partition without waiting for answers.

A broker answers the batches of a Produce call in their order. Once it has refused one, it refuses those
behind it too (``PRECEDING_FAILED`` in log.proto), until the client begins again with ``reset``. So a
later batch never overtakes a refused one. The brokers and `tidelog.testing` share this rule.
"""

from __future__ import annotations

from tidelog.errors import PrecedingFailed


class PipelineOrder:
    """Whether a batch of one client for one partition was refused, and the ones behind it must wait."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        self.failed = False
        """A batch was refused; the next one that may pass carries ``reset``."""

    def __repr__(self) -> str:
        return f"<PipelineOrder {'failed' if self.failed else 'kept'}>"

    def check(self, *, reset: bool) -> None:
        """Lets a batch pass, or raises `PrecedingFailed` (retriable, definite); `reset` ends the failure."""
        if not self.failed:
            return
        if not reset:
            raise PrecedingFailed(
                "an earlier batch for this partition failed on the same call; send the batches again "
                "from that one, the first with reset"
            )
        self.failed = False
