"""A small language for what several nodes do: commands, and under each what then happened.

A file is a list of blocks, parted by empty lines. Lines that begin with ``#`` are prose. A
block is one or more commands and, unless all are quiet, a line ``----`` and what they did;
`run` writes the file again with what they do today. Nodes are named by broker id; told of
as ``3'`` is broker 3 with its second disk, and asked for as ``3@0`` the one with its first.
Chance is fixed: broker 1 is the least patient, then 2, and so on.

    start <voters> [<learners>]      brokers 1, 2, … with a log of one entry
    tick <node>|all [<times>]        time passes; everything that follows from each tick happens
    tick <node> until <role>         leader, candidate, follower
    tick all until <node> <role>
    campaign <node>                  it stands for election at once
    propose <node> <word>...         one entry per word
    partition <nodes> | <nodes>...   groups that hear only each other; heal ends it
    crash <node>, restart <node>     what was not saved is forgotten
    refuse <node> [<other>]          its machine refuses the connections of the others, or of one
    slow <node>, fast <node>         its disk does not get ready; gets ready again
    new <node>                       another broker, with an empty disk
    new-disk <node>                  it comes back with an empty disk, and is somebody else
    snapshot <node>                  an image of what it applied, in place of the entries
    add-learner, promote, demote, remove <node>    asked of the leader
    transfer <node>                  asked of the leader
    read <node> <number>             a question, with a number to know the answer by
    late-vote <candidate> <voter> <term>    a request that was long on its way arrives
    show                             every node and its log
    quiet <command>                  without telling what happened
    rounds <n> <command>             so many times everybody works and every message arrives, no more
"""

from __future__ import annotations

from collections.abc import Callable

from raft.raft_cluster import Cluster, Machine, all_entries, voter
from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.core.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    SnapshotRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.model import Configuration, Entry, EntryType, Voter

ROUNDS_MAX = 200
"""Of everybody working and every message arriving, after one command or tick."""

TICKS_MAX = 100


class Patience:
    """The chance of a broker: always the same, and different from the others'."""

    def __init__(self, me: Voter) -> None:
        self._more = 2 * (me.broker_id - 1)

    def randrange(self, start: int, stop: int) -> int:
        return min(start + self._more, stop - 1)


def run(text: str) -> str:
    """The file, with what its commands do today. Raises AssertionError when a check of the cluster fails."""
    return "\n\n".join(_blocks(text)) + "\n"


def _blocks(text: str) -> list[str]:
    script = Script()
    found = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        asked = lines[: lines.index("----")] if "----" in lines else lines
        commands = [line for line in asked if not line.startswith("#")]
        told = [line for command in commands for line in script.do(command)]
        loud = any(not command.startswith("quiet ") for command in commands)
        found.append("\n".join([*asked, "----", *told] if loud else asked))
    return found


class Script:
    """Performs commands, one by one, on a cluster of its own."""

    def __init__(self) -> None:
        self._cluster = Cluster(Patience)
        self._told: list[str] = []
        self._slow: set[Voter] = set()
        self._shown: dict[Voter, tuple[str, ...]] = {}

    def do(self, command: str) -> list[str]:
        """What happened."""
        self._told = []
        name, *arguments = words = command.split()
        rounds = ROUNDS_MAX
        if words[0] == "quiet":
            name, *arguments = arguments
        if words[0] == "rounds":
            count, name, *arguments = arguments
            rounds = int(count)
        name = {"slow": "slow-down"}.get(name, name)
        perform: Callable[..., None] = getattr(self, f"_{name.replace('-', '_')}")
        try:
            perform(*arguments)
        except (NotRaftLeader, Busy, InvalidRequest) as error:
            self._told.append(f"refused: {error}")
        self._settle(rounds)
        return [] if words[0] == "quiet" else self._told

    # --- commands

    def _start(self, voters: str, learners: str = "0") -> None:
        self._cluster.format(int(voters), int(learners))

    def _tick(self, who: str, how: str = "1", *until: str) -> None:
        if how == "until":
            *others, role = until
            machine = self._machine(others[0] if others else who)
            for _ in range(TICKS_MAX):
                if machine.up.role_name == role:
                    return
                self._tick(who)
            raise AssertionError(f"{machine.up!r} is no {role} after {TICKS_MAX} ticks")
        for _ in range(int(how)):
            for machine in self._cluster.running if who == "all" else [self._machine(who)]:
                machine.up.tick()
            self._settle()

    def _campaign(self, who: str) -> None:
        self._machine(who).up.campaign()

    def _propose(self, who: str, *words: str) -> None:
        self._machine(who).up.propose([word.encode() for word in words])

    def _partition(self, *words: str) -> None:
        group: dict[Voter, int] = {}
        number = 0
        for word in words:
            number += word == "|"
            if word != "|":
                group[self._machine(word).me] = number
        everybody = list(self._cluster.machines)
        self._cluster.cut = {(a, b) for a in everybody for b in everybody if group.get(a) != group.get(b)}

    def _heal(self) -> None:
        self._cluster.cut = set()

    def _crash(self, who: str) -> None:
        machine = self._machine(who)
        self._cluster.crash(machine.me)
        for other in self._cluster.running:
            other.up.disconnected(machine.me)

    def _restart(self, who: str) -> None:
        self._cluster.start(self._machine(who).me)

    def _refuse(self, who: str, other: str = "") -> None:
        gone = self._machine(who).me
        for machine in [self._machine(other)] if other else self._cluster.running:
            machine.up.refused(gone)

    def _slow_down(self, who: str) -> None:
        self._slow.add(self._machine(who).me)

    def _fast(self, who: str) -> None:
        self._slow.discard(self._machine(who).me)

    def _new(self, who: str) -> None:
        self._cluster.add(voter(int(who)))
        self._cluster.start(voter(int(who)))

    def _new_disk(self, who: str) -> None:
        old = self._machine(who).me
        self._cluster.crash(old)
        new = voter(old.broker_id, old.directory_id[1] + 1)
        self._cluster.add(new)
        self._cluster.start(new)

    def _snapshot(self, who: str) -> None:
        self._cluster.compact(self._machine(who))

    def _add_learner(self, who: str) -> None:
        one, now = self._machine(who).me, self._configuration
        self._configure(Configuration(now.voters, (*now.learners, one)))

    def _promote(self, who: str) -> None:
        one, now = self._machine(who).me, self._configuration
        self._configure(
            Configuration((*now.voters, one), tuple(other for other in now.learners if other != one))
        )

    def _demote(self, who: str) -> None:
        one, now = self._machine(who).me, self._configuration
        self._configure(
            Configuration(tuple(other for other in now.voters if other != one), (*now.learners, one))
        )

    def _remove(self, who: str) -> None:
        one, now = self._machine(who).me, self._configuration
        self._configure(
            Configuration(
                tuple(voter for voter in now.voters if voter != one),
                tuple(learner for learner in now.learners if learner != one),
            )
        )

    def _transfer(self, who: str) -> None:
        self._leader.up.transfer(self._machine(who).me)

    def _read(self, who: str, number: str) -> None:
        self._cluster.read(self._machine(who), int(number))

    def _late_vote(self, candidate: str, asked: str, term: str) -> None:
        source, target = self._machine(candidate), self._machine(asked)
        last_index = source.disk.last_index
        last_term = source.disk.term(last_index)
        assert last_term is not None
        self._cluster.wire.append(
            VoteRequest(int(term), source.me, target.me, last_index=last_index, last_term=last_term)
        )

    def _show(self) -> None:
        for machine in self._cluster.machines.values():
            if machine.node is None:
                self._told.append(f"{_name(machine.me)} is down")
                continue
            log = machine.node.log
            entries = all_entries(log, log.first_index, log.last_index + 1)
            place = f"commit {log.commit}, applied {machine.applied_index}"
            content = ", ".join(_entry(entry) for entry in entries)
            self._told.append(f"{_name(machine.me)} {_state(machine)}; {place}: {content or 'no entries'}")

    # --- who

    def _find(self, who: str) -> Machine | None:
        """With the newest disk of the broker, unless it is said which."""
        broker, _, disk = who.partition("@")
        found = [machine for me, machine in self._cluster.machines.items() if me.broker_id == int(broker)]
        return found[int(disk or -1)] if found else None

    def _machine(self, who: str) -> Machine:
        machine = self._find(who)
        assert machine is not None, f"there is no broker {who}"
        return machine

    @property
    def _leader(self) -> Machine:
        node = self._cluster.leader()
        if node is None:
            raise NotRaftLeader("nobody leads")
        return self._cluster.machines[node.me]

    @property
    def _configuration(self) -> Configuration:
        return self._leader.up.configuration

    def _configure(self, configuration: Configuration) -> None:
        self._leader.up.configure(configuration)

    # --- what follows

    def _settle(self, rounds: int = ROUNDS_MAX) -> None:
        """Everybody works and every message arrives, until nothing is left but slow disks."""
        for _ in range(rounds):
            busy = False
            for machine in self._cluster.running:
                busy = self._work(machine) or busy
            for _ in range(len(self._cluster.wire)):
                busy = True
                self._deliver()
            if not busy:
                return
        assert rounds < ROUNDS_MAX, f"not quiet after {rounds} rounds"

    def _work(self, machine: Machine) -> bool:
        self._tell_changes(machine)
        if machine.doing is None:
            ready = self._cluster.begin(machine)
            if ready is None:
                return False
            self._tell_ready(machine, ready)
            return True
        if machine.me in self._slow:
            return False
        self._cluster.finish(machine)
        self._tell_changes(machine)
        return True

    def _deliver(self) -> None:
        message = self._cluster.wire[0]
        target = self._cluster.machines.get(message.target)
        place = len(self._told)
        taken = self._cluster.deliver(0)
        self._told.insert(place, f"{_message(message)}{'' if taken else '  (lost)'}")
        if taken and target is not None:
            self._tell_changes(target)

    def _tell_ready(self, machine: Machine, ready: Ready) -> None:
        name = _name(machine.me)
        if ready.persist is not None:
            snapshot, entries, state = ready.persist
            parts = [] if snapshot is None else [f"snapshot {snapshot.index}/{snapshot.term}"]
            parts += [] if not entries else [_entries(entries)]
            parts += [] if state is None else [f"term {state.term} vote {_name(state.vote)}"]
            self._told.append(f"{name} saves {', '.join(parts)}")
        if ready.committed:
            self._told.append(f"{name} applies {_entries(ready.committed)}")
        self._told += [f"{name} may answer question {read.token} as of {read.index}" for read in ready.reads]
        self._told += [f"{name} cannot answer question {token}" for token in ready.failed_reads]

    def _tell_changes(self, machine: Machine) -> None:
        now = (_state(machine), f"commits {machine.up.log.commit}")
        before = self._shown.get(machine.me, now)
        self._told += [
            f"{_name(machine.me)} {new}" for old, new in zip(before, now, strict=True) if old != new
        ]
        self._shown[machine.me] = now


def _state(machine: Machine) -> str:
    node = machine.up
    follows = f" of {_name(node.leader)}" if node.leader not in (None, node.me) else ""
    return f"is {node.role_name}{follows} in term {node.term}"


def _name(one: Voter | None) -> str:
    return "nobody" if one is None else f"{one.broker_id}{chr(39) * one.directory_id[1]}"


def _names(some: tuple[Voter, ...]) -> str:
    return " ".join(_name(one) for one in some) or "nobody"


def _configuration(configuration: Configuration) -> str:
    learners = f", learners {_names(configuration.learners)}" if configuration.learners else ""
    return f"voters {_names(configuration.voters)}{learners}"


def _entry(entry: Entry) -> str:
    match entry.type:
        case EntryType.COMMAND:
            content = entry.payload.decode()
        case EntryType.CONFIGURATION:
            content = f"({_configuration(Configuration.decode(entry.payload))})"
        case EntryType.NOOP:
            content = "noop"
    return f"{entry.index}/{entry.term} {content}"


def _entries(entries: tuple[Entry, ...]) -> str:
    return ", ".join(_entry(entry) for entry in entries)


def _message(message: Message) -> str:
    between = f"{_name(message.source)} -> {_name(message.target)} t{message.term}"
    match message:
        case VoteRequest():
            kind = "pre-vote?" if message.pre else "vote?"
            handed = " (handed over)" if message.transfer else ""
            return f"{between} {kind} last {message.last_index}/{message.last_term}{handed}"
        case VoteResponse():
            kind = "pre-vote" if message.pre else "vote"
            return f"{between} {kind} {'granted' if message.granted else 'refused'}"
        case AppendRequest():
            place = f"after {message.previous_index}/{message.previous_term}"
            return (
                f"{between} append {place}: {_entries(message.entries) or 'nothing'}; commit {message.commit}"
            )
        case AppendResponse() if message.rejected:
            hint = f"{message.hint_index}/{message.hint_term}"
            return f"{between} does not have {message.index}; perhaps {hint}"
        case AppendResponse():
            return f"{between} has {message.index}"
        case HeartbeatRequest():
            return f"{between} heartbeat {message.round}; commit {message.commit}"
        case HeartbeatResponse():
            return f"{between} heard {message.round}"
        case SnapshotRequest():
            snapshot = message.snapshot
            who = _configuration(snapshot.configuration)
            return f"{between} snapshot {snapshot.index}/{snapshot.term} ({who})"
        case TimeoutNow():
            return f"{between} campaign now"
