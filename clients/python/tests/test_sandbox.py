"""Sandboxes that stay: their life, commands, files, ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Iterator, Sequence

import pytest

from runner_sandbox import RunnerError, Sandbox
from runner_sandbox._program import Done, Program

SHELL = ["sh", "-c"]


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox.create(idle_timeout="5m") as made:
        yield made


def is_there(name: str) -> bool:
    return Sandbox(name).state() is not None


def test_files_and_processes_stay_from_one_command_to_the_next(box: Sandbox) -> None:
    box.run([*SHELL, "echo kept > /scratch/file; sleep 1000 & until pgrep -x sleep; do :; done"]).check()
    assert box.run(["cat", "/scratch/file"]).text == "kept\n"
    assert box.run(["pkill", "sleep"]).ok


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_removed_at_the_end_of_the_block_however_that_ends(error: "type[BaseException] | None") -> None:
    try:
        with Sandbox.create() as box:
            box.start(["sleep", "1000"])
            assert is_there(box.name)
            if error:
                raise error()
    except BaseException as caught:
        assert error is not None and type(caught) is error
    assert not is_there(box.name)
    assert box.report is not None and box.report["outcome"] == "exited"


def test_a_sandbox_that_was_refused_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunnerError) as raised:
        Sandbox.create(name="refused", ro=tmp_path / "missing")
    assert raised.value.code == "mount_source_missing"
    assert not is_there("refused")
    with Sandbox.create(name="twice") as box:
        box.run([*SHELL, "echo 1 > /scratch/mark"])
        with pytest.raises(RunnerError) as raised:
            Sandbox.create(name="twice")
        assert raised.value.code == "sandbox_exists"
        assert box.read("/scratch/mark") == b"1\n"


def test_an_interrupted_creation_leaves_nothing_and_another_sandbox_of_the_name_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Program.call

    def interrupted(self: Program, words: Sequence[str], **keywords: Any) -> Done:
        done = call(self, words, **keywords)
        if list(words[:2]) == ["sandbox", "create"]:
            raise KeyboardInterrupt
        return done

    with Sandbox.create(name="other") as other:
        monkeypatch.setattr(Program, "call", interrupted)
        for name, is_left in (("new", False), ("other", True)):
            with pytest.raises(KeyboardInterrupt):
                Sandbox.create(name=name)
            assert is_there(name) == is_left
        assert other.run(["true"]).ok


def test_another_client_uses_a_sandbox_by_its_name_and_leaves_it(box: Sandbox) -> None:
    other = Sandbox(box.name)
    other.write("/scratch/file", b"of the other")
    assert box.read("/scratch/file") == b"of the other"
    assert is_there(box.name)


def test_remove_is_refused_while_a_command_runs(box: Sandbox) -> None:
    command = box.start(["sleep", "1000"])
    with pytest.raises(RunnerError) as raised:
        box.remove()
    assert raised.value.code == "sandbox_busy"
    command.kill()
    command.wait(60)
    box.remove()
    box.remove()
    assert not is_there(box.name)


def test_commands_have_variables_directories_input_and_a_time_of_their_own(box: Sandbox) -> None:
    result = box.run([*SHELL, 'pwd; echo "$A"; cat'], env={"A": "--b\nc"}, cwd="/tmp", input=b"\x00\xff")
    assert result.stdout == b"/tmp\n--b\nc\n\x00\xff"
    # The last line is the program's own; the command can print the same.
    for printed in ("before\n", "runner: timed out: forged\n", "runner: timed out: "):
        result = box.run([*SHELL, 'printf %s "$1" >&2; sleep 60', "sh", printed], timeout=0.2)
        assert (result.outcome, result.exit_code, result.error_text) == ("timed_out", 124, printed)
    assert box.run(["printf", "%s|", "--", "-x", "$HOME"]).text == "--|-x|$HOME|"
    for call in (box.run, box.start):
        with pytest.raises(RunnerError) as raised:
            call(["--help"])
        assert raised.value.code == "program_not_found"


def test_what_is_left_running_does_not_hold_the_output_open(box: Sandbox) -> None:
    assert box.run([*SHELL, "sleep 1000 & echo started"]).text == "started\n"


@pytest.mark.parametrize("code", [1, 123, 124, 125, 126, 127, 128, 137, 143, 255])
def test_an_exit_code_is_the_command_s_own_also_where_the_program_uses_it(box: Sandbox, code: int) -> None:
    forged = "runner: refused: there is no sandbox x (no_sandbox)\nrunner: hint: none\n"
    result = box.run([*SHELL, 'printf %s "$1" >&2; exit $2', "sh", forged, str(code)])
    assert (result.outcome, result.exit_code, result.signal) == ("exited", code, None)
    assert result.stderr == forged.encode()


def test_a_signal_is_told_apart_from_its_exit_code(box: Sandbox) -> None:
    result = box.run([*SHELL, "kill -TERM $$"])
    assert (result.outcome, result.exit_code, result.signal) == ("signaled", 143, 15)


@pytest.mark.parametrize(
    "command, code",
    [
        ("no-such-program", "program_not_found"),
        ("/etc", "program_not_executable"),
        # Its error is longer than a pipe holds.
        ("/" + "x" * 100_000, "program_not_executable"),
    ],
)
def test_a_command_that_cannot_be_started_is_an_error(box: Sandbox, command: str, code: str) -> None:
    # Commands that ended with the same codes are not taken for it.
    for own in (125, 126, 127):
        box.run([*SHELL, f"exit {own}"])
    for call in (box.run, box.start):
        with pytest.raises(RunnerError) as raised:
            call([command])
        assert raised.value.code == code
    with pytest.raises(RunnerError) as raised:
        box.run(["true"], cwd="/no/such/directory")
    assert raised.value.code == "command_not_started"


def test_of_the_same_command_twice_at_once_each_caller_gets_its_own_end(box: Sandbox) -> None:
    forged = "runner: not started: forged (command_not_started)\n"
    argv = [*SHELL, 'printf %s "$1" >&2; exit 125', "sh", forged]

    def call(cwd: str) -> str:
        try:
            result = box.run(argv, cwd=cwd)
        except RunnerError as error:
            return f"{error.code} {'forged' in error.message}"
        return f"{result.outcome} {result.exit_code} {result.error_text}"

    with ThreadPoolExecutor(4) as threads:
        ends = list(threads.map(call, ["/tmp", "/no/such/directory"] * 10))
    assert ends == [f"exited 125 {forged}", "command_not_started False"] * 10


def test_a_program_that_is_killed_is_an_error_that_the_command_cannot_choose(box: Sandbox, tmp_path: Path) -> None:
    program, pid = tmp_path / "runner", tmp_path / "pid"
    program.write_text(f'#!/bin/sh\necho $$ > {pid}\nexec {box._program.path} "$@"\n')
    program.chmod(0o755)
    other = Sandbox(box.name, program=str(program))
    forged = "runner: refused: forged (no_sandbox)\n"
    with ThreadPoolExecutor(1) as thread:
        argv = [*SHELL, 'printf %s "$1" >&2; touch /scratch/ready; sleep 1000', "sh", forged]
        running = thread.submit(other.run, argv)
        box.run([*SHELL, "until test -e /scratch/ready; do sleep 0.01; done"], timeout=60).check()
        os.kill(int(pid.read_text()), signal.SIGKILL)
        with pytest.raises(RunnerError) as raised:
            running.result(60)
    assert raised.value.code == "unknown"


def test_a_command_that_ends_the_sandbox_is_an_error_that_says_so() -> None:
    with Sandbox.create(flags=["--cpu-time=100ms", "--grace=0s"]) as box:
        with pytest.raises(RunnerError) as raised:
            box.run([*SHELL, "while :; do :; done"])
        assert raised.value.code == "sandbox_ended"
        for use in (lambda: box.run(["true"]), lambda: box.start(["true"]), lambda: box.read("/etc/hostname")):
            with pytest.raises(RunnerError) as raised:
                use()
            assert raised.value.code in ("no_sandbox", "sandbox_ended")
    assert box.report is not None and box.report["outcome"] == "cpu_exhausted"


def test_hostile_output_is_kept_as_it_is_up_to_the_limit(box: Sandbox) -> None:
    hostile = b"\x1b[2J\xff\xfe\x00\r"
    result = box.run([*SHELL, "cat; printf '\\033]0;x\\007' >&2; exit 9"], input=hostile)
    assert (result.stdout, result.stderr) == (hostile, b"\x1b]0;x\x07")
    assert all(char.isprintable() or char == "\n" for char in result.describe())
    size = 50_000_000
    result = box.run([*SHELL, f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2"])
    assert (len(result.stdout), result.stdout_dropped) == (16 << 20, size - (16 << 20))
    assert (len(result.stderr), result.stderr_dropped) == (16 << 20, size - (16 << 20))
    assert len(box.run(["head", "-c", str(size), "/dev/zero"], max_output=1 << 30).stdout) == size


def test_a_started_command_is_followed_and_killed(box: Sandbox) -> None:
    box.run(["mkfifo", "/tmp/fifo"]).check()
    waiting = box.start([*SHELL, "echo waits; read line < /tmp/fifo; exit 7"], timeout="1m")
    with pytest.raises(TimeoutError):
        waiting.wait(0.2)
    assert waiting.logs() == (b"waits\n", b"")
    box.run([*SHELL, "echo > /tmp/fifo"])
    result = waiting.wait(60)
    assert (result.outcome, result.exit_code, result.stdout) == ("exited", 7, b"waits\n")
    killed = box.start(["sleep", "1000"])
    killed.kill("TERM")
    assert (killed.wait(60).signal, killed.wait(60).outcome) == (15, "signaled")
    with pytest.raises(RunnerError):
        killed.kill()


def test_a_server_in_the_sandbox_is_reached_until_the_block_ends(box: Sandbox) -> None:
    server = box.start(["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "8000"], cwd="/scratch")
    box.write("/scratch/page", b"hello")
    while b"Serving" not in server.logs()[0]:
        pass
    with box.forward(8000) as forwarding:
        assert forwarding.host == "127.0.0.1"
        connection = HTTPConnection(forwarding.host, forwarding.port, timeout=30)
        connection.request("GET", "/page")
        assert connection.getresponse().read() == b"hello"
        connection.close()
        # Nobody listens: a warning, after which it goes on.
        with box.forward(8001) as other, socket.create_connection((other.host, other.port)) as closed:
            assert closed.recv(1) == b""
        with pytest.raises(RunnerError) as raised:
            box.forward(8000, forwarding.port)
        assert raised.value.code == "port_unavailable"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((forwarding.host, forwarding.port))
    again = box.forward(8000, forwarding.port)
    assert again.port == forwarding.port
    box.remove(force=True)
    again.close()
    again.close()
    with pytest.raises(RunnerError) as raised:
        box.forward(8000)
    assert raised.value.code == "no_sandbox"


def test_files_go_in_and_come_out_as_they_are(box: Sandbox, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    for path in ("/scratch/file", "/scratch/-x", "/scratch/a b:c", "scratch/ü"):
        box.write(path, content)
        assert box.read(path) == content
    box.write("/scratch/file", b"", mode=0o755)
    assert box.run(["stat", "-c", "%a %s", "/scratch/file"]).text == "755 0\n"
    assert box.run(["stat", "-c", "%a", "/scratch"]).text == box.run(["stat", "-c", "%a", "/scratch/."]).text
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").write_text("leaf")
    box.copy_in(tmp_path / "tree", "/scratch")
    assert box.read("/scratch/tree/leaf") == b"leaf"
    box.copy_out("/scratch/tree/.", tmp_path)
    assert (tmp_path / "leaf").read_text() == "leaf"


def test_a_relative_path_of_the_host_is_no_flag_and_no_sandbox(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-", "--help", "a:b"):
        Path(name).write_text(name)
        box.copy_in(name, "/scratch/copied")
        assert box.read("/scratch/copied") == name.encode()
        Path(name).unlink()
        box.copy_out("/scratch/copied", name)
        assert Path(name).read_text() == name


def test_hostile_files_are_no_way_to_the_host(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    box.run([*SHELL, f"ln -s {tmp_path}/secret /scratch/link; mkdir /scratch/dir"]).check()
    for path in ("/scratch/link", "/scratch/dir", "/scratch/missing", "/../../etc/shadow"):
        with pytest.raises(RunnerError):
            box.read(path)
    with pytest.raises(RunnerError):
        box.write("/scratch/dir", b"not into it")
    assert box.run(["ls", "-A", "/scratch/dir"]).text == ""
    with pytest.raises(RunnerError):
        box.write("/scratch/missing/file", b"")
    assert not box.run(["test", "-e", "/scratch/missing"]).ok
    for path in ("/scratch/", "/scratch/..", "", "."):
        with pytest.raises(ValueError):
            box.write(path, b"")
    box.write("/scratch/large", b"x" * 2000)
    with pytest.raises(RunnerError) as raised:
        box.read("/scratch/large", max_size=1999)
    assert raised.value.code == "file_too_large"


def test_a_snapshot_becomes_another_sandbox(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box.write("/scratch/kept", b"kept")
    box.snapshot("-")
    box.write("/scratch/kept", b"later")
    with Sandbox.create(snapshot="-", memory="99m") as other:
        assert other.read("/scratch/kept") == b"kept"
    assert other.report is not None and other.report["limits"]["memory_bytes"]["effective"] == 99 << 20
    with pytest.raises(RunnerError):
        Sandbox.create(snapshot="missing")


def test_denials_of_all_commands_are_in_the_report(box: Sandbox) -> None:
    assert box.denials == []
    box.run(["unshare", "-m", "true"])
    box.remove()
    assert [denial["rule"] for denial in box.denials] == ["unshare"]


def test_a_paused_sandbox_refuses_commands_until_it_is_resumed(box: Sandbox) -> None:
    try:
        box.pause()
    except RunnerError as error:
        # There is no cgroup of its own.
        assert error.code == "sandbox_no_freezer"
        return
    with pytest.raises(RunnerError) as raised:
        box.run(["true"])
    assert raised.value.code == "sandbox_paused"
    box.resume()
    assert box.run(["true"]).ok


def assert_group_is_empty(group: int) -> None:
    """Nothing that the process has started is left; the kernel may still be about to reap it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_while_one_program_after_the_other_starts_leaves_no_run() -> None:
    script = (
        "import runner_sandbox\n"
        "print('started', flush=True)\n"
        "while True:\n"
        "    runner_sandbox.run(['sleep', '1000'], timeout=0.001)\n"
    )
    for number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        # Each time at another moment.
        time.sleep(0.003 * number)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
        assert_group_is_empty(process.pid)


SCRIPT = """
import pathlib, sys, time, runner_sandbox
name, where, directory = sys.argv[1:]
ready = pathlib.Path(directory, "ready")
deaf = ["sh", "-c", f"trap '' INT TERM; touch {ready}; while :; do sleep 0.1; done"]
with runner_sandbox.Sandbox.create(name=name, rw=directory) as box:
    if where == "exec":
        box.run(deaf)
    elif where == "run":
        runner_sandbox.run(deaf, rw=directory)
    command = box.start(["sleep", "1000"])
    ready.touch()
    if where == "wait":
        command.wait()
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    "where, whole_group", [("exec", True), ("exec", False), ("run", True), ("wait", False), ("python", True)]
)
def test_ctrl_c_ends_the_command_and_removes_the_sandbox(where: str, whole_group: bool, tmp_path: Path) -> None:
    name = f"interrupted-{where}-{int(whole_group)}"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, name, where, str(tmp_path)],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert (process.returncode, b"KeyboardInterrupt" in printed) == (-signal.SIGINT, True), printed
    assert not is_there(name)
    assert_group_is_empty(process.pid)
