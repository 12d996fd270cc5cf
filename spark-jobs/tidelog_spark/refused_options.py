"""Options of Spark's Kafka connector that Tidelog does not take, and the sentence that says what to use.

Pure. `options` has the options that are taken; docs/spark.md compares both connectors option by option.
"""

from __future__ import annotations

from typing import Final

NO_GROUPS: Final = (
    "Tidelog has no consumer groups yet: a query keeps its position in its checkpoint and shares its streams "
    "with no other reader; remove the option"
)

_SENTENCES: Final = {
    "kafka.bootstrap.servers": "give tidelog.bootstrap.servers, for example localhost:9210",
    "kafka.group.id": NO_GROUPS,
    "groupidprefix": NO_GROUPS,
    "kafkaconsumer.polltimeoutms": "the name of this option is fetchTimeoutMs",
    "cursorid": (
        "Tidelog has no cursors yet, so a query cannot publish its position; its progress "
        "(StreamingQueryProgress) has the offsets, and docs/spark.md says how to get the lag from it"
    ),
}

_KAFKA_CLIENT: Final = "it configures a Kafka client, and Tidelog has a client of its own; remove the option"


def refusal(name: str) -> str | None:
    """The sentence for an option that is refused; None: the option is not one of them."""
    lowered = name.lower()
    sentence = _SENTENCES.get(lowered)
    if sentence is None and lowered.startswith(("kafka.", "kafkaconsumer.")):
        sentence = _KAFKA_CLIENT
    return None if sentence is None else f"option {name!r} is not taken: {sentence}"
