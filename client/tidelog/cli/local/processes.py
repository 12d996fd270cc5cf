"""Child processes that never outlive us, and signals that never leave one behind.

A child runs in a process group of its own, so that Ctrl-C in the terminal reaches only
us and we stop the children in order; the kernel kills it when we die any other way.
`Signals` makes a stop wait while something is being started or removed.

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
"""A stop that has had no effect by then is raised once more."""

NEVER = float("inf")

PORT_MIN = 10_240
"""Below it are the ports of well-known services, and our own."""

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

    Later ones are passed over: by then everything is being stopped, and each step of
    that has a deadline. An exception that is raised in a finalizer is lost: it is raised again, unless
    `ignore` is called within `AGAIN_SECONDS`. A signal that comes right before a wait is handled only behind
    it, so no wait is without an end.
    """

    def __init__(self) -> None:
        self._held = 0
        self._pending = False
        self._stopped = False
        self._again_at = NEVER
        """When a stop that was raised has had no effect; `time.monotonic`."""
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
        """There was a stop already, and it may still have its effect."""
        return self._stopped and time.monotonic() < self._again_at

    def ignore(self) -> None:
        """From here on only the end is left."""
        self._stopped = True
        self._again_at = NEVER
        if self._timer is not None:
            self._timer.cancel()
            # Its signal comes now or never: later it would meet whoever handles signals then.
            self._timer.join()

    def _raise(self) -> None:
        self._stopped = True
        self._again_at = time.monotonic() + AGAIN_SECONDS
        main = threading.main_thread().ident
        assert main is not None, "it runs"
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
    """A process of ours; its output goes to a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, log_start: int = 0) -> None:
        """`log_start`: where the output of this process begins in its log. Bytes."""
        self.name = name
        self._log_start = log_start
        self.process = process
        self.log = log
        self.log_kept = True
        """The log is there to be read when we have ended."""

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
        """For a sentence; it has ended."""
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

    def last_words(self) -> str:
        """The end of its output, on one line."""
        lines = self.output().strip().splitlines()
        return " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:])

    def wait_ready(self, ready: Callable[[], bool], seconds_max: float) -> None:
        """Returns when `ready` says so; raises `ChildFailed` if the child ends or is too slow."""
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
        """What `stop` does first, for who stops several."""
        if self.running:
            self.process.terminate()

    def kill(self) -> None:
        """Makes it end, and what it started with it."""
        self._end_group()
        self.process.wait()

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> bool:
        """Asks it to end, and after a while makes it; whether it ended by itself."""
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
        """What the child started itself goes with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _why(self) -> str:
        return f"{self.last_words() or 'it wrote nothing'}{f' ({self.log})' if self.log_kept else ''}"


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
    """Starts a process in `folder` whose output goes to `log`, or its results to `stdout`.

    To be called within `Signals.held` where those are caught. `stdin` may be `subprocess.PIPE`.
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
    """Ends the command if somebody listens there, or we may not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            fail(
                f"this user may not listen on port {port} of {host}; choose another with {option}",
                Exit.ENVIRONMENT,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                fail(
                    f"port {port} of {host} is in use; stop what uses it or choose another with {option}",
                    Exit.ENVIRONMENT,
                )
            fail(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with {option}",
                Exit.ENVIRONMENT,
            )


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that were free a moment ago, all different.

    None that the system gives to outgoing connections, if there are others: one of those may be taken
    before whoever asked has come to listen.
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
            fail(f"{host} has no {count} free ports", Exit.ENVIRONMENT)
        return found


def _first_given_out() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
