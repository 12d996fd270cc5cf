"""Child processes that end with their parent, and stop signals that leave no child behind.

A child runs in a process group of its own. Ctrl-C in the terminal therefore reaches only the parent, which
stops its children in order. If the parent ends in any other way, the kernel kills the children. `Signals`
puts a stop off while a process is being started or files are being removed.

The chaos runs, the benchmarks and the tests start their brokers with the same `start` and `Child`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from tidelog.cli.errors import CommandError, Exit, fail
from tidelog.cli.local.waiting import holds_within

STOP_SECONDS_MAX = 20.0
LOG_TAIL_LINES = 5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_SECONDS = 1.0
"""After this time a stop that had no effect is raised once more."""

NEVER = float("inf")

PORT_MIN = 10_240
"""Lower ports belong to well-known services and to Tidelog itself."""

PORT_TRIES_MAX = 1_000

_choice = random.SystemRandom()

_GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    os._exit(1)  # the parent was gone before the kernel knew what to do then
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""What a child runs first: the kernel kills it when its parent ends. Then it becomes the wanted program.

A function of ours between fork and exec could do the same, but not where threads run, as gRPC's do.
"""

_starting = ThreadPoolExecutor(1, "tidelog-starts-processes")
"""Starts all children: the kernel kills a child when the thread that started it ends. This one lives on."""


class Signals:
    """Turns the first stop signal into KeyboardInterrupt, at a moment when nothing gets lost.

    Later signals are ignored: by then everything is being stopped, and each step of that has a deadline.
    Python drops an exception that is raised in a finalizer. The stop is therefore raised again, unless
    `ignore` is called within `AGAIN_SECONDS`. A signal that arrives right before a wait is handled only after
    the wait, so every wait must have an end.
    """

    def __init__(self) -> None:
        self._held = 0
        self._pending = False
        self._stopped = False
        self._again_at = NEVER
        """When a stop counts as lost; `time.monotonic`."""
        self._timer: threading.Timer | None = None
        self._cancel: Callable[[], object] | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Handles the stop signals for the length of a `with` block."""
        before = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            self.ignore()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Puts a stop off until the block has ended."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._pending and not self._held and not self._passed_over:
                self._pending = False
                self._raise()

    @contextlib.contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Calls `cancel` instead of raising: an event loop is running."""
        self._cancel = cancel
        try:
            yield
        finally:
            self._cancel = None

    @property
    def _passed_over(self) -> bool:
        """There was a stop already, and it is not lost."""
        return self._stopped and time.monotonic() < self._again_at

    def ignore(self) -> None:
        """Ignores stop signals from now on: only the end is left."""
        self._stopped = True
        self._again_at = NEVER
        if self._timer is not None:
            self._timer.cancel()
            # Its signal must not arrive later, when another handler is in place.
            self._timer.join()

    def _raise(self) -> None:
        self._stopped = True
        self._again_at = time.monotonic() + AGAIN_SECONDS
        main = threading.main_thread().ident
        assert main is not None, "the main thread runs"
        self._timer = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (main, signal.SIGTERM))
        self._timer.daemon = True
        self._timer.start()
        raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._passed_over:
            return
        if self._held:
            self._pending = True
        elif self._cancel is not None:
            self._stopped = True
            self._again_at = NEVER
            self._cancel()
        else:
            self._raise()


class ChildFailed(CommandError):
    """A child ended or was too slow; the message says how, with the last lines that it wrote."""


class Child:
    """A child process, whose output goes to a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, log_start: int = 0) -> None:
        """`log_start`: where the output of this process begins in its log. Bytes."""
        self.name = name
        self._log_start = log_start
        self.process = process
        self.log = log
        self.log_kept = True
        """The log file is still there after this process has ended."""

    def __repr__(self) -> str:
        state = "running" if self.running else f"exit code {self.process.returncode}"
        return f"<Child {self.name} pid={self.process.pid} {state}>"

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def subject(self) -> str:
        """The name as the subject of a sentence: ``the NATS server``, ``broker 1``."""
        return self.name if self.name[-1].isdigit() else f"the {self.name}"

    def how_it_ended(self) -> str:
        """The end of a sentence about a process that has ended."""
        code = self.process.returncode
        if code < 0:
            return f"was killed ({signal.Signals(-code).name})"
        return f"ended with code {code}: {self._why()}"

    def output(self) -> str:
        """All that this process has written to its log."""
        try:
            written = self.log.read_bytes()
        except OSError:
            return ""
        return written[self._log_start :].decode("utf-8", "replace")

    def log_tail(self) -> str:
        """The last lines of its output, on one line."""
        lines = self.output().strip().splitlines()
        return " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:])

    def wait_ready(self, ready: Callable[[], bool], seconds_max: float) -> None:
        """Returns when `ready` gives true; raises `ChildFailed` if the process ends or is too slow."""
        is_ready = False

        def ready_or_ended() -> bool:
            nonlocal is_ready
            is_ready = ready()
            return is_ready or not self.running

        if not holds_within(ready_or_ended, seconds_max):
            raise ChildFailed(self.too_slow(seconds_max))
        if not is_ready:
            raise ChildFailed(f"{self.subject} {self.how_it_ended()}")

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process itself; without effect when it has ended."""
        self.process.send_signal(number)

    def too_slow(self, seconds: float) -> str:
        """The sentence for a process that was not ready in time."""
        return f"{self.subject} was not ready within {seconds:g} s: {self._why()}"

    def ask_to_stop(self) -> None:
        """The first step of `stop`, to stop several processes at the same time."""
        if self.running:
            self.process.terminate()

    def kill(self) -> None:
        """Kills the process, and the processes that it started."""
        self._end_group()
        self.process.wait()

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> bool:
        """Asks the process to end, and kills it after a while; returns False if it had to be killed."""
        if not self.running:
            self._end_group()
            return True
        self.process.terminate()
        try:
            self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._end_group()
            self.process.wait()
        return True

    def _end_group(self) -> None:
        """Kills the processes that the child started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _why(self) -> str:
        return f"{self.log_tail() or 'it wrote nothing'}{f' ({self.log})' if self.log_kept else ''}"


def start(
    name: str,
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: Path | None = None,
    folder: Path | None = None,
) -> Child:
    """Starts a process in `folder` whose output goes to `log`, or its standard output to `stdout`.

    Call it within `Signals.held` where signals are caught. `stdin` may be `subprocess.PIPE`.
    """
    log_start = log.stat().st_size if log.exists() else 0
    with log.open("ab") as errors, (stdout or log).open("ab") as output:
        starting = _starting.submit(
            subprocess.Popen,
            guarded(argv),
            stdin=stdin,
            stdout=output,
            stderr=errors,
            env=env,
            cwd=folder,
            process_group=0,
        )
        return Child(name, starting.result(), log, log_start)


def guarded(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in a process which ends when this one does, however it ends."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *argv]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def check_port(host: str, port: int, option: str) -> None:
    """Ends the command if the port is in use, or this user may not listen on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            fail(
                f"this user may not listen on port {port} of {host}; choose another port with {option}",
                Exit.ENVIRONMENT,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                fail(
                    f"port {port} of {host} is in use; stop the program that uses it, "
                    f"or choose another with {option}",
                    Exit.ENVIRONMENT,
                )
            fail(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port with {option}",
                Exit.ENVIRONMENT,
            )


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that were free a moment ago.

    If possible, none of the ports that the system gives to outgoing connections: a connection could take
    one of them before the caller listens on it.
    """
    given_out = _first_given_out()
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for _ in range(PORT_TRIES_MAX):
            if len(found) == count:
                break
            wanted = _choice.randrange(PORT_MIN, given_out) if given_out > PORT_MIN else 0
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((host, wanted))
                found.append(int(probe.getsockname()[1]))
        else:
            fail(f"{count} free ports were not found on {host}", Exit.ENVIRONMENT)
        return found


def _first_given_out() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
