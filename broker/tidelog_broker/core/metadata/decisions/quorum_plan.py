"""M1, M2: which brokers vote on the metadata, one step at a time.

A pure plan: it computes the next configuration from the current one, the image, and how far each
learner has caught up. The controller calls it again once the step is
committed. A step changes at most one voter (`core.raft` refuses more); learners are added and
removed freely with it, because they decide nothing.

Voters are added in pairs, because an even number tolerates no more failures than the odd number
below it: only when two learners have caught up, and the second follows the first at once.
An even number that no broker is left to complete becomes the odd number below it.

An administrator can say by command which brokers vote and which do not; the setting is in the image
(`image.Vote`), so that this plan and every later controller follow it. A vote moves in two steps: one
more voter, then one fewer. The vote of a broker that is cordoned and holds no replica any
more, that is, of a drained broker, moves without a command.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tidelog.errors import InvalidRequest
from tidelog.wording import listed
from tidelog_broker.core.metadata.commands import ChangeBroker
from tidelog_broker.core.metadata.decisions.brokers import registered
from tidelog_broker.core.metadata.image import ClusterImage, Vote
from tidelog_broker.model import Configuration, Voter


def next_configuration(
    configuration: Configuration,
    image: ClusterImage,
    caught_up: Mapping[Voter, bool],
    voters_wanted: int,
    *,
    leader: int,
) -> Configuration | None:
    """The next step; None: the configuration is as it should be, or a learner must catch up first.

    `leader` is the broker that is the controller: it is removed last, because a controller that removes
    itself cannot complete the change. `voters_wanted` is odd.
    """
    assert voters_wanted % 2 == 1, "an even number of voters tolerates no more than the odd one below"
    learners = _learners(configuration, image)
    if learners != configuration.learners:
        return replace(configuration, learners=learners)
    gone = [voter for voter in configuration.voters if voter.broker_id not in image.brokers]
    if gone and len(configuration.voters) > 1:
        return _without(configuration, image, _last_the_leader(gone, leader)[0])
    replaced = [
        voter
        for voter in configuration.voters
        if voter not in gone and any(caught_up.get(learner) for learner in learners if _same(voter, learner))
    ]
    if replaced and len(configuration.voters) > 1:
        return _without(configuration, image, _last_the_leader(replaced, leader)[0])
    return _resized(configuration, image, caught_up, voters_wanted, leader)


def add_voter(image: ClusterImage, broker: int, voters_wanted: int) -> ChangeBroker | None:
    """By command: `broker` should vote, in place of a broker without this setting; None: it has the setting.

    Raises `InvalidRequest`.
    """
    known = registered(image, broker)
    if known.cordoned:
        raise InvalidRequest(
            f"broker {broker} is cordoned, so it cannot become a voter; uncordon it first",
            field="broker",
        )
    if known.vote is Vote.WANTED:
        return None
    said = [other.id for other in image.brokers.values() if other.vote is Vote.WANTED]
    if len(said) >= voters_wanted:
        raise InvalidRequest(
            f"the setting `voters` allows {voters_wanted}, and these brokers are set to vote already: "
            f"{listed(said)}; remove one of them, or raise the setting",
            field="broker",
        )
    return ChangeBroker(broker, vote=Vote.WANTED)


def remove_voter(configuration: Configuration, image: ClusterImage, broker: int) -> ChangeBroker | None:
    """By command: `broker` should not vote, and becomes a learner; None: it has this setting.

    Raises `InvalidRequest` if it votes and no other broker could vote in its place: an even number tolerates
    no more failures than the odd number below it.
    """
    known = registered(image, broker)
    if known.vote is Vote.UNWANTED:
        return None
    voters = configuration.voters
    staying = [voter for voter in voters if voter.broker_id != broker and _rank(image, voter) != UNWANTED]
    # An odd rest is the second step of a vote that moves: its first step, one voter more, is done already.
    if (
        any(voter.broker_id == broker for voter in voters)
        and len(staying) % 2 == 0
        and not any(_may_vote_one_day(image, learner, voters) for learner in configuration.learners)
    ):
        rest = "it is the only voter" if len(voters) == 1 else f"that would leave {len(staying)} voters"
        raise InvalidRequest(
            f"no other broker could vote in place of broker {broker}, and {rest}; add a broker first",
            field="broker",
        )
    return ChangeBroker(broker, vote=Vote.UNWANTED)


def check_can_go(configuration: Configuration, broker: int) -> None:
    """Raises `InvalidRequest` if the metadata would be lost with `broker`."""
    if [voter.broker_id for voter in configuration.voters] == [broker]:
        raise InvalidRequest(
            f"broker {broker} is the only voter of the metadata; add another voter first",
            field="broker",
        )


def _resized(
    configuration: Configuration,
    image: ClusterImage,
    caught_up: Mapping[Voter, bool],
    voters_wanted: int,
    leader: int,
) -> Configuration | None:
    voters = configuration.voters
    least = min(voters, key=lambda voter: _worth(image, voter, leader))
    if len(voters) > voters_wanted:
        return _without(configuration, image, least)
    candidates = [learner for learner in configuration.learners if _may_vote_one_day(image, learner, voters)]
    ready = sorted(
        (
            learner
            for learner in candidates
            if caught_up.get(learner) and image.brokers[learner.broker_id].welcome
        ),
        key=lambda learner: (-_rank(image, learner), learner.broker_id),
    )
    even = len(voters) % 2 == 0
    if even and (not candidates or _rank(image, least) == UNWANTED):
        return _without(configuration, image, least)
    needed = 1 if even else 2
    if len(ready) >= needed and len(voters) + needed <= voters_wanted:
        return _with(configuration, ready[0])
    if even or not ready or _rank(image, ready[0]) <= _rank(image, least):
        return None
    if _rank(image, least) == UNWANTED or len(voters) == voters_wanted:
        # The vote moves: the next step takes it from the other.
        return _with(configuration, ready[0])
    return None


UNWANTED, ANY, WANTED = range(3)
"""How much a broker is preferred as a voter."""


def _rank(image: ClusterImage, voter: Voter) -> int:
    known = image.brokers.get(voter.broker_id)
    if known is None or known.vote is Vote.UNWANTED:
        return UNWANTED
    if known.cordoned and known.id not in image.shares:
        return UNWANTED
    return WANTED if known.vote is Vote.WANTED else ANY


def _worth(image: ClusterImage, voter: Voter, leader: int) -> tuple[int, bool, bool, int]:
    """The voter with the least worth is removed first.

    The rank comes first; of equal rank, the leader is removed last, and fenced voters before the others.
    """
    return (
        _rank(image, voter),
        voter.broker_id == leader,
        not _is_fenced(image, voter),
        -voter.broker_id,
    )


def _may_vote_one_day(image: ClusterImage, learner: Voter, voters: tuple[Voter, ...]) -> bool:
    """Whether a learner may vote later; it may be away or behind now. A voter with another disk is
    replaced."""
    known = image.brokers[learner.broker_id]
    return (
        not known.cordoned
        and known.vote is not Vote.UNWANTED
        and not any(_same(learner, voter) for voter in voters)
    )


def _learners(configuration: Configuration, image: ClusterImage) -> tuple[Voter, ...]:
    """Every registered broker that does not vote with its current disk, by id."""
    members = [Voter(broker.id, broker.directory_id) for broker in image.brokers.values()]
    return tuple(
        member
        for member in sorted(members, key=lambda member: member.broker_id)
        if member not in configuration.voters
    )


def _with(configuration: Configuration, voter: Voter) -> Configuration:
    voters = sorted((*configuration.voters, voter), key=lambda member: member.broker_id)
    learners = tuple(learner for learner in configuration.learners if learner != voter)
    return replace(configuration, voters=tuple(voters), learners=learners)


def _without(configuration: Configuration, image: ClusterImage, voter: Voter) -> Configuration:
    rest = replace(configuration, voters=tuple(other for other in configuration.voters if other != voter))
    return replace(rest, learners=_learners(rest, image))


def _last_the_leader(voters: list[Voter], leader: int) -> list[Voter]:
    return sorted(voters, key=lambda voter: voter.broker_id == leader)


def _same(one: Voter, other: Voter) -> bool:
    """Whether both are the same broker, perhaps with different disks."""
    return one.broker_id == other.broker_id


def _is_fenced(image: ClusterImage, voter: Voter) -> bool:
    return voter.broker_id not in image.brokers or image.brokers[voter.broker_id].fenced
