"""The pytest plugin: a fresh sandbox for each test that asks for the fixture ``sandbox``.

``@pytest.mark.sandbox(memory="64m", …)`` has the keywords of `Sandbox.create`; the ini options
``sandbox_flags`` and ``sandbox_program`` hold for all tests. If a test fails, its report has a section
with the ends of the output of its last commands, and with what was denied.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Generator, List, Optional, Sequence

import pytest

from ._errors import RunnerError
from ._flags import PathLike
from ._result import Result, describe_denials, printable, quote
from ._sandbox import Command, Sandbox

_SHOWN_COMMANDS = 10
_TAIL_BYTES = 2000
_IDLE_TIMEOUT = "1h"
_has_failed = pytest.StashKey[bool]()


class RecordingSandbox(Sandbox):
    """Remembers its last commands for the report of pytest."""

    def __init__(self, name: str, *, program: Optional[str] = None) -> None:
        super().__init__(name, program=program)
        self._told: Deque[str] = deque(maxlen=_SHOWN_COMMANDS)
        self._started: Deque[Command] = deque(maxlen=_SHOWN_COMMANDS)

    def run(self, argv: Sequence[PathLike], **keywords: Any) -> Result:
        try:
            result = super().run(argv, **keywords)
        except RunnerError as error:
            self._told.append(f"{quote(tuple(map(str, argv)))}: {error}")
            raise
        self._told.append(result.describe())
        return result

    def start(self, argv: Sequence[PathLike], **keywords: Any) -> Command:
        command = super().start(argv, **keywords)
        self._started.append(command)
        return command

    def describe_commands(self) -> List[str]:
        """The last commands with the ends of their output; escaped."""
        return [*self._told, *map(_describe_started, self._started)]


def _describe_started(command: Command) -> str:
    lines = [f"{quote(command.argv)}: started as command {command.id}"]
    try:
        for name, output in zip(("stdout", "stderr"), command.logs()):
            if output:
                lines.append(f"{name}: {printable(output[-_TAIL_BYTES:])}".rstrip("\n"))
    except RunnerError as error:
        lines.append(str(error))
    return "\n".join(lines)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("sandbox_flags", "flags of every sandbox, one --flag=value a line", type="linelist", default=[])
    parser.addini("sandbox_program", "the path of runner (default: RUNNER_PROGRAM, or runner on the PATH)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sandbox(**keywords): keywords of Sandbox.create for the fixture `sandbox`, such as memory='64m'"
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    if outcome.get_result().failed:
        item.stash[_has_failed] = True


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Generator[Sandbox, None, None]:
    """A fresh sandbox, removed at the end of the test."""
    made = RecordingSandbox.create(**_options(request))
    try:
        yield made
    finally:
        is_shown = request.node.stash.get(_has_failed, False)
        lines = made.describe_commands() if is_shown else []
        made.remove(force=True)
        if made.report is not None and made.report["outcome"] != "exited":
            lines.append(f"the sandbox ended: {made.report['outcome']}")
        lines += describe_denials(made.denials)
        if is_shown and lines:
            request.node.add_report_section("teardown", "sandbox", "\n".join(lines))


def _options(request: pytest.FixtureRequest) -> Dict[str, Any]:
    options: Dict[str, Any] = {"idle_timeout": _IDLE_TIMEOUT}
    # The closest marker is the first.
    for marker in reversed(list(request.node.iter_markers("sandbox"))):
        if marker.args:
            raise pytest.UsageError("pytest.mark.sandbox takes keywords of Sandbox.create only")
        options.update(marker.kwargs)
    options["flags"] = [*request.config.getini("sandbox_flags"), *options.get("flags", ())]
    program = request.config.getini("sandbox_program")
    if program:
        options.setdefault("program", str(Path(program).expanduser()))
    return options
