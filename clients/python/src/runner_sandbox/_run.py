"""One command, confined by ``runner run`` or ``runner exec``."""

from __future__ import annotations

import base64
import json
import os
from typing import Any, Mapping, Optional, Sequence, Tuple

from ._errors import RunnerError
from ._flags import PathLike, Paths, Size, Time, command_flags, sandbox_flags, words_of
from ._program import Done, find_program
from ._result import Result
from .documents import Report, StreamReport


def run(
    argv: Sequence[PathLike],
    *,
    ro: Paths = (),
    rw: Paths = (),
    memory: Optional[Size] = None,
    timeout: Optional[Time] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[PathLike] = None,
    net: Sequence[str] = (),
    max_output: Optional[Size] = None,
    input: Optional[bytes] = None,
    flags: Sequence[str] = (),
    program: Optional[str] = None,
) -> Result:
    """Runs a command confined, as ``runner run`` does, and removes everything after it.

    Without keywords it sees the system directories read-only, has no network, 256 MiB of memory and
    10 minutes, and its environment is empty. ``net`` are hosts, ``flags`` all other flags as
    ``--flag=value``. Values that the output must not show are for ``flags=["--secret=NAME=env:VARIABLE"]``.

    Raises `RunnerError` if the command was refused or could not be started.
    """
    words = words_of(argv)
    own = ["--quiet", "--json", *sandbox_flags(ro, rw, memory, net, flags), *command_flags(cwd, timeout)]
    if max_output is not None:
        own.append(f"--max-output={max_output}")
    if input is not None:
        own.append("--interactive")
    done = find_program(program).call(["run", *own, "--", *words], env=env, stdin=input)
    return _result(words, done)


def exec_bundle(
    bundle: PathLike,
    args: Sequence[PathLike] = (),
    *,
    inputs: Any = None,
    workspace: Optional[PathLike] = None,
    ro: Paths = (),
    rw: Paths = (),
    memory: Optional[Size] = None,
    timeout: Optional[Time] = None,
    env: Optional[Mapping[str, str]] = None,
    net: Sequence[str] = (),
    max_output: Optional[Size] = None,
    flags: Sequence[str] = (),
    program: Optional[str] = None,
) -> Result:
    """Runs a bundle, as ``runner exec`` does. ``inputs`` is its structured input, a value for JSON.

    Its structured output is ``result.report["output"]``.
    """
    own = ["--quiet", "--json", *sandbox_flags(ro, rw, memory, net, flags), *command_flags(None, timeout)]
    if workspace is not None:
        own.append(f"--workspace={os.fspath(workspace)}")
    if max_output is not None:
        own.append(f"--max-output={max_output}")
    if inputs is not None:
        own.append("--inputs=@-")
    path = os.fspath(bundle)
    words = tuple(os.fspath(word) for word in args)
    # Never a flag, nor `-`, which is standard input.
    named = path if os.path.isabs(path) else f"./{path}"
    stdin = None if inputs is None else json.dumps(inputs).encode()
    done = find_program(program).call(["exec", *own, named, "--", *words], env=env, stdin=stdin)
    return _result((path, *words), done)


def _result(words: Tuple[str, ...], done: Done) -> Result:
    report = _report(done)
    if report["error"] is not None:
        error = report["error"]
        raise RunnerError(error["code"], error["message"], error["hint"])
    ended = report["exit"]
    return Result(
        argv=words,
        outcome=report["outcome"],
        exit_code=done.code,
        signal=ended["signal"] if ended else None,
        stdout=_captured(report["stdout"]),
        stderr=_captured(report["stderr"]),
        stdout_dropped=report["stdout"]["dropped_bytes"],
        stderr_dropped=report["stderr"]["dropped_bytes"],
        report=report,
    )


def _report(done: Done) -> Report:
    try:
        report: Report = json.loads(done.stdout.kept)
        version = report["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        if done.code == 125 and not done.stdout.kept:
            raise done.refusal() from error
        raise RunnerError(
            "no_report",
            f"runner ended with code {done.code} and printed no report",
            "`flags` must not change where the report goes (--json)",
        ) from error
    if version.partition(".")[0] != "2":
        raise RunnerError("runner_version", f"the report has schema version {version}; this client reads 2", None)
    return report


def _captured(stream: StreamReport) -> bytes:
    if stream["text_base64"] is not None:
        return base64.b64decode(stream["text_base64"])
    return (stream["text"] or "").encode()
