"""Processes that end: killed, without power, stopped by people, one or all, in the worst moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.broker import Broker
from simulator.world import MS, SECOND

if TYPE_CHECKING:
    from simulator.run import Simulation


class ProcessFaults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run

    def crash(self, *, power: bool) -> None:
        up = self._run.up()
        leaders = [broker for key in self._run.keys if (broker := self._run.leader_of(key)) is not None]
        controllers = [broker for broker in up if broker.quorum.node.leads]
        if self._run.plan.fast_raft and controllers and self._run.rng.random() < 0.7:
            self._run.end(controllers[0], power=power)
        elif leaders and self._run.rng.random() < 0.5:
            self._run.end(self._run.rng.choice(leaders), power=power)
        elif up:
            self._run.end(self._run.rng.choice(up), power=power)

    def crash_twice(self) -> None:
        """Killed, started, and without power before it is through with what it found (2a)."""
        up = self._run.up()
        if up:
            broker = self._run.rng.choice(up)
            broker.crash(power=False)
            self._run.start(broker)
            broker.after(
                self._run.rng.randint(1 * MS, 800 * MS),
                lambda: self._run.end(broker, power=True) if self._run.raining else None,
            )

    def voted(self, broker: Broker) -> None:
        """It gave its vote: its process ends as soon as that is said, and is back at once."""
        if self._run.raining and self._run.rng.random() < self._run.plan.vote_kills:
            self._strike(broker.id, self._run.rng.randint(0, 2 * MS))

    def candidate(self, broker: Broker) -> None:
        """Elections are where votes are given: some voter ends in the middle of it, and is soon back."""
        if self._run.raining and self._run.rng.random() < self._run.plan.election_kills:
            # Rather one who votes than the one who asks.
            others = [number for number in sorted(self._run.brokers) if number != broker.id]
            victim = self._run.rng.choice(others)
            self._strike(victim, self._run.rng.randint(0, 3 * MS))

    def _strike(self, victim: int, delay_us: int) -> None:
        run = self._run
        broker = run.brokers[victim]

        def strike() -> None:
            if broker.running and run.raining:
                broker.crash(power=run.rng.random() < 0.5)
                run.world.after(run.rng.randint(1, run.plan.restart_us), lambda: run.start(broker))

        run.world.after(delay_us, strike)

    def crash_everybody(self) -> None:
        power = self._run.rng.random() < 0.5
        self._run.world.tell(f"everybody {'loses power' if power else 'is killed'}")
        for broker in self._run.up():
            self._run.end(broker, power=power)

    def stop(self) -> None:
        """A rolling restart's step: leadership is handed over before the process ends."""
        up = self._run.up()
        if not up:
            return
        broker = self._run.rng.choice(up)
        broker.stopping = True
        self._run.world.tell(f"broker {broker.id} is asked to stop")
        broker.settling.everything()
        broker.after(SECOND, lambda: self._stopped(broker))

    def _stopped(self, broker: Broker) -> None:
        run = self._run
        if run.raining:
            if run.full is not broker and run.rng.random() < 0.5:
                # It came to its end in time: the next start reads no log.
                broker.flushing.close_clean()
                run.checks.mark("4 clean stop")
            run.end(broker, power=False)
