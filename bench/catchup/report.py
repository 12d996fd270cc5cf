"""The results of `bench.catchup`: phases, their medians and two ratios, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.harness.model import Facts
from bench.harness.report import FILE_WIDTH, number
from bench.harness.results import Entry, ratio_of
from bench.measuring.machine import QUIET_CPUS_MAX

BASELINE = "no reader"
OURS = "tidelog readers"
PLAIN = "plain program"
KINDS = (BASELINE, OURS, PLAIN)

RATIO_MAX = 1.5
"""The aim: a p99 beside our readers is at most this many times the p99 beside the plain program."""

JUDGED = {"produce_p99_ms": "catchup.produce_p99", "flush_p99_ms": "catchup.flush_p99"}
"""The values that the ratios compare, with the case's name in the JSON."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement: some seconds of producing, with or without readers beside it."""

    round: int
    kind: str
    produce_p50_ms: float
    produce_p99_ms: float
    produce_p999_ms: float
    requests: float
    flush_p50_ms: float
    flush_p99_ms: float
    flushes: float
    read_mb_per_s: float
    """Received by the readers."""
    disk_mb_per_s: float
    """Read from the disk for them, as the kernel counts."""
    reader_cpus: float
    """CPU seconds per second of the reading processes."""
    broker_cpus: float
    """CPU seconds per second of the broker, producing included."""
    foreign_cpus: float
    """CPUs that other programs kept busy meanwhile."""


VALUES = tuple(field.name for field in fields(Phase) if field.name not in ("round", "kind"))


def of_kind(phases: Sequence[Phase], kind: str) -> list[Phase]:
    return [phase for phase in phases if phase.kind == kind]


def medians(phases: Sequence[Phase], kind: str) -> dict[str, float]:
    """The median of each value over the rounds."""
    chosen = of_kind(phases, kind)
    return {name: median(getattr(phase, name) for phase in chosen) for name in VALUES}


def cpus_to_burn(phases: Sequence[Phase]) -> float:
    """CPUs that our readers cost: of their processes, and of the broker above its need without readers."""
    alone = medians(phases, BASELINE)["broker_cpus"]
    return median(phase.reader_cpus + max(0.0, phase.broker_cpus - alone) for phase in of_kind(phases, OURS))


def entries(phases: Sequence[Phase], settings: Facts) -> list[Entry]:
    """The two ratios in the form of the harness, where a `ratio` over 1 means that ours is better."""
    by_kind = {kind: medians(phases, kind) for kind in KINDS}
    found = []
    for name, case in JUDGED.items():
        ours, plain = by_kind[OURS][name], by_kind[PLAIN][name]
        facts = {
            **settings,
            "ours_to_plain": round(ours / plain, 3),
            "ours_to_plain_max": RATIO_MAX,
            "quiet": all(phase.foreign_cpus <= QUIET_CPUS_MAX for phase in phases),
            "medians": {
                kind: {key: round(value, 4) for key, value in values.items()}
                for kind, values in by_kind.items()
            },
            "phases": [asdict(phase) for phase in phases],
        }
        ratio = ratio_of(ours, plain, more_is_better=False)
        found.append(Entry(case, "ms", ours, PLAIN, plain, ratio, facts))
    return found


def table(phases: Sequence[Phase]) -> Table:
    """A line for each phase, then the medians."""
    shown = Table(title="Producing at a fixed rate beside readers of old records")
    for name in ("round", "beside it"):
        shown.add_column(name, no_wrap=True)
    for name in (
        "produce p50 ms", "p99", "p99.9", "flush p50 ms", "p99", "flushes",
        "read MB/s", "from disk", "reader CPUs", "broker CPUs", "foreign",
    ):  # fmt: skip
        shown.add_column(name, justify="right")
    for phase in phases:
        shown.add_row(str(phase.round), phase.kind, *_cells({name: getattr(phase, name) for name in VALUES}))
    shown.add_section()
    for kind in KINDS:
        shown.add_row("median", kind, *_cells(medians(phases, kind)), style="bold")
    return shown


def _cells(values: dict[str, float]) -> list[str]:
    return [number(value) for name, value in values.items() if name != "requests"]


def print_report(phases: Sequence[Phase], found: Sequence[Entry], machine: Facts) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    console.print(table(phases))
    for entry in found:
        assert entry.theirs is not None
        ratio = entry.ours / entry.theirs
        style = "green" if ratio <= RATIO_MAX else "yellow"
        console.print(
            f"{entry.case}: {number(entry.ours)} ms with our readers, {number(entry.theirs)} ms with the "
            f"plain program: [{style}]{ratio:.2f}×[/] (aim: {RATIO_MAX:g}× at most)",
            highlight=False,
        )
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    if any(not entry.settings["quiet"] for entry in found):
        console.print("[yellow]Other programs used the processors meanwhile: see the column foreign.[/]")
