"""A history as lines of JSON, to keep it, look at it, and check it again.

Each line is one entry, with its kind as the first element. A file has the histories of several streams,
each after its `stream` line. Writes and reads are runs, so a file grows with the number of faults more than
with the number of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tidelog.history.operations import History, Outcome, Producer, Read, Write

VERSION: Final = 1


class TranscriptInvalid(ValueError):
    """A line is not part of a history; the message says which line, and why."""


def lines_of(histories: Mapping[str, History]) -> Iterator[str]:
    """The lines of the histories by stream name, without line ends."""
    yield json.dumps(["tidelog-history", VERSION])
    for name, history in sorted(histories.items()):
        yield json.dumps(["stream", name])
        for number, producer in sorted(history.producers.items()):
            yield json.dumps(["producer", number, *producer])
        for write in history.writes:
            yield json.dumps(["write", *write])
        for read in history.reads:
            yield json.dumps(["read", *read])
        for (reader, partition), indexes in sorted(history.rewinds.items()):
            yield json.dumps(["rewind", reader, partition, indexes])
        for partition, end in sorted(history.last_readers.items()):
            yield json.dumps(["last", partition, end])
        for partition, start in sorted(history.starts.items()):
            yield json.dumps(["start", partition, start])


def parse(lines: Iterable[str]) -> dict[str, History]:
    """The histories in these lines, by stream; raises `TranscriptInvalid`."""
    found: dict[str, History] = {}
    history: History | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            word, *rest = json.loads(line)
            if number == 1:
                if (word, rest) != ("tidelog-history", [VERSION]):
                    raise ValueError(f"it begins with {line.strip()[:80]!r}")
            elif word == "stream":
                (name,) = rest
                history = found[str(name)] = History()
            elif history is None:
                raise ValueError("no stream was named before it")
            else:
                _add(history, word, rest)
        except (ValueError, TypeError) as error:
            raise TranscriptInvalid(f"line {number} is no part of a history: {error}") from error
    if not number:
        raise TranscriptInvalid("the file is empty")
    return found


def _add(history: History, word: object, rest: list[Any]) -> None:
    match word:
        case "producer":
            number, name, repeats, ordered = rest
            history.producers[int(number)] = Producer(str(name), bool(repeats), bool(ordered))
        case "write":
            producer, partition, first, records, outcome, offset = rest
            known = None if offset is None else int(offset)
            write = Write(int(producer), int(partition), int(first), int(records), Outcome(outcome), known)
            history.writes.append(write)
        case "read":
            history.reads.append(Read(*(int(one) for one in rest)))
        case "rewind":
            reader, partition, indexes = rest
            history.rewinds[int(reader), int(partition)] = [int(index) for index in indexes]
        case "last":
            partition, end = rest
            history.last_readers[int(partition)] = int(end)
        case "start":
            partition, start = rest
            history.starts[int(partition)] = int(start)
        case _:
            raise ValueError(f"{word!r} is no word of it")
