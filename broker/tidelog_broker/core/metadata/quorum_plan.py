"""M1, M2: who votes on the metadata, one step at a time.

A pure plan: from the configuration of now, the image and what is known of how far each
learner has come to the next configuration. The controller asks again once that is
committed. A step changes at most one voter (`core.raft` refuses more); learners come and
go with it as they like, for they decide nothing.

Voters grow in pairs, because an even number tolerates no more failures than the odd one
below it: only when two learners have caught up, and the second follows the first at once.
An even number that nobody is left to complete becomes the odd one below it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import InvalidRequest, Unavailable
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.model import Configuration, Voter


def next_configuration(
    configuration: Configuration,
    image: ClusterImage,
    caught_up: Mapping[Voter, bool],
    voters_wanted: int,
    *,
    leader: int,
) -> Configuration | None:
    """The next step; None: it is as it should be, or somebody has to catch up first.

    `leader` is the broker that is the controller: it goes last, because whoever removes
    itself cannot see the change through. `voters_wanted` is odd.
    """
    assert voters_wanted % 2 == 1, "an even number of voters tolerates no more than the odd one below"
    learners = _learners(configuration, image)
    if learners != configuration.learners:
        return Configuration(configuration.voters, learners)
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


def add_voter(
    configuration: Configuration, image: ClusterImage, broker: int, caught_up: Mapping[Voter, bool]
) -> Configuration | None:
    """By command; None: it votes. Raises `InvalidRequest`, `Unavailable` if it has not caught up."""
    known = image.brokers.get(broker)
    if known is None:
        raise InvalidRequest(
            f"broker {broker} is not registered; there are {sorted(image.brokers)}", field="broker"
        )
    voter = Voter(broker, known.directory_id)
    if voter in configuration.voters:
        return None
    if any(_same(other, voter) for other in configuration.voters):
        raise Unavailable(
            f"broker {broker} still votes with the disk it had before; it is replaced once it has caught up",
            retry_after_ms=1000,
        )
    if known.fenced or not caught_up.get(voter):
        raise Unavailable(
            f"broker {broker} has not caught up with the metadata; try again when it has", retry_after_ms=1000
        )
    return _with(configuration, voter)


def remove_voter(configuration: Configuration, image: ClusterImage, broker: int) -> Configuration | None:
    """By command; None: it does not vote. It goes on as a learner while it is registered.

    A plan that wants as many voters as before will promote another, or this one again unless
    it is cordoned. Raises `InvalidRequest` for the last voter.
    """
    found = [voter for voter in configuration.voters if voter.broker_id == broker]
    if not found:
        return None
    if len(configuration.voters) == 1:
        raise InvalidRequest(f"broker {broker} is the only voter; add another one first", field="broker")
    return _without(configuration, image, found[0])


def _resized(
    configuration: Configuration,
    image: ClusterImage,
    caught_up: Mapping[Voter, bool],
    voters_wanted: int,
    leader: int,
) -> Configuration | None:
    voters = configuration.voters
    spare = sorted(voters, key=lambda voter: (not _is_fenced(image, voter), -voter.broker_id))
    if len(voters) > voters_wanted:
        return _without(configuration, image, _last_the_leader(spare, leader)[0])
    ready = [
        learner
        for learner in configuration.learners
        if caught_up.get(learner)
        and image.brokers[learner.broker_id].welcome
        and _may_vote_one_day(image, learner, voters)
    ]
    needed = 2 if len(voters) % 2 else 1
    if needed == 1 and not any(
        _may_vote_one_day(image, learner, voters) for learner in configuration.learners
    ):
        return _without(configuration, image, _last_the_leader(spare, leader)[0])
    if len(voters) + needed > voters_wanted or len(ready) < needed:
        return None
    return _with(configuration, ready[0])


def _may_vote_one_day(image: ClusterImage, learner: Voter, voters: tuple[Voter, ...]) -> bool:
    """It may be away now, or behind. What votes on another disk is replaced, not added."""
    return not image.brokers[learner.broker_id].cordoned and not any(
        _same(learner, voter) for voter in voters
    )


def _learners(configuration: Configuration, image: ClusterImage) -> tuple[Voter, ...]:
    """Every registered broker that does not vote with the disk it has now, by id."""
    members = [Voter(broker.id, broker.directory_id) for broker in image.brokers.values()]
    return tuple(
        member
        for member in sorted(members, key=lambda member: member.broker_id)
        if member not in configuration.voters
    )


def _with(configuration: Configuration, voter: Voter) -> Configuration:
    voters = sorted((*configuration.voters, voter), key=lambda member: member.broker_id)
    learners = tuple(learner for learner in configuration.learners if learner != voter)
    return Configuration(tuple(voters), learners)


def _without(configuration: Configuration, image: ClusterImage, voter: Voter) -> Configuration:
    rest = Configuration(
        tuple(other for other in configuration.voters if other != voter), configuration.learners
    )
    return Configuration(rest.voters, _learners(rest, image))


def _last_the_leader(voters: list[Voter], leader: int) -> list[Voter]:
    return sorted(voters, key=lambda voter: voter.broker_id == leader)


def _same(one: Voter, other: Voter) -> bool:
    """One broker, on whichever disk."""
    return one.broker_id == other.broker_id


def _is_fenced(image: ClusterImage, voter: Voter) -> bool:
    return voter.broker_id not in image.brokers or image.brokers[voter.broker_id].fenced
