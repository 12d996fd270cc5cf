"""The driver of an Ingestion in its pod: what it prepares, and what it leaves for Kubernetes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from support.waiting import wait_until
from tidelog_spark.kubernetes.driver import Pod, main, pod_settings, prepare
from tidelog_spark.kubernetes.reports import MESSAGE_BYTES_MAX, ReportServer, last_words

ENTRY = Path(__file__).parents[2] / "spark-jobs" / "entrypoint.sh"

JOB = """
import json, os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
open(given["--report"], "w").write(json.dumps({"rows": 7, "lag": 2, "offsets": {"orders": {"0": 9}}}))
open(given["--termination-log"], "w").write("No broker answers.\\n")
sys.exit(75)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the operator mounts."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "job.yaml").write_text("servers: main:9210\n")
    (folder / "spark-defaults.conf").write_text("spark.master k8s://https://kubernetes.default.svc\n")
    (folder / "..data").mkdir()
    for name, value in (
        ("NAME", "orders-29401234-abcde"),
        ("UID", "0f3a-1b2c-d4e5-f607"),
        ("IP", "10.1.2.3"),
    ):
        monkeypatch.setenv(f"TIDELOG_POD_{name}", value)
    return folder


def test_the_names_of_executors_are_unique_and_short_enough() -> None:
    first = pod_settings(Pod("a" * 60, "0f3a1b2c-d4e5-f607-0000-000000000001", "10.0.0.1"))
    second = pod_settings(Pod("a" * 60, "1f3a1b2c-d4e5-f607-0000-000000000001", "10.0.0.1"))

    prefix = "spark.kubernetes.executor.podNamePrefix"
    assert first[prefix] != second[prefix]
    assert len(first[prefix]) == 47


def test_an_address_of_version_6_has_brackets() -> None:
    assert pod_settings(Pod("a", "b", "fd00::1"))["spark.driver.host"] == "[fd00::1]"


def test_a_driver_without_executors_gets_no_settings_of_the_pod(source: Path, tmp_path: Path) -> None:
    (source / "spark-defaults.conf").write_text("spark.master local[2]\n")

    prepare(source, tmp_path / "copy", Pod("a", "b", "10.0.0.1"))

    assert (tmp_path / "copy" / "spark-defaults.conf").read_text() == "spark.master local[2]\n"


def test_a_failed_job_leaves_its_report_and_its_last_words(source: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination-log"

    code = main(source, tmp_path / "copy", termination, (sys.executable, "-c", JOB), port=0)

    assert code == 75
    left = json.loads(termination.read_text())
    assert left == {"rows": 7, "lag": 2, "offsets": {"orders": {"0": 9}}, "message": "No broker answers."}
    conf = (tmp_path / "copy" / "spark-defaults.conf").read_text()
    assert "spark.kubernetes.driver.pod.name orders-29401234-abcde\n" in conf
    assert "spark.kubernetes.executor.podNamePrefix orders-29401234-abcde-0f3a1b2cd4e5\n" in conf


def test_a_job_that_says_nothing_leaves_its_log_to_kubernetes(source: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination-log"

    code = main(
        source, tmp_path / "copy", termination, (sys.executable, "-c", "import os; os.abort()"), port=0
    )

    assert code == 128 + signal.SIGABRT
    assert not termination.exists()


def test_a_killed_job_leaves_its_report_and_the_reason(source: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination-log"
    first, _ = JOB.split('open(given["--termination-log"]')
    job = first + "os.kill(os.getpid(), 9)"

    code = main(source, tmp_path / "copy", termination, (sys.executable, "-c", job), port=0)

    assert code == 128 + signal.SIGKILL
    left = json.loads(termination.read_text())
    assert left["rows"] == 7
    assert left["message"].startswith("Its Java process was killed by SIGKILL.")


def test_sigterm_reaches_the_job(source: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    job = f"import signal; open({str(started)!r}, 'w'); signal.pause()"

    def stop() -> None:
        wait_until(started.exists, "the job has started")
        os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    code = main(source, tmp_path / "copy", tmp_path / "words", (sys.executable, "-c", job), port=0)
    stopping.join()

    assert code == 128 + signal.SIGTERM


def test_the_report_is_served_while_the_job_runs(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"rows": 3}')

    with ReportServer(report, 0, "127.0.0.1") as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/report", timeout=5) as answer:
            assert json.loads(answer.read()) == {"rows": 3}
        report.unlink()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/report", timeout=5) as answer:
            assert json.loads(answer.read()) == {}


def test_last_words_always_fit_into_a_termination_message() -> None:
    many = {"orders": {str(one): 10**12 for one in range(1000)}}

    words = last_words({"rows": 1, "offsets": many}, "\N{SNOWMAN}" * 5000)

    assert len(words) <= MESSAGE_BYTES_MAX
    found = json.loads(words)
    assert (found["rows"], "offsets" in found) == (1, False)
    assert found["message"].endswith("\N{SNOWMAN}…")


def test_an_executor_is_started_as_spark_says(tmp_path: Path) -> None:
    for name in ("tini", "bin/java"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
        program.chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/opt/spark",
        "SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=$e", "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_DRIVER_URL": "spark://x@10.1.2.3:7078", "SPARK_EXECUTOR_ID": "1", "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "orders-exec-1",
    }  # fmt: skip

    done = subprocess.run([ENTRY, "executor"], env=given, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "-s", "--", f"{tmp_path}/bin/java", "-Da=b c", "-Dd=$e", "-Xms1024m", "-Xmx1024m",
        "-cp", "/opt/spark/jars/*", "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://x@10.1.2.3:7078", "--executor-id", "1", "--cores", "2",
        "--app-id", "spark-1", "--hostname", "10.1.2.4", "--resourceProfileId", "0",
        "--podName", "orders-exec-1",
    ]  # fmt: skip
