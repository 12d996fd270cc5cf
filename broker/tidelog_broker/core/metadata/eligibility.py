"""R6: which replicas hold everything committed: the ISR and, while it is too small, the eligible replicas.

Every change of an ISR goes through these functions, which `partition_change` and `apply`
call; `decisions.elections` reads the result. They keep one promise:

    Every replica in ISR ∪ eligible has everything below the high watermark.

The high watermark is not here: a leader moves it (R3), perhaps a deposed one, whose
image is older than this one. Which followers that leader counts (its *maximal ISR*), and
whether it may commit at all, come from that old image. Take a broker b in ISR ∪ eligible of this image,
and a leader that sees the image of an earlier entry v. Why does b have what the leader commits?

- *b has been in the ISR since before v.* The leader counts b.
- *b joined after v by this leader's own proposal.* The leader has counted b since it made the
  proposal, and continues until its image shows a later partition epoch. Nothing else ends it: a
  timeout proves nothing, and a refusal may be for a second copy of a proposal that was
  accepted (`decisions.isr_changes`).
- *b joined or was elected under a later leader.* The later leader came from ISR ∪ eligible, so
  by the same argument it has what the old leader can commit: the old leader needs its
  acknowledgements, in an epoch in which the later leader gave none after its own epoch began (R2). b joins
  only with everything up to the start of that epoch (R4).
- *b was removed and is eligible.* Every image from the removal on shows an ISR below its
  minimum; a leader that sees one of those images commits nothing (R3). A leader that sees an older image
  counts b. Both halves are needed:

  - A member becomes eligible only if the ISR *after* the entry is below the minimum *of that
    entry*. Otherwise the leader commits without it at once.
  - Eligibility ends in the same entry that brings the ISR to its minimum, or the minimum down
    to the ISR. One entry later would be too late: a leader may commit between the two.
  - Eligibility does not return when the minimum is raised again: the replica lacks what was committed
    meanwhile.
  - If one entry removes several members, all become eligible: no leader ever saw an ISR
    that has some of them and not the others.

ISR and minimum must therefore be taken from one and the same image, by leaders too: an
accepted proposal counts for nothing before the image shows it.

Eligibility ends when b may not hold its records any more: a new disk, a log that is lost or suspect
(`forfeit`, `suspect`). Acknowledgements that were given for a lost log must not bring b
back into the ISR. A new disk, and losses that a start finds, come with a new incarnation,
which proposals name. For a log that is lost during a run, the leader begins a new
epoch, in which no acknowledgement is older than the loss (`lose`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from tidelog_broker.core.metadata.image import LastKnown, PartitionImage, StreamImage


def is_below_minimum(stream: StreamImage, isr: Collection[int]) -> bool:
    return len(isr) < stream.config.min_insync_effective


def with_isr(stream: StreamImage, partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    """Members leave and join in one step; a leader that leaves the ISR loses its leadership."""
    eligible: tuple[int, ...] = ()
    if is_below_minimum(stream, isr):
        clean = dict.fromkeys((*partition.eligible, *partition.isr))
        eligible = tuple(broker for broker in clean if broker not in isr)
    last_known = partition.last_known
    if last_known:
        # A replica that has joined is complete again; its earlier report does not describe its log any more.
        last_known = tuple(known for known in last_known if known.broker not in isr)
    leader = partition.leader if partition.leader in isr else None
    return replace(partition, isr=isr, eligible=eligible, last_known=last_known, leader=leader)


def leave(stream: StreamImage, partition: PartitionImage, brokers: Collection[int]) -> PartitionImage:
    """`brokers` leave the ISR with complete logs: they become eligible if the ISR is then below its
    minimum."""
    isr = tuple(member for member in partition.isr if member not in brokers)
    return partition if len(isr) == len(partition.isr) else with_isr(stream, partition, isr)


def forfeit(partition: PartitionImage, broker: int) -> PartitionImage:
    """`broker` lacks records that it acknowledged: it leaves the ISR, the eligible and the last-known
    replicas.

    The eligibility of other replicas does not change: the ISR only gets smaller.
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
    """A replica may lack records that it acknowledged; `known` is the end of its log."""
    after = forfeit(partition, known.broker)
    last_known = sorted((*after.last_known, known), key=lambda one: one.broker)
    return replace(after, last_known=tuple(last_known))


def lose(partition: PartitionImage, broker: int) -> PartitionImage:
    """A running broker set its log aside: it leaves the ISR, and its earlier acknowledgements do not
    count."""
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

    A clean leader keeps the ISR and joins it. The log of an unclean leader is authoritative from
    now on: no other replica is known to hold the same records.
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
    """The stream's minimum changed: a minimum lowered to the ISR ends eligibility; a raised one restores
    none."""
    if partition.eligible and not is_below_minimum(stream, partition.isr):
        return replace(partition, eligible=())
    return partition


def _without(brokers: tuple[int, ...], broker: int) -> tuple[int, ...]:
    return tuple(other for other in brokers if other != broker)
