"""Processes that end: killed, without power, stopped by people, one or all, in the worst moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.node import Node
from simulator.world import MS, SECOND

STOP_US_MAX: Final = 40 * SECOND
"""After that a supervisor kills what it asked to stop."""

if TYPE_CHECKING:
    from simulator.run import Simulation


class ProcessFaults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run

    def crash(self, *, power: bool) -> None:
        up = self._run.up()
        leaders = [broker for key in self._run.keys if (broker := self._run.leader_of(key)) is not None]
        controllers = [broker for broker in up if broker.controls]
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
            self._run.crash(broker, power=False)
            self._run.start(broker)
            run, started = self._run, broker.run

            def again() -> None:
                if run.raining and broker.running and broker.run == started:
                    run.end(broker, power=True)

            run.world.after(run.rng.randint(1 * MS, 800 * MS), again)

    def voted(self, broker: Node) -> None:
        """It gave its vote: its process ends as soon as that is said, and is back at once."""
        if self._run.raining and self._run.rng.random() < self._run.plan.vote_kills:
            self._strike(broker.id, self._run.rng.randint(0, 2 * MS))

    def candidate(self, broker: Node) -> None:
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
                run.crash(broker, power=run.rng.random() < 0.5)
                run.world.after(run.rng.randint(1, run.plan.restart_us), lambda: run.start(broker))

        run.world.after(delay_us, strike)

    def crash_everybody(self) -> None:
        power = self._run.rng.random() < 0.5
        self._run.world.tell(f"everybody {'loses power' if power else 'is killed'}")
        for broker in self._run.up():
            self._run.end(broker, power=power)

    def stop(self) -> None:
        """A rolling restart's step: leadership is handed over before the process ends."""
        run = self._run
        up = [broker for broker in run.up() if not broker.stop_asked]
        if not up:
            return
        broker = run.rng.choice(up)
        run.world.tell(f"broker {broker.id} is asked to stop")
        broker.ask_to_stop()
        started = broker.run

        def enough() -> None:
            if broker.running and broker.run == started:
                run.world.tell(f"broker {broker.id} took too long to stop")
                run.end(broker, power=False)

        run.world.after(STOP_US_MAX, enough)

    def end_in_a_write(self) -> None:
        """A process ends between two things that it does to its disk."""
        up = self._run.up()
        if up:
            broker = self._run.rng.choice(up)
            broker.disk.crash_at = broker.disk.operations + self._run.rng.randint(0, 40)

    def stall(self) -> None:
        """A process stands still, as one that was stopped or whose machine swaps; or its disk does."""
        run = self._run
        up = run.up()
        if not up:
            return
        broker, until = run.rng.choice(up), run.world.now + run.rng.randint(50 * MS, 4 * SECOND)
        if run.rng.random() < 0.5:
            run.world.tell(f"broker {broker.id} stands still")
            run.disturbed_us = until
            broker.stall(until)
        else:
            run.world.tell(f"the disk of broker {broker.id} is slow")
            broker.slow_disk(until)
            run.disturbed_us = until
