"""Finds the program, checks its version, and executes it: never through a shell."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import IO, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._errors import RunnerError
from ._flags import env_flags
from ._version import __version__

# Variables of the caller that change how the program prints.
_FORM_VARIABLES = ("RUNNER_LOG",) + tuple(
    f"RUNNER_OPT_{name}"
    for name in "COLOR DETACH FOLLOW FOLLOW_LINK INTERACTIVE JSON LOG_FORMAT QUIET STATS TTY VERBOSE".split()
)
# The end of what the program prints when it refuses.
_REFUSAL = re.compile(
    rb"runner: (?:refused|failed): ([^\n]*) \(([A-Za-z0-9_-]+)\)\n(?:runner: hint: ([^\n]*)\n)?\Z"
)
_CHUNK = 1 << 16
# How long a command may take to end after each request.
_GRACE_S = 2.0


stop_channel: ContextVar[Optional[socket.socket]] = ContextVar("stop_channel", default=None)
"""A socket that becomes readable when the call of this thread shall end; `runner_sandbox.aio` sets it."""


class Stopped(Exception):
    """The call was ended through `stop_channel`."""


@dataclass
class Output:
    """A stream that was read to its end; of what is beyond the limit only the size is kept."""

    limit: Optional[int]
    kept: bytearray
    dropped: int = 0

    def add(self, chunk: bytes) -> None:
        room = len(chunk) if self.limit is None else max(self.limit - len(self.kept), 0)
        self.kept += chunk[:room]
        self.dropped += max(len(chunk) - room, 0)

    def cut_message(self, start: bytes) -> None:
        """Removes the line that the program itself has written last."""
        at = self.kept.rfind(start)
        if at >= 0 and not self.dropped:
            del self.kept[at:]


@dataclass
class Done:
    """An execution of the program that has ended."""

    code: int
    stdout: Output
    stderr: Output
    document: Output
    """What it wrote to its end of ``channel``."""

    def refusal(self) -> RunnerError:
        """The error that the program has printed last."""
        match = _REFUSAL.search(bytes(self.stderr.kept)) if self.code == 125 else None
        if match is None:
            printed = bytes(self.stderr.kept[-500:]).decode("utf-8", "backslashreplace")
            return RunnerError("unknown", f"runner ended with code {self.code} and printed {printed!r}")
        message, code, hint = (part.decode("utf-8", "replace") if part else None for part in match.groups())
        return RunnerError(code or "", message or "", hint)

    def check(self) -> Done:
        if self.code != 0:
            raise self.refusal()
        return self


@dataclass(frozen=True)
class Program:
    """The program, found and of a version that this client drives."""

    path: str

    def call(
        self,
        words: Sequence[str],
        *,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[bytes] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
        is_apart: bool = False,
        channel: Optional[Tuple[socket.socket, socket.socket]] = None,
    ) -> Done:
        """Executes it to its end. If the caller is interrupted, it is asked to end, and waited for.

        ``env``: for the command, not for the program. ``is_apart``: in a session of its own, where it gets no signal from the terminal.
        ``channel``: its second end becomes the program's, under the same number.
        """
        process: Optional[subprocess.Popen[bytes]] = None
        parent_end, child_end = channel or (None, None)
        verb_end = 2 if words[0] == "sandbox" else 1
        try:
            with env_flags(env) as flags:
                # Until Popen returns nobody knows the process.
                with held_interrupt():
                    process = subprocess.Popen(
                        [self.path, *words[:verb_end], *flags, *words[verb_end:]],
                        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        env=_environment(),
                        start_new_session=is_apart,
                        pass_fds=[child_end.fileno()] if child_end else (),
                    )
                if child_end is not None:
                    # Otherwise the end of the document would not be seen.
                    child_end.close()
                outputs = _pump(process, stdin, parent_end, limit, timeout)
                code = process.wait()
        except BaseException:
            if process is not None:
                with process:
                    _stop(process)
            raise
        return Done(code if code >= 0 else 128 - code, *outputs)

    def start(self, words: Sequence[str]) -> Service:
        """Executes it in a session of its own, and returns once it has printed a line.

        Raises `RunnerError` if it ends before.
        """
        service: Optional[Service] = None
        try:
            with held_interrupt():
                process = subprocess.Popen(
                    [self.path, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=_environment(),
                    start_new_session=True,
                )
                service = Service(process)
            service.line = _first_line(process)
            if not service.line.endswith(b"\n"):
                code = process.wait()
                service.stop()
                raise Done(code, Output(0, bytearray()), service.errors, Output(0, bytearray())).refusal()
        except BaseException:
            if service is not None:
                service.stop()
            raise
        return service


class Service:
    """An execution of the program that goes on until it is stopped."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.line = b""
        """The first line that it has printed."""
        self.errors = Output(_CHUNK, bytearray())
        self._process = process
        # It must be able to write its warnings.
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        with held_interrupt(), self._process:
            _stop(self._process)
            self._reader.join()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := os.read(self._process.stderr.fileno(), _CHUNK):
            self.errors.add(chunk)


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    """What it prints, to the end of a line or of the output."""
    assert process.stdout is not None
    stop = stop_channel.get()
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if stop is not None:
            selector.register(stop, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            for key, _events in selector.select():
                if key.fileobj is stop:
                    raise _stopped(stop)
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    return line
                line += chunk
    return line


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Holds back what Ctrl-C does to the end of the block: for what must not be left half done."""
    previous = signal.getsignal(signal.SIGINT)
    # Python tells the main thread alone.
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    received: List[Optional[FrameType]] = []
    signal.signal(signal.SIGINT, lambda _number, frame: received.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received:
            previous(signal.SIGINT, received[0])


def find_program(path: Optional[str] = None) -> Program:
    """The program at ``path``, else that of ``RUNNER_PROGRAM``, else ``runner`` on the PATH.

    Raises `RunnerError` ``runner_missing`` or ``runner_version``.
    """
    asked = path or os.environ.get("RUNNER_PROGRAM") or "runner"
    found = shutil.which(asked)
    if found is None:
        raise RunnerError(
            "runner_missing",
            f"the program {asked!r} was not found or is not executable",
            "install runner and put it on the PATH, or set RUNNER_PROGRAM to its path",
        )
    stat = os.stat(found)
    return _checked(os.path.abspath(found), stat.st_ino, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _checked(path: str, _inode: int, _mtime_ns: int) -> Program:
    wanted = __version__.rpartition(".")[0]
    try:
        done = Program(path).call(["--version"], limit=1000)
    except OSError as error:
        raise RunnerError("runner_missing", f"{path} cannot be executed: {error.strerror}", None) from error
    match = re.fullmatch(rb"runner ((\d+\.\d+)\.[\w.+-]+)\n", bytes(done.stdout.kept))
    if match is None or match[2].decode() != wanted:
        said = repr(bytes(done.stdout.kept[:100]).decode("utf-8", "backslashreplace"))
        raise RunnerError(
            "runner_version",
            f"{path} --version prints {said}; this client ({__version__}) needs runner {wanted}",
            f"install runner {wanted}, or the version of this client that belongs to the program",
        )
    return Program(path)


def _environment() -> "dict[str, str]":
    return {name: value for name, value in os.environ.items() if name not in _FORM_VARIABLES}


def _pump(
    process: "subprocess.Popen[bytes]",
    stdin: Optional[bytes],
    document: Optional[socket.socket],
    limit: Optional[int],
    timeout: Optional[float],
) -> List[Output]:
    """Writes the input and reads the streams and the document until they are closed."""
    deadline = None if timeout is None else time.monotonic() + timeout
    outputs = [Output(limit, bytearray()), Output(limit, bytearray()), Output(None, bytearray())]
    waiting = memoryview(stdin or b"")
    stop = stop_channel.get()
    with selectors.DefaultSelector() as selector:
        for output, pipe in zip(outputs, (process.stdout, process.stderr, document)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, output)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, None)
        if stop is not None:
            selector.register(stop, selectors.EVENT_READ, stop)
        while len(selector.get_map()) > (stop is not None):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"runner has not ended within {timeout} s")
            for key, _events in selector.select(left):
                if key.data is stop and stop is not None:
                    raise _stopped(stop)
                if key.data is None:
                    waiting = waiting[_write(key.fd, waiting) :]
                    is_done = not waiting
                else:
                    chunk = os.read(key.fd, _CHUNK)
                    key.data.add(chunk)
                    is_done = not chunk
                if is_done:
                    selector.unregister(key.fileobj)
                    _close(key.fileobj)  # type: ignore[arg-type]
    return outputs


def _stopped(stop: socket.socket) -> Stopped:
    # Calls that clean up go on.
    stop.recv(1)
    return Stopped("the task that waited for this call was cancelled")


def _write(fd: int, data: memoryview) -> int:
    try:
        return os.write(fd, data[:_CHUNK]) if data else 0
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        # The command reads no more input, as `head` does.
        return len(data)


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        pass


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Asks the program to end, twice; the second signal kills the command. Then it is killed itself."""
    for act in (process.terminate, process.terminate, process.kill):
        try:
            act()
            process.wait(_GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue
