"""The flags of the program, from keywords."""

from __future__ import annotations

import os
from typing import List, Mapping, Optional, Sequence, Tuple, Union

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


def command_flags(env: Optional[Mapping[str, str]], cwd: Optional[PathLike], timeout: Optional[Time]) -> List[str]:
    """Flags that `run` and `sandbox exec` have."""
    words = [f"--env={name}={value}" for name, value in (env or {}).items()]
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
