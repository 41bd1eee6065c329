"""Run untrusted commands confined by the program ``runner``.

`run` and `exec_bundle` confine one command; `Sandbox` stays from one command to the next.
"""

from ._errors import CommandError, RunnerError
from ._result import Result, printable
from ._run import exec_bundle, run
from ._sandbox import Command, Forwarding, Sandbox
from ._version import __version__

__all__ = [
    "Command",
    "CommandError",
    "Forwarding",
    "Result",
    "RunnerError",
    "Sandbox",
    "__version__",
    "exec_bundle",
    "printable",
    "run",
]
