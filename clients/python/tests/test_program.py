"""The program: missing, of another version, none at all; its variables."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path
from typing import List

import pytest

from runner_sandbox import RunnerError, Sandbox, __version__, exec_bundle, run
from runner_sandbox._program import find_program


def write_program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("how", ["path", "variable", "argument"])
def test_a_missing_program_says_what_to_do(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "runner")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RUNNER_PROGRAM", raising=False)
    if how == "variable":
        monkeypatch.setenv("RUNNER_PROGRAM", missing)
    for call in (run, lambda words, **more: Sandbox.create(**more)):
        with pytest.raises(RunnerError, match="install runner") as raised:
            call(["true"], program=missing if how == "argument" else None)
        assert raised.value.code == "runner_missing"


@pytest.mark.parametrize(
    "said", ["runner 0.2.0", "runner 1.1.0", "gitlab-runner 17.0", "runner", "runner 0.1.0 and more", "\x1b[31mrunner 0.1.0"]
)
def test_another_version_and_another_program_are_refused(said: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = write_program(tmp_path / "runner", f"echo \"$@\" >> {log}\nprintf '%s\\n' '{said}'")
    with pytest.raises(RunnerError) as raised:
        run(["true"], program=program)
    assert raised.value.code == "runner_version"
    assert f"({__version__}) needs runner 0.1" in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert log.read_text() == "--version\n"


def test_a_later_patch_version_is_driven_and_a_replaced_program_checked_again(tmp_path: Path) -> None:
    report = '{"schema_version":"3.0"}'
    text = "case $1 in --version) echo runner 0.1.99;; *) echo '" + report + "';; esac"
    program = write_program(tmp_path / "runner", text)
    with pytest.raises(RunnerError, match="schema version 3.0"):
        run(["true"], program=program)
    (tmp_path / "runner").unlink()
    write_program(tmp_path / "runner", "echo runner 0.2.0")
    with pytest.raises(RunnerError, match="needs runner 0.1"):
        run(["true"], program=program)


def test_variables_that_change_how_the_program_prints_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RUNNER_OPT_JSON": "/dev/null",
        "RUNNER_OPT_VERBOSE": "2",
        "RUNNER_OPT_COLOR": "always",
        "RUNNER_OPT_DETACH": "true",
        "RUNNER_OPT_TTY": "true",
        "RUNNER_OPT_LOG_FORMAT": "json",
        "RUNNER_LOG": "trace",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RUNNER_OPT_MEMORY", "77m")
    result = run(["echo", "text"])
    assert (result.stdout, result.stderr) == (b"text\n", b"")
    assert result.report is not None
    assert result.report["limits"]["memory_bytes"]["effective"] == 77 << 20
    with Sandbox.create() as sandbox:
        result = sandbox.run(["echo", "text"])
        assert (result.stdout, result.stderr) == (b"text\n", b"")


def test_descriptors_of_the_caller_are_not_inherited(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        found = run(["sh", "-c", f"test ! -e /proc/self/fd/{file.fileno()} && echo closed"])
    assert found.text == "closed\n"


def processes_that_show(text: str) -> List[str]:
    """The processes of the host with this text on their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            # It has ended.
            pass
    return found


def test_values_of_variables_are_on_no_command_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    real = shlex.quote(find_program().path)
    program = write_program(tmp_path / "runner", f'cat /proc/$$/cmdline >> {log}\nexec {real} "$@"')
    canary = secrets.token_hex()
    env = {"CANARY": f"{canary}\nof two lines"}
    show = ["sh", "-c", 'echo "$CANARY"']
    shown = f"{canary}\nof two lines\n"
    assert run(show, env=env, program=program).text == shown
    with pytest.raises(RunnerError):
        exec_bundle("no-such-bundle", env=env, program=program)
    with Sandbox.create(env=env, program=program) as box:
        assert box.run(show).text == shown
        # Of the supervisor, too.
        assert processes_that_show(canary) == []
        box.snapshot(tmp_path / "files.tar")
        with Sandbox.create(env=env, snapshot=tmp_path / "files.tar", program=program) as again:
            assert again.run(show).text == shown
    with Sandbox.create(program=program) as box:
        assert box.run(show, env=env).text == shown
        assert box.start(show, env=env).wait().text == shown
    calls = log.read_bytes()
    for verb in (b"run", b"exec", b"sandbox\0create", b"sandbox\0restore", b"sandbox\0exec"):
        assert b"\0" + verb + b"\0--env-file=" in calls
    assert canary.encode() not in calls


@pytest.mark.parametrize("env", [{"A": "b\0C=d"}, {"A\0B": "c"}, {"A=B": "c"}])
def test_a_variable_does_not_become_another_one(env: "dict[str, str]") -> None:
    with pytest.raises(ValueError, match="env: the name"):
        run(["env"], env=env)
