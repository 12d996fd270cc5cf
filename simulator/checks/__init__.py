"""The invariants of docs/replication.md, each checked where a step could break it, and all now and then.

One module a subject: `quorum` (the metadata log: I1, I13), `placement` (images, elections, reports: I2–I4,
I16), `logs` (what replicas hold: I5, I9, I14, I15), `strays` (folders: I17, I18), `sessions` (M3), `volumes`
(R19), `retention` (what is deleted: R11, R18), `commits` (what is promised: I6–I8, I11, I12), `recording`
(what publishers to NATS are told: N5). `truth` has what they compare the brokers with.
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
    """All of them. The hooks are called by those who perform."""

    def full(self) -> None:
        """Reads every log again and compares it with what is believed of it."""
        for broker in self.brokers.values():
            if broker.running:
                for replica in broker.replicas.values():
                    self.compare(replica)
                self.strays_kept(broker)
        for key in self.truths:
            self.members(key)
