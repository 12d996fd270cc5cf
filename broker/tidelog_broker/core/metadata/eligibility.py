"""R6: who is sure to hold everything committed: the ISR and, while it is too small, the eligible.

Every change of an ISR goes through these functions, which `partition_change` and `apply`
call; `elections` reads what they keep. They keep one promise:

    Whoever stands in ISR ∪ eligible has everything below the high watermark.

The high watermark is not here: some leader moves it (R3), perhaps one that was deposed, and
it sees an image that is older than ours. What that leader counts (its *maximal ISR*) and
whether it may count at all come from that old image. Take a broker b in our ISR ∪ eligible,
and a leader that sees the image of an earlier entry v. Why has b what it commits?

- *b has been in the ISR since before v.* The leader counts b.
- *b joined after v by this leader's own proposal.* The leader has counted b since it proposed
  that, and goes on until its image shows a later partition epoch. Nothing else ends it: a
  timeout tells nothing, and a refusal may be of a second copy of a proposal that was
  accepted (`isr_changes`).
- *b joined or was elected under a later leader.* The later leader came from ISR ∪ eligible, so
  by this same argument it has what the old one can commit: the old one needs its
  acknowledgements, on an epoch in which it gave none after its own began (R2). b joins only
  with everything up to where that epoch began (R4).
- *b was removed and is eligible.* Every image from the removal on shows an ISR below its
  minimum; a leader that sees one of those commits nothing (R3). One that sees an older image
  counts b. Both halves are needed:

  - A member becomes eligible only if the ISR *after* the entry is below the minimum *of that
    entry*. Else the leader goes on without it at once.
  - Eligibility ends in the very entry that brings the ISR to its minimum, or the minimum down
    to the ISR. One entry later would be too late: a leader may commit between the two.
  - It does not come back when the minimum is raised again: what was committed in between is
    not there.
  - Of several members that one entry removes all become eligible: no leader ever saw the ISR
    that has some of them and not the others.

ISR and minimum must therefore be taken from one and the same image, by leaders too: an
accepted proposal counts for nothing before the image shows it.

What b may no longer be trusted to hold ends it: a new disk, a log that is lost or suspect
(`forfeit`, `suspect`). Acknowledgements that were given for a lost log must not bring it
back into the ISR. A new disk, and what is found at a start, come with a new incarnation,
which proposals name; for a log that is lost in the middle of a run the leader begins a new
epoch, on which no acknowledgement is older than the loss (`lose`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from tidelog_broker.core.metadata.image import LastKnown, PartitionImage, StreamImage


def is_below_minimum(stream: StreamImage, isr: Collection[int]) -> bool:
    return len(isr) < stream.config.min_insync_effective


def with_isr(stream: StreamImage, partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    """Members leave and join in one step; whoever leads and leaves leads no more."""
    eligible: tuple[int, ...] = ()
    if is_below_minimum(stream, isr):
        clean = dict.fromkeys((*partition.eligible, *partition.isr))
        eligible = tuple(broker for broker in clean if broker not in isr)
    last_known = partition.last_known
    if last_known:
        # Whoever has joined is complete again; what it said before is no longer what it holds.
        last_known = tuple(known for known in last_known if known.broker not in isr)
    leader = partition.leader if partition.leader in isr else None
    return replace(partition, isr=isr, eligible=eligible, last_known=last_known, leader=leader)


def leave(stream: StreamImage, partition: PartitionImage, brokers: Collection[int]) -> PartitionImage:
    """`brokers` leave the ISR with their logs whole: eligible, if it is then below its minimum."""
    isr = tuple(member for member in partition.isr if member not in brokers)
    return partition if len(isr) == len(partition.isr) else with_isr(stream, partition, isr)


def forfeit(partition: PartitionImage, broker: int) -> PartitionImage:
    """`broker` does not have what it acknowledged: out of ISR, eligible and last known.

    Nobody else becomes eligible by it, and nobody ceases to be: the ISR got smaller.
    """
    if broker not in (*partition.isr, *partition.eligible) and all(
        known.broker != broker for known in partition.last_known
    ):
        return partition
    return replace(
        partition,
        isr=_without(partition.isr, broker),
        eligible=_without(partition.eligible, broker),
        last_known=tuple(known for known in partition.last_known if known.broker != broker),
        leader=None if partition.leader == broker else partition.leader,
    )


def suspect(partition: PartitionImage, known: LastKnown) -> PartitionImage:
    """A replica that may lack what it acknowledged says what it has."""
    after = forfeit(partition, known.broker)
    last_known = sorted((*after.last_known, known), key=lambda one: one.broker)
    return replace(after, last_known=tuple(last_known))


def lose(partition: PartitionImage, broker: int) -> PartitionImage:
    """A running broker set its log aside: out, and acknowledgements from before count for nothing."""
    after = forfeit(partition, broker)
    if after.leader is not None:
        after = replace(after, leader_epoch=after.leader_epoch + 1)
    return after


def elected(
    stream: StreamImage,
    partition: PartitionImage,
    leader: int,
    *,
    epoch_min: int = 1,
    unclean: bool = False,
) -> PartitionImage:
    """`leader` begins an epoch that is newer than any before it, at least `epoch_min`.

    A clean leader keeps the ISR and joins it. What an unclean one holds is the truth from
    now on: nobody else is known to hold that.
    """
    if unclean:
        after = replace(partition, isr=(leader,), eligible=())
    elif leader in partition.isr:
        after = partition
    else:
        after = with_isr(stream, partition, (*partition.isr, leader))
    epoch = max(epoch_min, partition.leader_epoch + 1)
    return replace(
        after,
        leader=leader,
        leader_epoch=epoch,
        unclean_epoch=epoch if unclean else partition.unclean_epoch,
        last_known=(),
    )


def reconfigured(stream: StreamImage, partition: PartitionImage) -> PartitionImage:
    """After the stream's minimum changed: lowered to the ISR, it ends eligibility; raised, it brings none."""
    if partition.eligible and not is_below_minimum(stream, partition.isr):
        return replace(partition, eligible=())
    return partition


def _without(brokers: tuple[int, ...], broker: int) -> tuple[int, ...]:
    return tuple(other for other in brokers if other != broker)
