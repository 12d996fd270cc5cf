"""The invariants of docs/replication.md, checked after each event that could break them; all logs
periodically.

- `truth`      what is true in a run: the brokers are compared with it
- `quorum`     the metadata log: votes, terms, committed entries (I1, I13)
- `placement`  images, elections, ISRs, reports (I2–I4, I16)
- `logs`       the logs of replicas (I5, I9, I14, I15)
- `commits`    what is committed, and the replicas that must have it (I3, I6–I8)
- `answers`    answers to clients (I7, I8, I12, I19)
- `recording`  answers to publishers (N5)
- `retention`  deleted records (R11, R18)
- `strays`     folders of no or another partition (I17, I18)
- `sessions`   heartbeats (M3)
- `volumes`    volumes that changed while their broker was down (R19)

`Checks` joins all of them. Observations come from `simulator.watch`; faults belong to `simulator.faults`.
"""

from __future__ import annotations

from simulator.checks.answers import AnswerChecks
from simulator.checks.placement import PlacementChecks
from simulator.checks.quorum import QuorumChecks
from simulator.checks.recording import RecordingChecks
from simulator.checks.sessions import SessionChecks
from simulator.checks.truth import Copy, Setup, Surroundings, Truth, Violated, require
from simulator.checks.volumes import VolumeChecks

__all__ = ["Checks", "Copy", "Setup", "Surroundings", "Truth", "Violated", "require"]


class Checks(QuorumChecks, PlacementChecks, SessionChecks, VolumeChecks, AnswerChecks, RecordingChecks):
    """All checks of a run. `simulator.watch`, clients and faults call their methods."""

    def full(self) -> None:
        """Reads every log again, and compares it with its mirror."""
        for broker in self.brokers.values():
            if broker.running:
                for replica in broker.replicas.values():
                    self.compare(replica)
                self.strays_kept(broker)
        for key in self.truths:
            self.members(key)
