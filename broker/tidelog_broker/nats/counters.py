"""What one connection to NATS has seen, for metrics.

One object, shared by ``connection`` and the modules it is made of, so that a reader of metrics
needs no knowledge of who counts what.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Everything since the start; all only grow."""

    messages_received: int = 0
    bytes_received: int = 0
    bytes_written: int = 0
    """Given to the operating system."""
    writes_refused: int = 0
    """Calls of ``write`` that met a full buffer."""
    connects: int = 0
    """Links that came up; all but the first are reconnects."""
    connects_failed: int = 0
    disconnects: int = 0
    server_errors: int = 0
    """-ERR lines."""
    handler_errors: int = 0
    """Exceptions from on_messages and from the state callbacks."""
    messages_unclaimed: int = 0
    """Messages for a subscription that had just ended."""
