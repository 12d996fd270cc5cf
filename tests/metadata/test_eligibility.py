"""R6: whoever stands in ISR ∪ eligible has everything below the high watermark."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from metadata.replica_model import Broker, ReplicaModel
from metadata.samples import applied, created, identifier, quorum_cluster
from tidelog.model import StreamConfig
from tidelog_broker.core.metadata import eligibility, membership
from tidelog_broker.core.metadata.decisions import isr_changes
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Refusal, Refused, Result
from tidelog_broker.core.metadata.eligibility import forfeit, is_below_minimum, reconfigured, with_isr
from tidelog_broker.core.metadata.image import ClusterImage, LastKnown, PartitionImage, StreamImage

STEPS = 300


def run(seed: int, *, unclean: bool = False) -> None:
    model = ReplicaModel(random.Random(seed), unclean=unclean)
    for _ in range(STEPS):
        model.step()


def run_all(seeds: range) -> None:
    for seed in seeds:
        run(seed)


@pytest.mark.parametrize("seeds", [range(first, first + 30) for first in range(0, 240, 30)], ids=str)
def test_r6_whoever_may_be_elected_has_everything_that_was_committed(seeds: range) -> None:
    run_all(seeds)


def test_r6_holds_again_after_everything_was_lost_and_somebody_was_elected_unclean() -> None:
    for seed in range(60):
        run(seed, unclean=True)


def test_the_model_commits_and_has_eligible_members_often_enough_to_prove_something() -> None:
    models = [ReplicaModel(random.Random(seed)) for seed in range(30)]
    eligible = 0
    for model in models:
        for _ in range(STEPS):
            model.step()
            eligible += bool(model.partition.eligible)

    assert sum(len(model.committed) for model in models) > 50
    assert eligible > 1000


# --- The model would notice: each rule left out lets somebody lead who lacks a committed record.


def _eligible_although_the_isr_is_large_enough(patch: pytest.MonkeyPatch) -> None:
    def planted(stream: StreamImage, partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
        after = with_isr(stream, partition, isr)
        left = dict.fromkeys((*partition.eligible, *partition.isr))
        return replace(after, eligible=tuple(member for member in left if member not in isr))

    patch.setattr(eligibility, "with_isr", planted)


def _eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    def planted(stream: StreamImage, partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
        after = with_isr(stream, partition, isr)
        kept = tuple(member for member in partition.eligible if member not in isr)
        return replace(after, eligible=after.eligible or kept)

    patch.setattr(eligibility, "with_isr", planted)


def _eligible_after_the_minimum_was_lowered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eligibility, "reconfigured", lambda stream, partition: partition)


def _eligible_again_when_the_minimum_is_raised(patch: pytest.MonkeyPatch) -> None:
    def planted(stream: StreamImage, partition: PartitionImage) -> PartitionImage:
        if not is_below_minimum(stream, partition.isr):
            return reconfigured(stream, partition)
        out = tuple(member for member in partition.replicas if member not in partition.isr)
        return replace(partition, eligible=out)

    patch.setattr(eligibility, "reconfigured", planted)


def _eligible_with_another_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        eligibility,
        "forfeit",
        lambda partition, broker: replace(forfeit(partition, broker), eligible=partition.eligible),
    )


def _in_sync_with_another_disk(patch: pytest.MonkeyPatch) -> None:
    restarted = membership._restarted
    patch.setattr(
        membership,
        "_restarted",
        lambda stream, partition, broker, new_disk, found: restarted(stream, partition, broker, False, found),
    )


def _in_sync_although_suspect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eligibility, "suspect", lambda partition, known: partition)


def _acknowledgements_outlive_the_log_that_they_were_given_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eligibility, "lose", forfeit)


def _refusals(patch: pytest.MonkeyPatch, *, without: str) -> None:
    refusal = isr_changes._refusal

    def planted(image: ClusterImage, partition: PartitionImage, proposal: IsrProposal) -> Refused | None:
        found = refusal(image, partition, proposal)
        return None if found is not None and without in (found.refusal, found.reason[-13:]) else found

    patch.setattr(isr_changes, "_refusal", planted)


def _a_run_that_is_over_joins(patch: pytest.MonkeyPatch) -> None:
    _refusals(patch, without="started since")


def _a_proposal_wins_that_lost_against_another_change(patch: pytest.MonkeyPatch) -> None:
    _refusals(patch, without=Refusal.STALE)


def _a_deposed_leader_changes_the_isr(patch: pytest.MonkeyPatch) -> None:
    _refusals(patch, without=Refusal.FENCED)


def _a_leader_forgets_what_it_proposed(patch: pytest.MonkeyPatch) -> None:
    see = ReplicaModel._see

    def planted(self: ReplicaModel, broker: Broker, view: int) -> None:
        see(self, broker, view)
        broker.proposed = []

    patch.setattr(ReplicaModel, "_see", planted)


def _a_refusal_ends_a_proposal(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReplicaModel, leader: Broker, proposal: IsrProposal, result: Result) -> None:
        if isinstance(result, Refused) and not result.refusal.ask_again:
            leader.proposed = [one for one in leader.proposed if one != proposal]

    patch.setattr(ReplicaModel, "answered", planted)


PLANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], range]] = [
    (_eligible_although_the_isr_is_large_enough, range(100)),
    (_eligible_for_ever, range(200)),
    (_eligible_after_the_minimum_was_lowered, range(100)),
    (_eligible_again_when_the_minimum_is_raised, range(100)),
    (_eligible_with_another_disk, range(200)),
    (_in_sync_with_another_disk, range(300)),
    (_in_sync_although_suspect, range(200)),
    (_acknowledgements_outlive_the_log_that_they_were_given_for, range(200, 500)),
    (_a_run_that_is_over_joins, range(200, 600)),
    (_a_proposal_wins_that_lost_against_another_change, range(100)),
    (_a_deposed_leader_changes_the_isr, range(300)),
    (_a_leader_forgets_what_it_proposed, range(400)),
    # A second copy of what was accepted, a leader deposed between the two: rare, but found.
    (_a_refusal_ends_a_proposal, range(1900, 2300)),
]


@pytest.mark.parametrize(("plant", "seeds"), PLANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_r6_a_rule_left_out_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(ReplicaModel, "check_shape", lambda self: None)

    with pytest.raises(AssertionError, match="lacks of"):
        run_all(seeds)


# --- The rules one by one.


def partition_with(
    isr: tuple[int, ...], *, minimum: int = 2, eligible: tuple[int, ...] = (), leader: int | None = None
) -> tuple[StreamImage, PartitionImage]:
    image = applied(quorum_cluster(4), [created(1, replicas=(0, 1, 2))])
    stream = image.streams[identifier(1)]
    config = StreamConfig(replication_factor=3, min_insync_replicas=minimum)
    leader = isr[0] if isr and leader is None else leader
    return replace(stream, config=config), replace(
        stream.partitions[0], isr=isr, eligible=eligible, leader=leader
    )


def test_r6_who_leaves_an_isr_that_stays_large_enough_is_not_eligible() -> None:
    after = eligibility.leave(*partition_with((0, 1, 2)), brokers=(2,))

    assert (after.isr, after.eligible, after.leader) == ((0, 1), (), 0)


def test_r6_all_that_one_entry_takes_below_the_minimum_are_eligible() -> None:
    after = eligibility.leave(*partition_with((0, 1, 2)), brokers=(1, 2))

    assert (after.isr, after.eligible) == ((0,), (1, 2))


def test_r6_who_left_earlier_while_enough_remained_does_not_become_eligible_later() -> None:
    stream, partition = partition_with((0, 1, 2))
    after = eligibility.leave(stream, eligibility.leave(stream, partition, (2,)), (1,))

    assert (after.isr, after.eligible) == ((0,), (1,))


def test_r6_the_last_member_that_leaves_is_eligible_and_nobody_leads() -> None:
    after = eligibility.leave(*partition_with((0,), eligible=(1,)), brokers=(0,))

    assert (after.isr, after.eligible, after.leader) == ((), (1, 0), None)


def test_r6_eligibility_ends_with_the_join_that_brings_the_minimum_back() -> None:
    stream, partition = partition_with((0,), eligible=(1,))

    assert eligibility.with_isr(stream, partition, (0, 2)).eligible == ()


def test_r6_a_join_that_leaves_the_isr_below_its_minimum_keeps_the_others_eligible() -> None:
    stream, partition = partition_with((0,), eligible=(1, 2), minimum=3)

    assert eligibility.with_isr(stream, partition, (0, 2)).eligible == (1,)


def test_r6_a_lowered_minimum_ends_eligibility_and_raising_does_not_restore_it() -> None:
    stream, partition = partition_with((0,), eligible=(1,))
    low = replace(stream, config=StreamConfig(replication_factor=3, min_insync_replicas=1))

    assert eligibility.reconfigured(low, partition).eligible == ()
    assert eligibility.reconfigured(stream, eligibility.reconfigured(low, partition)).eligible == ()


def test_r6_a_suspect_replica_is_last_known_until_it_has_joined_again() -> None:
    stream, partition = partition_with((0, 1, 2))
    after = eligibility.suspect(partition, LastKnown(2, 1, 10))

    assert (after.isr, after.eligible, after.last_known) == ((0, 1), (), (LastKnown(2, 1, 10),))
    assert eligibility.with_isr(stream, after, (0, 1, 2)).last_known == ()


def test_r6_a_log_lost_in_the_middle_of_a_run_begins_an_epoch_of_the_same_leader() -> None:
    _, partition = partition_with((0, 1, 2))

    after = eligibility.lose(partition, 2)

    assert (after.leader, after.leader_epoch, after.isr) == (0, partition.leader_epoch + 1, (0, 1))


def test_r6_after_an_unclean_election_only_the_leader_counts_and_the_mark_stays() -> None:
    stream, partition = partition_with((), eligible=(1, 2))

    after = eligibility.elected(stream, partition, 0, unclean=True)
    later = eligibility.elected(stream, after, 0)

    assert (after.isr, after.eligible, after.unclean) == ((0,), (), True)
    assert (later.unclean, later.unclean_epoch) == (False, after.leader_epoch)
