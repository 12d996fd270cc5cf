"""What catch-up readers cost producers: ``python -m bench.catchup [--rounds 7] [--seconds 10]``.

Readers of old segments need the disk and the processors, and every log pays for that. A log is to blame
only for what its readers cost beyond that: a lock that is held, an event loop that is kept busy, a cache
that is spilled. So producing is measured beside our readers, and in turn, round after round, beside a plain
program that reads the same cold files at the same rate and uses the same CPU time.

- `__main__`: runs the rounds.
- `old_stream`: the stream that is read, and the commands of the readers.
- `load`: the producer, and the counters of a phase.
- `cold`: the plain program.
- `report`: the medians and the ratios.
"""
