"""Values from /proc, percentiles, and processes of servers and clients."""

import os
import random
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest
from bench.harness.build import digest
from bench.harness.processes import (
    CACHE,
    Failed,
    Server,
    accepts,
    free_port,
    run,
    run_for_json,
)
from bench.measuring.latency import summary_ms
from bench.measuring.machine import (
    TICKS_PER_SECOND,
    ForeignLoad,
    ProcessStat,
    busy_seconds,
    memory_mb,
    process_seconds,
    tree_seconds,
)


def test_busy_time_is_user_nice_and_system() -> None:
    stat = "cpu  100 20 30 4000 500 60 70 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"

    assert busy_seconds(stat) == 150 / TICKS_PER_SECOND


def test_a_process_may_have_spaces_and_parentheses_in_its_name() -> None:
    text = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 500 60 7 8 20 0 1 0 1 1 1 1"

    found = ProcessStat.parse(text)

    assert (found.pid, found.parent) == (42, 7)
    assert (found.own_seconds, found.ended_children_seconds) == (
        560 / TICKS_PER_SECOND,
        15 / TICKS_PER_SECOND,
    )


def test_cpu_time_of_a_child_counts_while_it_lives_and_when_it_has_ended() -> None:
    before = tree_seconds(os.getpid())
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    alive = tree_seconds(os.getpid()) - before
    assert process_seconds(child.pid) >= 0.2
    child.communicate("\n")
    ended = tree_seconds(os.getpid()) - before

    assert alive >= 0.2
    assert ended >= 0.2


def test_our_own_work_is_no_foreign_load() -> None:
    load = ForeignLoad()

    assert load.end() >= 0
    assert all(value > 1 for value in memory_mb(os.getpid()))


def test_percentiles_are_those_of_a_sorted_list_to_three_digits() -> None:
    rng = random.Random(5)
    latencies = [int(rng.lognormvariate(12, 1)) for _ in range(20_000)]
    latencies = [max(latency, 1000) for latency in latencies]
    ordered = sorted(latencies)

    found = summary_ms(latencies)

    for share, name in ((0.5, "p50_ms"), (0.99, "p99_ms"), (0.999, "p99.9_ms"), (1.0, "max_ms")):
        exact = ordered[max(0, round(share * len(ordered)) - 1)] / 1e6
        assert found[name] == pytest.approx(exact, rel=0.002)
    assert found["count"] == len(latencies)


def test_latencies_beyond_the_histogram_are_kept_at_its_ends() -> None:
    found = summary_ms([1, 10**15])

    assert found["p50_ms"] == pytest.approx(0.001, rel=0.05)
    assert found["max_ms"] == pytest.approx(60_000, rel=0.002)


def test_no_latencies_have_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no latencies"):
        summary_ms([])


def test_a_clients_result_is_the_last_line_that_it_prints() -> None:
    assert run_for_json([sys.executable, "-c", "print('hello'); print('{\"value\": 3}')"]) == {"value": 3}


def test_an_error_of_a_client_has_the_end_of_its_output() -> None:
    with pytest.raises(Failed, match="out of luck"):
        run([sys.executable, "-c", "raise SystemExit('out of luck')"])
    with pytest.raises(Failed, match="more than"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], seconds_max=0.2)
    with pytest.raises(Failed, match="no result"):
        run_for_json([sys.executable, "-c", "print('nothing')"])


def test_a_stopped_server_has_ended_and_its_folder_is_removed(tmp_path: Path) -> None:
    server = Server("http", tmp_path)
    port = free_port()
    folder = server.folder
    server.launch(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], lambda: accepts(port)
    )
    pid = server.pid

    server.stop()

    assert not folder.exists()
    assert not os.path.exists(f"/proc/{pid}")


def test_a_killed_server_starts_again_in_its_folder_with_the_log_of_this_run(tmp_path: Path) -> None:
    server = Server("sleeper", tmp_path)
    folder = server.folder

    def start(word: str) -> None:
        script = f"import time; print({word!r}, flush=True); time.sleep(60)"
        server.launch([sys.executable, "-c", script], lambda: word in server.log())

    try:
        start("first")
        server.signal(SIGKILL)
        start("second")

        assert server.running
        assert server.folder == folder
        assert server.log() == "second\n"
    finally:
        server.stop()


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    server = Server("broken", tmp_path)

    with pytest.raises(Failed, match="no port for me"):
        server.launch([sys.executable, "-c", "raise SystemExit('no port for me')"], lambda: False)

    assert list(tmp_path.iterdir()) == []


def test_a_build_is_named_after_the_contents_of_its_sources(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text("one")
    first = digest([source])
    assert digest([source]) == first

    source.write_text("two")

    assert digest([source]) != first
    assert CACHE.parent.name == ".build"
