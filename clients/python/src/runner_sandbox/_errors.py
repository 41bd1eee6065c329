"""Errors of the clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ._result import Result


class RunnerError(Exception):
    """``runner`` refused, failed, or is not there: no result of a command exists.

    ``code`` keeps its meaning between versions; ``message`` and ``hint`` are for people.
    """

    def __init__(self, code: str, message: str, hint: Optional[str] = None) -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{self.message} ({self.code}){hint}"


class CommandError(Exception):
    """`Result.check` found another end than exit code 0."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return self.result.describe()
