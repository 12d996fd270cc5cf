"""A test of the tests: ways to get Raft wrong, planted one by one, are found by a storm or a transcript."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from raft.scenario import run
from raft.storm import Storm
from raft.test_scenarios import FOLDER
from tidelog_broker.core.raft import leading, stepping
from tidelog_broker.core.raft.campaigning import Candidate
from tidelog_broker.core.raft.errors import LogForgotten
from tidelog_broker.core.raft.following import RaftFollower
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.core.raft.state import RaftState

SEEDS_MAX = 300
"""Storms within which a bug must show."""


class Bug(NamedTuple):
    what: str
    owner: Any
    """The class or module that has the function."""
    name: str
    right: str
    """A piece of the function's text …"""
    wrong: str
    """… and what stands in its place."""
    transcript: str = ""
    """The one that tells it; empty: a storm does."""


BUGS = [
    Bug(
        "a restart forgets the vote",
        RaftState,
        "__init__",
        "self.vote = hard_state.vote",
        "self.vote = None",
        "vote_remembered",
    ),
    Bug(
        "a change of role forgets the vote",
        RaftNode,
        "_follow",
        "if transition.term != state.term:",
        "if True:",
    ),
    Bug("a vote is told before it is saved", stepping, "_vote", "state.send(", "state.send_now("),
    Bug(
        "its own vote counts before it is saved",
        Candidate,
        "begin",
        "if self.pre else None",
        "if True else None",
    ),
    Bug("a vote for a shorter log", stepping, "grants", "free and whole and", "free and"),
    Bug("a second vote in a term", stepping, "grants", "free and whole and", "whole and"),
    Bug(
        "an acknowledgement before it is saved",
        RaftFollower,
        "_acknowledge",
        "state.send(",
        "state.send_now(",
    ),
    Bug(
        "an earlier term's entry is committed by counting",
        Leader,
        "_commit",
        " or log.term(index) != state.term",
        "",
    ),
    Bug(
        "a leader counts entries that it has not saved",
        Leader,
        "_reached",
        "log.saved_index",
        "log.last_index",
    ),
    Bug(
        "a heartbeat commits what the follower may not have",
        Leader,
        "_send_heartbeats",
        "min(progress.match, state.log.commit)",
        "state.log.commit",
    ),
    Bug(
        "an old message cuts off what came later",
        Log,
        "merge",
        "self.term(entry.index) == entry.term",
        "False",
    ),
    Bug(
        "entries that were replaced meanwhile count as saved",
        Log,
        "saved",
        "self.agrees(entry.index, entry.term)",
        "True",
    ),
    Bug(
        "what others committed is applied before it is here",
        RaftNode,
        "ready",
        "min(log.commit, log.saved_index)",
        "log.commit",
    ),
    Bug(
        "a read without a majority's word",
        Leader,
        "_answer_reads",
        "quorum_index(state.configuration.voters, reached)",
        "self._round",
        "read_index",
    ),
    Bug("a read as of what it happens to know", Leader, "read", "commit >= self._first_index", "True"),
    Bug(
        "two changes of the voters at once", leading, "check_settled", "configuration_index > commit", "False"
    ),
    Bug(
        "a change of the voters before an entry of the term",
        leading,
        "check_settled",
        "commit < first_index",
        "False",
        "new_leader_change",
    ),
    Bug(
        "a voter that has learnt nothing",
        leading,
        "check_learnt",
        "match.get(voter, 0) < first_index",
        "False",
        "learner",
    ),
    Bug("an empty log votes", stepping, "grants", " and log.last_index > 0", "", "new_disk"),
    Bug("a campaign without asking first", RaftFollower, "tick", "pre=True", "pre=False", "pre_vote"),
    Bug(
        "a leader that hears nobody goes on",
        Leader,
        "_heard_majority",
        ">= majority",
        ">= 0 * majority",
        "check_quorum",
    ),
    Bug(
        "a heard leader is voted out",
        stepping,
        "_hears_leader",
        "not state.leader_refused and",
        "False and",
        "check_quorum",
    ),
    Bug(
        "a refused connection is not believed",
        RaftNode,
        "refused",
        "state.leader_refused = True",
        "pass",
        "refused",
    ),
]


def plant(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the function in place with `wrong` for `right`."""
    function: Callable[..., Any] = getattr(bug.owner, bug.name)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(bug.right) == 1, f"{bug.right!r} is not in {bug.name}, or more than once"
    names: dict[str, Any] = {}
    exec(text.replace(bug.right, bug.wrong), function.__globals__ | {"majority": majority}, names)
    monkeypatch.setattr(bug.owner, bug.name, names[bug.name])


def found_by_a_storm() -> bool:
    for seed in range(SEEDS_MAX):
        try:
            Storm(seed).run(3000)
        except (AssertionError, LogForgotten):
            return True
    return False


def found_by(transcript: str) -> bool:
    text = (FOLDER / f"{transcript}.txt").read_text(encoding="utf-8")
    try:
        return run(text).splitlines() != text.splitlines()
    except (AssertionError, LogForgotten):
        return True


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(bug, monkeypatch)

    assert found_by(bug.transcript) if bug.transcript else found_by_a_storm()
