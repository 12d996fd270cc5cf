"""Runs the job of an `Ingestion` in the pod of its driver: `python -m tidelog_spark.kubernetes.driver`.

The operator mounts the job's configuration file, Spark's settings and the template of executors. This module
copies them, so that a later change does not reach a run that has begun, adds what only this pod knows, and
starts the job with spark-submit. It passes on SIGTERM and SIGINT, and ends with the exit code of the job.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from tidelog_spark.kubernetes.reports import ReportServer, last_words, read_report

CONF_FILE: Final = "spark-defaults.conf"
JOB_FILE: Final = "job.yaml"

REPORT_PORT: Final = 7080

COMMAND: Final = (
    f"{os.environ.get('SPARK_HOME', '')}/bin/spark-submit",
    str(Path(__file__).with_name("job.py")),
    "ingest",
)

PREFIX_CHARACTERS_MAX: Final = 34
"""Characters of the pod's name in the names of executors: Spark allows 47, and 13 make the name unique."""
UID_CHARACTERS: Final = 12

SIGNAL_EXIT_BASE: Final = 128
KILLED: Final = (
    "Its Java process was killed by SIGKILL. The kernel does that if the pod reaches its memory limit: if it "
    "happens again, raise driver.memoryOverhead."
)
"""The last words of a job that could say nothing itself. The end of its log does not tell it either."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of this driver."""

    name: str
    uid: str
    ip: str


def pod_settings(pod: Pod) -> dict[str, str]:
    """Returns the settings of Spark that depend on the pod. The names of executors have the pod's uid, so
    that no two drivers choose the same names."""
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    first = re.sub(r"[^-a-z0-9]", "-", pod.name)[:PREFIX_CHARACTERS_MAX].rstrip("-")
    return {
        "spark.driver.host": host,
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.executor.podNamePrefix": f"{first}-{pod.uid.replace('-', '')[:UID_CHARACTERS]}",
    }


def prepare(source: Path, folder: Path, pod: Pod) -> None:
    """Copies the files of the Ingestion into `folder`, which becomes Spark's folder of settings."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        # The folder of a ConfigMap has links to hidden folders besides.
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    conf = folder / CONF_FILE
    text = conf.read_text("utf-8")
    if "spark.master k8s://" in text:
        text += "".join(f"{name} {value}\n" for name, value in pod_settings(pod).items())
    conf.write_text(text, "utf-8")


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the job, passes on signals, and returns its exit code."""
    # Java and Python are a group of processes of their own, and both get the signal.
    job = subprocess.Popen(command, env=environment, start_new_session=True)

    def pass_on(number: int, _: FrameType | None) -> None:
        os.killpg(job.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = job.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else SIGNAL_EXIT_BASE - code


def main(
    source: Path = Path("/etc/tidelog"),
    folder: Path = Path("/tmp/tidelog"),
    termination: Path = Path("/dev/termination-log"),
    command: Sequence[str] = COMMAND,
    port: int = REPORT_PORT,
) -> int:
    """Returns the exit code of the job."""
    pod = Pod(*(os.environ[f"TIDELOG_POD_{name}"] for name in ("NAME", "UID", "IP")))
    prepare(source, folder, pod)
    report, words = folder / "report.json", folder / "last-words"
    arguments = ["--config", str(folder / JOB_FILE), "--report", str(report), "--termination-log", str(words)]
    environment = {**os.environ, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_DIRS": "/tmp"}
    with ReportServer(report, port):
        code = run([*command, *arguments], environment)
    message = words.read_text("utf-8", "replace").strip() if words.exists() else ""
    if not message and code == SIGNAL_EXIT_BASE + signal.SIGKILL:
        message = KILLED
    if message or code == 0:
        termination.write_bytes(last_words(read_report(report), message))
    # Otherwise Kubernetes takes the last lines of the log.
    return code


if __name__ == "__main__":
    sys.exit(main())
