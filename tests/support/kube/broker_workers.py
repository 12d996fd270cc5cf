"""What a kubelet does for a pod with a broker: mounts, a real process, probes, restarts, the preStop hook,
and the end of the pod.

Neighbours: `containers` translates a manifest to this machine, `volumes` has the folders of claims, `probes`
runs probes. Not simulated: init containers, images, resources, security contexts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.kube.api import Json
from support.kube.containers import NotYet, Surroundings
from support.kube.pod_workers import LOOK_SECONDS, Machine, PodWorker, now_text
from support.kube.probes import Health, answers_well

PROBE_SECONDS: Final = 0.2
"""Seconds between two probes of a broker that is not ready."""

READY_PROBE_SECONDS: Final = 1.0
"""Seconds between two probes of a ready broker."""

RESTART_SECONDS: Final = 0.2
RESTART_SECONDS_MAX: Final = 2.0
"""A container that ends is restarted after the first of these pauses, then after twice that, up to the
second."""

TERM_SECONDS_MIN: Final = 2.0
"""Seconds that remain after SIGTERM, however long preStop took."""


@dataclass
class Run:
    """One process of a broker's container, from its start to its end."""

    process: subprocess.Popen[bytes]
    health: Health
    probed_at: float = 0.0
    began: str = field(default_factory=now_text)
    began_at: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None


class BrokerWorker(PodWorker):
    """Runs the broker of a pod: its process, and the folders that are mounted into it."""

    def __init__(self, pod: Json, container: Json, machine: Machine) -> None:
        super().__init__(pod, machine)
        self._broker = container
        self._folder = machine.folder / self.uid
        self._versions: dict[str, str] = {}
        """The versions of the ConfigMaps as they were written, by the name of the volume."""
        self._waits_for = ("ContainerCreating", "")
        self._run: Run | None = None
        self._restarts = 0
        self._ended: Json = {}
        """How the last process ended."""
        self._pause_seconds = RESTART_SECONDS
        self._not_before = 0.0
        self.surroundings: Surroundings | None = None
        """Set once everything was mounted."""

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process that runs."""
        return None if self._run is None or self._run.ended else self._run.process

    def uses(self, claim: str) -> bool:
        volumes = self.pod["spec"].get("volumes", ())
        return any(one.get("persistentVolumeClaim", {}).get("claimName") == claim for one in volumes)

    def kill(self) -> None:
        """Kills the process with SIGKILL, if there is one, and returns after its end."""
        process = self.process
        if process is not None:
            _kill(process)

    # --- mounts

    def _mount(self, volume: Json) -> Path:
        match volume:
            case {"persistentVolumeClaim": {"claimName": str(claim)}}:
                return self._machine.volumes.folder_of(self.namespace, claim)
            case {"configMap": {"items": _}}:
                raise NotYet(f"the volume {volume['name']} chooses items of a ConfigMap: not played here")
            case {"configMap": source}:
                there = (self.namespace, source["name"]) in self._machine.config_maps.objects
                if not there and not source.get("optional"):
                    raise NotYet(f"there is no ConfigMap {source['name']}")
            case {"emptyDir": _}:
                pass
            case _:
                raise NotYet(
                    f"the volume {volume['name']} is not played here, only persistentVolumeClaim, configMap "
                    "and emptyDir"
                )
        folder = self._folder / str(volume["name"])
        folder.mkdir(exist_ok=True)
        return folder

    def _look_around(self) -> Surroundings:
        """Mounts what exists now. Raises `NotYet`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        volumes = {one["name"]: self._mount(one) for one in self.pod["spec"].get("volumes", ())}
        mounts = {
            one["mountPath"].rstrip("/"): volumes[one["name"]] / one.get("subPath", "")
            for one in self._broker.get("volumeMounts", ())
        }
        return Surroundings(self.pod, self.address, mounts, self._machine.address_of)

    def _write_config_maps(self) -> None:
        """Writes the current content: a file for each key, each replaced atomically."""
        assert self.surroundings is not None, "it was mounted"
        for volume in self.pod["spec"].get("volumes", ()):
            source = volume.get("configMap")
            if source is None:
                continue
            found = self._machine.config_maps.objects.get((self.namespace, source["name"]))
            if found is None and not source.get("optional"):
                continue
            version = "" if found is None else found["metadata"]["resourceVersion"]
            if self._versions.get(volume["name"]) != version:
                files = {} if found is None else found.get("data", {})
                _write_files(
                    self._folder / volume["name"],
                    {name: self.surroundings.resolve(text) for name, text in files.items()},
                )
                self._versions[volume["name"]] = version

    # --- the process

    async def _look(self) -> None:
        if self.surroundings is not None:
            self._write_config_maps()
        if self._run is None:
            self._start()
        elif self._run.ended:
            self._learn_of_end(self._run)
        else:
            await self._probe(self._run)

    def _start(self) -> None:
        if time.monotonic() < self._not_before:
            return
        try:
            if (self.namespace, self.name) in self._machine.held:
                raise NotYet("the test holds it")
            self.surroundings = self._look_around()
            self._write_config_maps()
            self._run = Run(self._spawn(self.surroundings.command(self._broker)), Health(self._broker))
        except NotYet as error:
            self._waits_for = ("CreateContainerError" if self._restarts else "ContainerCreating", str(error))

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Runs a command in the container: with its environment, and with its output in the log of the
        pod."""
        assert self.surroundings is not None, "it was mounted"
        # Brokers are configured by their manifests alone.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        inherited["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{inherited.get('PATH', os.defpath)}"
        temporary = self.surroundings.folders.get("/tmp")
        if temporary is not None:
            inherited["TMPDIR"] = str(temporary)
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, process_group=0,
                env=inherited | self.surroundings.environment(self._broker),
            )  # fmt: skip

    @property
    def _log_path(self) -> Path:
        return self._machine.log_path(self.namespace, self.name)

    def _note(self, text: str) -> None:
        """Writes a line between the lines of the processes."""
        with self._log_path.open("a", encoding="utf-8") as log:
            log.write(f"node: {text}\n")

    def _learn_of_end(self, run: Run) -> None:
        code = run.process.returncode
        self._note(f"the process ended with {code}")
        self._ended = {
            "terminated": {
                "exitCode": code if code >= 0 else 128 - code,
                "signal": max(-code, 0),
                "reason": "Error" if code else "Completed",
                "startedAt": run.began,
                "finishedAt": now_text(),
            }
        }
        if time.monotonic() - run.began_at > 2 * RESTART_SECONDS_MAX:
            self._pause_seconds = RESTART_SECONDS
        self._not_before = time.monotonic() + self._pause_seconds
        self._waits_for = ("CrashLoopBackOff", f"started again in {self._pause_seconds:g} s")
        self._pause_seconds = min(2 * self._pause_seconds, RESTART_SECONDS_MAX)
        self._restarts += 1
        self._run = None

    async def _probe(self, run: Run) -> None:
        pause = READY_PROBE_SECONDS if run.health.ready else PROBE_SECONDS
        if time.monotonic() < run.probed_at + pause:
            return
        run.probed_at = time.monotonic()
        for name in run.health.due:
            good = await answers_well(self._machine.web, self.address, self._broker, self._broker[name])
            run.health.hear(name, good, time.monotonic())
        failed = run.health.failed
        if failed:
            self._note(f"the {failed} has failed")
            grace = self.pod["spec"]["terminationGracePeriodSeconds"]
            grace = self._broker[failed].get("terminationGracePeriodSeconds", grace)
            await self._end(run, time.monotonic() + grace)

    # --- the end

    async def _stop(self) -> None:
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds", 0)
        if self._run is not None:
            await self._end(self._run, time.monotonic() + grace)

    async def _end(self, run: Run, deadline: float) -> None:
        """Runs preStop, SIGTERM, SIGKILL; at once for a pod that is gone."""
        hook = self._broker.get("lifecycle", {}).get("preStop")
        if hook is not None and not run.ended and not self.gone:
            assert "exec" in hook, f"of hooks only exec is played here, not {hook}"
            await self._pre_stop(hook["exec"]["command"], deadline)
        if not run.ended and not self.gone:
            self._note("SIGTERM")
            run.process.send_signal(signal.SIGTERM)
            await self._ends(run.process, max(deadline, time.monotonic() + TERM_SECONDS_MIN))
        if not run.ended:
            self._note("SIGKILL")
            _kill(run.process)

    async def _pre_stop(self, command: list[str], deadline: float) -> None:
        assert self.surroundings is not None, "it was mounted"
        self._note(f"preStop {' '.join(command)}")
        process = self._spawn([self.surroundings.resolve(word) for word in command])
        try:
            await self._ends(process, deadline)
        finally:
            _kill(process)
        self._note(f"preStop ended with {process.returncode}")

    async def _ends(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Returns when it has ended, or when the pod is gone."""
        while process.poll() is None and not self.gone and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    def _clean_up(self) -> None:
        if self._run is not None:
            _kill(self._run.process)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- status

    def _phase(self) -> str:
        return "Running" if self._run is not None or self._restarts else "Pending"

    def _container_statuses(self) -> list[Json]:
        others = [one for one in self.pod["spec"]["containers"] if one["name"] != self._broker["name"]]
        return [self._broker_status(), *(self._container(one, running=True) for one in others)]

    def _broker_status(self) -> Json:
        run = self._run
        status = self._container(self._broker, running=False)
        status |= {"restartCount": self._restarts, "lastState": self._ended}
        if run is None:
            reason, message = self._waits_for
            return status | {"state": {"waiting": {"reason": reason, "message": message}}}
        return status | {
            "ready": run.health.ready,
            "started": run.health.started,
            "state": {"running": {"startedAt": run.began}},
        }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write_files(folder: Path, files: dict[str, str]) -> None:
    for gone in {one.name for one in folder.iterdir()} - set(files):
        (folder / gone).unlink()
    for name, text in files.items():
        new = folder / f".{name}.new"
        new.write_text(text, "utf-8")
        new.replace(folder / name)
