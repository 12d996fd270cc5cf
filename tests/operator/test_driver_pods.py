"""What the pod of a driver that ended says."""

from __future__ import annotations

import pytest

from tidelog_operator.kubernetes.pods import OUT_OF_MEMORY_WORDS, read_driver


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("OOMKilled", "INFO Executor: Running task 0.0", OUT_OF_MEMORY_WORDS),
        ("Error", '{"rows": 3, "message": "No broker answers."}', "No broker answers."),
        ("Error", "the last line of the log", "the last line of the log"),
        ("ContainerCannotRun", "", "ContainerCannotRun"),
    ],
)
def test_the_last_words_of_a_driver_say_why_it_ended(reason: str, message: str, words: str) -> None:
    state = {"terminated": {"exitCode": 137, "reason": reason, "message": message}}
    pod = {
        "metadata": {"name": "orders-x", "uid": "u", "creationTimestamp": "2026-01-10T11:00:00Z"},
        "status": {"containerStatuses": [{"name": "driver", "state": state}]},
    }

    found = read_driver(pod)

    assert (found.exit_code, found.last_words.message) == (137, words)
