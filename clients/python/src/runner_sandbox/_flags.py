"""The flags of the program, from keywords."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple, Union

PathLike = Union[str, "os.PathLike[str]"]
Paths = Union[PathLike, Sequence[PathLike]]
Time = Union[float, str]
"""Seconds, or a duration of the program: ``90s``, ``5m``, ``none``."""
Size = Union[int, str]
"""Bytes, or a size of the program: ``512m``, ``1g``."""


def words_of(argv: Sequence[PathLike]) -> Tuple[str, ...]:
    """The command as words."""
    if isinstance(argv, (str, bytes)):
        raise TypeError("argv is a list of words; for a line of shell: ['sh', '-c', line]")
    words = tuple(os.fspath(word) for word in argv)
    if not words:
        raise ValueError("argv is empty: it needs a program")
    return words


def time_of(value: Time) -> str:
    return value if isinstance(value, str) else f"{round(value * 1000)}ms"


def paths_of(paths: Paths) -> List[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return [os.fspath(path) for path in paths]


@contextmanager
def env_flags(env: Optional[Mapping[str, str]]) -> Iterator[List[str]]:
    """The flag of a file with the variables. It has no name and no other user can read it; their values would be
    visible to every user on a command line."""
    if not env:
        yield []
        return
    for name, value in env.items():
        if "=" in name or "\0" in f"{name}{value}":
            raise ValueError(f"env: the name {name!r} has a = or a NUL, or its value a NUL")
    with tempfile.TemporaryFile(prefix="runner-client-") as file:
        # As `env -0` writes them: a value may have several lines.
        file.write(b"".join(os.fsencode(f"{name}={value}\0") for name, value in env.items()))
        file.flush()
        yield [f"--env-file=/proc/{os.getpid()}/fd/{file.fileno()}"]


def command_flags(cwd: Optional[PathLike], timeout: Optional[Time]) -> List[str]:
    """Flags that `run` and `sandbox exec` have."""
    words = []
    if cwd is not None:
        words.append(f"--workdir={os.fspath(cwd)}")
    if timeout is not None:
        words.append(f"--timeout={time_of(timeout)}")
    return words


def sandbox_flags(
    ro: Paths, rw: Paths, memory: Optional[Size], net: Sequence[str], flags: Sequence[str]
) -> List[str]:
    """Flags of a sandbox, the caller's own last."""
    for flag in flags:
        if not flag.startswith("-") or flag == "--":
            raise ValueError(f"flags: {flag!r} does not begin with -; write --flag=value as one word")
    words = [f"--ro={path}" for path in paths_of(ro)] + [f"--rw={path}" for path in paths_of(rw)]
    if memory is not None:
        words.append(f"--memory={memory}")
    if isinstance(net, str):
        raise TypeError("net is a list of HOST or HOST:PORT")
    return words + [f"--allow-net={host}" for host in net] + list(flags)
