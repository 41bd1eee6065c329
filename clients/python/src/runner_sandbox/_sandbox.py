"""A sandbox that stays from one command to the next."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import tempfile
from pathlib import Path
from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Tuple, Type, TypeVar

from ._errors import RunnerError
from ._flags import PathLike, Paths, Size, Time, command_flags, sandbox_flags, time_of, words_of
from ._program import Done, Program, Service, find_program, held_interrupt
from ._result import Result
from .documents import CommandRecord, CommandResult, Denial, Report, SandboxListing, SandboxState

OUTPUT_MAX = 16 << 20
"""Bytes of each stream of a command that are kept, as ``runner run`` keeps them."""
READ_MAX = 64 << 20
"""Bytes of the largest file that `Sandbox.read` returns."""

S = TypeVar("S", bound="Sandbox")


class Sandbox:
    """A sandbox of ``runner sandbox``; ``with`` removes it at the end.

    `create` makes one; ``Sandbox(name)`` uses one that exists. A process that is killed cannot remove
    its sandbox: ``idle_timeout`` of `create` ends it then.
    """

    def __init__(self, name: str, *, program: Optional[str] = None) -> None:
        self.name = name
        self.report: Optional[Report] = None
        """The report of the whole sandbox: once it has ended, if `create` made it."""
        self._program: Program = find_program(program)
        self._directory: Optional[tempfile.TemporaryDirectory[str]] = None
        self._is_removed = False

    @classmethod
    def create(
        cls: Type[S],
        *,
        name: Optional[str] = None,
        snapshot: Optional[PathLike] = None,
        ro: Paths = (),
        rw: Paths = (),
        memory: Optional[Size] = None,
        timeout: Optional[Time] = None,
        idle_timeout: Optional[Time] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[PathLike] = None,
        net: Sequence[str] = (),
        flags: Sequence[str] = (),
        program: Optional[str] = None,
    ) -> S:
        """Creates a sandbox. Limits are those of all commands together, ``timeout`` that of the sandbox.

        ``snapshot`` is a file of `snapshot`, whose files it gets. Raises `RunnerError` if it was refused or could not be started.
        """
        sandbox = cls(name or f"py-{secrets.token_hex(8)}", program=program)
        sandbox._directory = tempfile.TemporaryDirectory(prefix="runner-client-")
        own = [f"--name={sandbox.name}", f"--json={sandbox._report_file()}"]
        own += [*sandbox_flags(ro, rw, memory, net, flags), *command_flags(cwd, timeout)]
        if idle_timeout is not None:
            own.append(f"--idle-timeout={time_of(idle_timeout)}")
        verb = ["create", *own] if snapshot is None else ["restore", *own, "--", _host_path(snapshot)]
        # A sandbox of that name may be there, which is not for us to remove.
        other = sandbox.state() if name else None
        try:
            done = sandbox._program.call(["sandbox", *verb], env=env, limit=1 << 16)
            if done.code != 0:
                raise sandbox._creation_error(done)
        except BaseException as error:
            sandbox._abandon(error, other)
            raise
        return sandbox

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.remove(force=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def denials(self) -> List[Denial]:
        """What all commands tried and were denied: once the sandbox has ended, if `create` made it."""
        return list(self.report["denials"]) if self.report else []

    def run(
        self,
        argv: Sequence[PathLike],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[PathLike] = None,
        timeout: Optional[Time] = None,
        input: Optional[bytes] = None,
        max_output: int = OUTPUT_MAX,
    ) -> Result:
        """Runs a command to its end. Of each stream the first ``max_output`` bytes are kept.

        Raises `RunnerError` if it could not be started, or the sandbox ended before it.
        """
        words = words_of(argv)
        own = command_flags(cwd, timeout)
        if input is not None:
            own.append("--interactive")
        done, ended = self._execute(own, words, env, input, max_output)
        assert ended["outcome"] is not None
        line = _LIMIT_LINES.get(ended["outcome"])
        if line is not None:
            done.stderr.cut_message(line)
        return Result(
            argv=words,
            outcome=ended["outcome"],
            exit_code=done.code,
            signal=ended["exit"]["signal"] if ended["exit"] else None,
            stdout=bytes(done.stdout.kept),
            stderr=bytes(done.stderr.kept),
            stdout_dropped=done.stdout.dropped,
            stderr_dropped=done.stderr.dropped,
        )

    def start(
        self,
        argv: Sequence[PathLike],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[PathLike] = None,
        timeout: Optional[Time] = None,
    ) -> Command:
        """Starts a command, and returns once it runs."""
        words = words_of(argv)
        _, started = self._execute(["--detach", *command_flags(cwd, timeout)], words, env)
        assert started["id"] is not None
        return Command(self, started["id"], words)

    def write(self, path: PathLike, content: bytes, *, mode: int = 0o644) -> None:
        """Writes a file, whose directory must exist, as a whole or not at all.

        ``path`` begins at the root of the sandbox.
        """
        directory, _, name = os.fspath(path).rpartition("/")
        if name in ("", ".", ".."):
            raise ValueError(f"{os.fspath(path)!r} does not end with the name of a file")
        with tempfile.TemporaryDirectory(prefix="runner-client-") as place:
            file = Path(place, name)
            file.write_bytes(content)
            file.chmod(mode)
            # With a slash at its end the directory must exist.
            self._call("cp", "--", str(file), f"{self.name}:{directory}/")

    def read(self, path: PathLike, *, max_size: int = READ_MAX) -> bytes:
        """The content of a file; links are followed in the sandbox."""
        with tempfile.TemporaryDirectory(prefix="runner-client-") as place:
            file = Path(place, "file")
            self._call("cp", "--follow-link", "--", f"{self.name}:{os.fspath(path)}", str(file))
            found = file.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise RunnerError("not_a_file", f"{os.fspath(path)!r} is a directory", "copy_out copies it")
            if found.st_size > max_size:
                message = f"{os.fspath(path)!r} has {found.st_size} bytes; max_size is {max_size}"
                raise RunnerError("file_too_large", message, "pass a larger max_size, or use copy_out")
            return file.read_bytes()

    def copy_in(self, source: PathLike, destination: PathLike) -> None:
        """Copies a file or a directory of the host, as ``docker cp`` does."""
        self._call("cp", "--", _host_path(source), f"{self.name}:{os.fspath(destination)}")

    def copy_out(self, source: PathLike, destination: PathLike) -> None:
        """Copies a file or a directory to the host, as ``docker cp`` does."""
        self._call("cp", "--", f"{self.name}:{os.fspath(source)}", _host_path(destination))

    def snapshot(self, file: PathLike) -> None:
        """Writes the files of the sandbox to a tar, as a whole or not at all; processes are not kept."""
        self._call("snapshot", "--", self.name, _host_path(file))

    def forward(self, port: int, host_port: int = 0) -> Forwarding:
        """Listens at a port of 127.0.0.1 of the host, and connects to a port of the sandbox; 0 is any free one.

        ``with`` closes it at the end. Every user of the host can connect. Raises `RunnerError`.
        """
        return Forwarding(self, port, host_port)

    def pause(self) -> None:
        """Freezes all processes."""
        self._call("pause", "--", self.name)

    def resume(self) -> None:
        """Lets them go on."""
        self._call("resume", "--", self.name)

    def remove(self, *, force: bool = False) -> None:
        """Ends the sandbox, deletes its private files, and reads its report.

        Refused while a command runs, without ``force``. One that has ended already is no error.
        """
        if self._is_removed:
            return
        words = ["sandbox", "rm", "--quiet", *(["--force"] if force else []), "--", self.name]
        with held_interrupt():
            done = self._program.call(words, is_apart=True)
            if done.code != 0 and done.refusal().code != "no_sandbox":
                raise done.refusal()
            self.report = self._read_report()
            self._forget()

    def state(self) -> Optional[SandboxState]:
        """The sandbox and its commands as ``runner sandbox ls`` lists them; ``None``: it has ended."""
        done = self._program.call(["sandbox", "ls", "--json", "--", self.name])
        if done.code != 0 and done.refusal().code in ("no_sandbox", "sandbox_ending"):
            return None
        listing: SandboxListing = json.loads(done.check().stdout.kept)
        if listing["unresponsive"]:
            raise RunnerError("sandbox_unresponsive", f"the supervisor of {self.name} does not answer")
        return listing["sandboxes"][0]

    def command_records(self) -> List[CommandRecord]:
        """The commands that run, and the last that have ended.

        Raises `RunnerError` ``sandbox_ended`` if the sandbox has ended and left no report.
        """
        state = self.state()
        if state is not None:
            return [*state["commands"], *state["ended"]["latest"]]
        report = self.report or self._read_report()
        if report is None or report["commands"] is None:
            raise self._ended()
        return list(report["commands"]["latest"])

    def _call(self, verb: str, *words: str) -> Done:
        return self._program.call(["sandbox", verb, *words]).check()

    def _ended(self) -> RunnerError:
        report = self.report or self._read_report()
        why = f": {report['outcome']}" if report else ""
        return RunnerError("sandbox_ended", f"the sandbox {self.name} has ended{why}", None)

    def _execute(
        self,
        own: Sequence[str],
        words: Tuple[str, ...],
        env: Optional[Mapping[str, str]],
        stdin: Optional[bytes] = None,
        limit: Optional[int] = None,
    ) -> Tuple[Done, CommandResult]:
        """Executes ``exec``, which writes how the command ended to a descriptor that the command does not have."""
        parent_end, child_end = socket.socketpair()
        with parent_end, child_end:
            flags = [f"--json=fd:{child_end.fileno()}", "--quiet", *own]
            call = ["sandbox", "exec", *flags, "--", self.name, *words]
            done = self._program.call(call, env=env, stdin=stdin, limit=limit, channel=(parent_end, child_end))
        if not done.document.kept:
            # Wrong usage, or the program was killed.
            raise done.refusal()
        ended: CommandResult = json.loads(done.document.kept)
        error = ended["error"]
        if error is not None:
            raise RunnerError(error["code"], error["message"], error["hint"])
        if ended["outcome"] == "cancelled":
            raise self._ended()
        return done, ended

    def _report_file(self) -> Path:
        assert self._directory is not None
        return Path(self._directory.name, "report.json")

    def _read_report(self) -> Optional[Report]:
        try:
            text = self._report_file().read_bytes() if self._directory else b""
        except FileNotFoundError:
            return None
        report: Optional[Report] = json.loads(text) if text else None
        return report

    def _creation_error(self, done: Done) -> RunnerError:
        report = self._read_report()
        error = report["error"] if report else None
        return RunnerError(error["code"], error["message"], error["hint"]) if error else done.refusal()

    def _abandon(self, error: BaseException, other: Optional[SandboxState]) -> None:
        """Removes it if it has started, though its creation was interrupted."""
        with held_interrupt():
            if not isinstance(error, RunnerError) or error.code == "unknown":
                state = self.state()
                if state is not None and (other is None or state["run_id"] != other["run_id"]):
                    self.remove(force=True)
            self._forget()

    def _forget(self) -> None:
        self._is_removed = True
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


class Command:
    """A command that `Sandbox.start` has started."""

    def __init__(self, sandbox: Sandbox, id: int, argv: Tuple[str, ...]) -> None:
        self.sandbox = sandbox
        self.id = id
        self.argv = argv

    def __repr__(self) -> str:
        return f"Command({self.sandbox.name!r}, {self.id}, {self.argv!r})"

    def logs(self) -> Tuple[bytes, bytes]:
        """Standard output and error so far; the sandbox keeps the last 128 KiB of each."""
        done = self.sandbox._call("logs", "--quiet", "--", self.sandbox.name, str(self.id))
        return bytes(done.stdout.kept), bytes(done.stderr.kept)

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Waits for its end; the output is that of `logs`.

        Raises `TimeoutError` after this many seconds; the command goes on then.
        """
        words = ["sandbox", "logs", "--follow", "--", self.sandbox.name, str(self.id)]
        self.sandbox._program.call(words, limit=0, timeout=timeout)
        ended = [record for record in self.sandbox.command_records() if record["id"] == self.id]
        if not ended or ended[0]["outcome"] is None:
            # No log to wait for: more commands than the sandbox keeps output of.
            self.logs()
            raise RunnerError("no_record", f"the sandbox {self.sandbox.name} does not list command {self.id}", None)
        if ended[0]["outcome"] == "cancelled":
            raise self.sandbox._ended()
        stdout, stderr = self.logs()
        return Result(
            argv=self.argv,
            outcome=ended[0]["outcome"],
            exit_code=_code_of(ended[0]),
            signal=ended[0]["exit"]["signal"] if ended[0]["exit"] else None,
            stdout=stdout,
            stderr=stderr,
        )

    def kill(self, signal: str = "KILL") -> None:
        """Sends a signal to its process group; KILL goes to everything that it has started."""
        self.sandbox._call("kill", f"--signal={signal}", "--", self.sandbox.name, str(self.id))


class Forwarding:
    """A port of the host that `Sandbox.forward` has opened; ``with`` closes it at the end."""

    def __init__(self, sandbox: Sandbox, port: int, host_port: int) -> None:
        words = ["sandbox", "forward", "--", sandbox.name, f"{host_port}:{port}"]
        self._service: Service = sandbox._program.start(words)
        address, _, _ = self._service.line.decode().partition(" ")
        host, _, chosen = address.rpartition(":")
        self.host: str = host
        """The address at which it listens."""
        self.port = int(chosen)

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Forwarding({self.host!r}, {self.port})"

    def close(self) -> None:
        """Closes the port and its connections."""
        self._service.stop()


def _host_path(path: PathLike) -> str:
    """Absolute, so that it is no flag and no NAME:PATH; what its end means stays."""
    return os.path.join(os.getcwd(), os.fspath(path))


_LIMIT_LINES: Mapping[str, bytes] = {
    "timed_out": b"runner: timed out: ",
    "cpu_exhausted": b"runner: out of CPU time: ",
    "out_of_memory": b"runner: out of memory: ",
}
"""The start of the line that the program writes last if a limit ended the command."""


def _code_of(record: CommandRecord) -> int:
    """The exit code of ``runner sandbox exec`` for a command that has ended."""
    ended = record["exit"]
    if record["outcome"] in ("timed_out", "cpu_exhausted"):
        return 124
    if ended is None or record["outcome"] == "cancelled":
        return 137
    return ended["code"] if ended["code"] is not None else 128 + (ended["signal"] or 0)
