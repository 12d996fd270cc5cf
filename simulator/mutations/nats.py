"""Bugs in the recorder: which broker answers a publisher, when, and what it records (N1–N3, N5, N6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.mutations.plant import mutation, patched
from tidelog.errors import NotLeader
from tidelog_broker.nats import recorder as recorder_module
from tidelog_broker.nats import recording as recording_module
from tidelog_broker.nats.answering import PublisherAnswers
from tidelog_broker.nats.jetstream import Acknowledger, Failure, publication
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.recording import Recording
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.writing.append_requests import Acks, RecordsAppend

QUEUE_BYTES: Final = 2_000
"""A size of the queue that fills up in a run."""


@mutation("N5", "nats")
def a_publisher_is_answered_before_the_commit() -> Iterator[None]:
    def hasty(*arguments: Any, **options: Any) -> Any:
        return RecordsAppend(*arguments, **{**options, "acks": Acks.LEADER})

    with patched((recorder_module, "RecordsAppend", hasty)):
        yield


@mutation("N5", "nats")
def a_former_leader_refuses_what_the_new_one_records() -> Iterator[None]:
    answer = PublisherAnswers.answer

    def talkative(self: PublisherAnswers, partition: Any, replies: Any, outcome: Any) -> None:
        if isinstance(outcome, NotLeader):
            body = Acknowledger(partition.name, partition.partition, partition.leader_epoch).refused(
                Failure.STOPPING
            )
            self.send(partition, [publication(reply, body) for reply in replies if reply])
        answer(self, partition, replies, outcome)

    with patched((Recorder, "partition_removed", lambda *_: None), (PublisherAnswers, "answer", talkative)):
        yield


@mutation("N5", "nats")
def a_leader_refuses_without_asking_whether_it_leads() -> Iterator[None]:
    """Seed 35 of the profile "late messages" showed this bug before it became a mutation: a leader lost its
    followers and was replaced, and its image was one second late. `tests/replicas/test_nats_leader.py`
    catches it, too."""

    def at_once(
        self: PublisherAnswers, led: Any, partition: Any, replies: Any, failure: Any, detail: str
    ) -> None:
        body = Acknowledger(partition.name, led.key[1], led.epoch).refused(failure, detail)
        if not self.silent:
            self.send(partition, [publication(reply, body) for reply in replies if reply])

    with patched((PublisherAnswers, "_refuse_all", at_once)):
        yield


@mutation("N5", "nats")
def a_former_leader_answers_as_if_it_had_recorded() -> Iterator[None]:
    answer = PublisherAnswers.answer

    def proud(self: PublisherAnswers, partition: Any, replies: Any, outcome: Any) -> None:
        if isinstance(outcome, NotLeader):
            acknowledger = Acknowledger(partition.name, partition.partition, partition.leader_epoch)
            end = partition.log.end_offset
            offsets = range(end, end + len(replies))
            self.send(partition, acknowledger.publications(replies, offsets))
        answer(self, partition, replies, outcome)

    with patched((Recorder, "partition_removed", lambda *_: None), (PublisherAnswers, "answer", proud)):
        yield


@mutation("N5", "late messages")
def a_new_leader_records_what_went_to_the_one_before() -> Iterator[None]:
    def at_once(self: Recorder, recording: Recording, partition: Any) -> None:
        recording.partitions[partition.partition] = partition

    with patched((Recorder, "_open_later", at_once)):
        yield


@mutation("N3", "nats")
def a_message_id_that_comes_again_is_recorded_again() -> Iterator[None]:
    with patched((AppendGuard, "find_message", lambda *_: None)):
        yield


@mutation("N3", "nats")
def followers_do_not_remember_message_ids() -> Iterator[None]:
    from tidelog_broker.storage.log import replicated as replicating

    with patched((replicating, "message_ids_of", lambda *_: [])):
        yield


@mutation("N1", "nats")
def a_message_is_dropped_by_a_full_queue_and_answered() -> Iterator[None]:
    append = Recorder._append

    def lossy(self: Recorder, partition: Any, group: Any) -> None:
        if self._inflight + group.records.bytes <= QUEUE_BYTES or not self._inflight:
            append(self, partition, group)
            return
        acknowledger = Acknowledger(partition.name, partition.partition, partition.leader_epoch)
        end = partition.high_watermark
        offsets = range(max(0, end - len(group.replies)), end)
        self._answers.send(partition, acknowledger.publications(group.replies[: len(offsets)], offsets))

    with patched((Recorder, "_append", lossy)):
        yield


@mutation("N2", "nats")
def the_sequence_of_an_answer_is_the_offset() -> Iterator[None]:
    publications = Acknowledger.publications

    def shifted(self: Acknowledger, replies: Any, offsets: Any) -> Any:
        return publications(self, replies, [max(0, offset - 1) for offset in offsets])

    with patched((Acknowledger, "publications", shifted)):
        yield


@mutation("N6", "nats")
def a_subject_leads_to_another_partition() -> Iterator[None]:
    with patched((recording_module, "fnv1a_32", lambda data: sum(data))):
        yield


@mutation("N6", "nats")
def wildcards_record_replies() -> Iterator[None]:
    with patched((recorder_module, "is_reserved", lambda subject: False)):
        yield


@mutation("N5", "nats")
def a_subscription_is_not_begun_again_on_the_next_link() -> Iterator[None]:
    from tidelog_broker.nats.subscription import Subscriptions

    greeted = Subscriptions.greeting

    def forgetful(self: Subscriptions) -> bytes:
        greeting = greeted(self)
        return greeting if not self._counters.connects else b""

    with patched((Subscriptions, "greeting", forgetful)):
        yield
