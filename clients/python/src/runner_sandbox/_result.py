"""What a command has left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Tuple

from ._errors import CommandError
from .documents import Denial, Report

_TAIL_BYTES = 2000


def printable(output: bytes) -> str:
    """The output as text that is safe on a terminal: escape sequences and the like as ``\\x1b``."""
    text = output.decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


@dataclass(frozen=True)
class Result:
    """The end of a command, and its output as it is: hostile bytes."""

    argv: Tuple[str, ...]
    outcome: str
    """``exited``, ``signaled``, ``timed_out``, ``out_of_memory`` … as in the report."""
    exit_code: int
    """As of ``runner``: that of the command, 124 after its timeout, 128 + n after signal n."""
    signal: Optional[int]
    """The signal that ended the command."""
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_dropped: int = 0
    """Bytes beyond ``max_output`` that were dropped."""
    stderr_dropped: int = 0
    report: Optional[Report] = field(default=None, repr=False)
    """The report; ``None`` for commands of a `Sandbox`, which has one for all of them."""

    @property
    def ok(self) -> bool:
        """Whether the command exited with code 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 is escaped. May contain escape sequences."""
        return self.stdout.decode("utf-8", "backslashreplace")

    @property
    def error_text(self) -> str:
        """Standard error, as `text`."""
        return self.stderr.decode("utf-8", "backslashreplace")

    @property
    def denials(self) -> List[Denial]:
        """What the command tried and was denied; empty for commands of a `Sandbox`."""
        return list(self.report["denials"]) if self.report else []

    def check(self) -> Result:
        """Returns itself if the command exited with code 0, else raises `CommandError`."""
        if not self.ok:
            raise CommandError(self)
        return self

    def describe(self) -> str:
        """The command, its end and the tails of its output, safe on a terminal."""
        lines = [f"{quote(self.argv)}: {self.outcome}, exit code {self.exit_code}"]
        for name, output in (("stdout", self.stdout), ("stderr", self.stderr)):
            if output:
                cut = "… " if len(output) > _TAIL_BYTES else ""
                lines.append(f"{name}: {cut}{printable(output[-_TAIL_BYTES:])}".rstrip("\n"))
        return "\n".join(lines + describe_denials(self.denials))


def quote(argv: Tuple[str, ...]) -> str:
    """The words for people, safe on a terminal."""
    words = [printable(word.encode("utf-8", "surrogateescape")) for word in argv]
    return " ".join(repr(word) if not word or " " in word or "\n" in word else word for word in words)


def describe_denials(denials: List[Denial]) -> List[str]:
    """A line for each, which the program has escaped."""
    return [
        f"denied: {denial['kind']} {denial['object']} ({denial['rule']}, {denial['count']} times)"
        + (f"; {denial['hint']}" if denial["hint"] else "")
        for denial in denials
    ]
