"""One command: keywords, ends, refusals, hostile output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from runner_sandbox import CommandError, RunnerError, exec_bundle, printable, run

SHELL = ["sh", "-c"]


def test_a_command_is_confined_and_its_output_returned_apart() -> None:
    result = run([*SHELL, "echo out; echo err >&2; ls /root /home; exit 3"])
    assert (result.outcome, result.exit_code, result.signal, result.ok) == ("exited", 3, None, False)
    assert result.text.startswith("out\n")
    assert result.stderr.startswith(b"err\n")
    assert result.report is not None
    assert result.report["limits"]["memory_bytes"]["effective"] == 256 << 20


def test_keywords_are_the_flags_of_the_program(tmp_path: Path) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    (tmp_path / "read" / "in").write_text("text")
    script = 'cat in; echo "$NAME" > ../write/out; echo x > in'
    result = run(
        [*SHELL, script],
        ro=tmp_path / "read",
        rw=[tmp_path / "write"],
        memory=100 << 20,
        timeout=20,
        env={"NAME": "a value\nof two lines"},
        cwd=tmp_path / "read",
        flags=["--pids=40"],
    )
    assert result.text == "text"
    assert (tmp_path / "write" / "out").read_text() == "a value\nof two lines\n"
    assert (tmp_path / "read" / "in").read_text() == "text"
    assert result.report is not None
    limits = result.report["limits"]
    assert limits["memory_bytes"]["effective"] == 100 << 20
    assert limits["wall_time_ms"]["effective"] == 20_000
    assert limits["processes"]["effective"] == 40


def test_net_is_the_list_of_hosts() -> None:
    result = run(["true"], net=["example.org:443"])
    assert result.report is not None
    assert [str(entry) for entry in result.report["egress"]["allowed"]] == ["example.org:443"]


def test_words_of_a_command_are_never_flags_and_no_shell_reads_them() -> None:
    result = run(["printf", "%s|", "--memory=1m", "--", "$(id)", "a b", "; true", "--json", "*"])
    assert result.text == "--memory=1m|--|$(id)|a b|; true|--json|*|"
    with pytest.raises(RunnerError) as raised:
        run(["--help"])
    assert raised.value.code == "program_not_found"


@pytest.mark.parametrize("flags", [["true"], ["--"], ["--memory", "1m"], [""]])
def test_a_word_that_would_end_the_flags_is_refused(flags: "list[str]") -> None:
    with pytest.raises(ValueError, match="--flag=value"):
        run(["true"], flags=flags)


def test_a_line_instead_of_words_is_refused() -> None:
    with pytest.raises(TypeError, match="sh"):
        run("ls -l")
    with pytest.raises(ValueError, match="empty"):
        run([])


def test_input_arrives_as_a_whole_and_need_not_be_read() -> None:
    text = bytes(range(256)) * 4000
    assert run(["cat"], input=text).stdout == text
    assert run(["true"], input=text).ok
    assert run(["cat"]).stdout == b""


def test_denials_are_listed() -> None:
    result = run(["unshare", "-m", "true"])
    (denial,) = [denial for denial in result.denials if denial["kind"] == "syscall"]
    assert (denial["rule"], denial["errno"]) == ("unshare", "EPERM")
    assert "denied: syscall unshare" in result.describe()


@pytest.mark.parametrize(
    "command, keywords, outcome, code, signal",
    [
        (["sleep", "60"], {"timeout": 0.2}, "timed_out", 124, 15),
        (["sleep", "60"], {"timeout": "200ms"}, "timed_out", 124, 15),
        ([*SHELL, "kill -USR1 $$"], {}, "signaled", 138, 10),
        ([*SHELL, "exit 125"], {}, "exited", 125, None),
        (["yes"], {"flags": ["--on-output-limit=kill"], "max_output": "4k"}, "output_limit", 125, 15),
    ],
)
def test_each_end_is_told_apart(command: Any, keywords: Dict[str, Any], outcome: str, code: int, signal: int) -> None:
    result = run(command, **keywords)
    assert (result.outcome, result.exit_code, result.signal) == (outcome, code, signal)
    with pytest.raises(CommandError, match=outcome) as raised:
        result.check()
    assert raised.value.result is result


@pytest.mark.parametrize(
    "command, keywords, code",
    [
        (["no-such-program"], {}, "program_not_found"),
        (["true"], {"ro": "/no/such/directory"}, "mount_source_missing"),
        (["true"], {"memory": "plenty"}, "usage"),
        (["true"], {"flags": ["--no-such-flag"]}, "usage"),
        (["true"], {"flags": ["--json=/dev/null"]}, "no_report"),
    ],
)
def test_a_refusal_is_an_error_with_code_message_and_hint(command: Any, keywords: Dict[str, Any], code: str) -> None:
    with pytest.raises(RunnerError) as raised:
        run(command, **keywords)
    error = raised.value
    assert (error.code, bool(error.message), bool(error.hint)) == (code, True, True)
    assert f"({code})\nhint: " in str(error)


def test_hostile_output_comes_as_bytes_and_is_printed_escaped() -> None:
    hostile = b"\x1b]0;owned\x07\x1b[31mred\x9b\xff\xfe\xe2\x80\xae\r\n\x00end"
    result = run([*SHELL, "cat; exit 1"], input=hostile)
    assert result.stdout == hostile
    for text in (printable(hostile), result.describe(), repr(result)):
        assert all(char.isprintable() or char == "\n" for char in text), text
    assert "\\x1b]0;owned\\x07" in result.describe()


def test_fifty_megabytes_are_cut_by_the_program_and_counted() -> None:
    size = 50_000_000
    command = ["head", "-c", str(size), "/dev/zero"]
    result = run(command)
    assert (len(result.stdout), result.stdout_dropped) == (16 << 20, size - (16 << 20))
    assert result.report is not None and result.report["stdout"]["bytes"] == size


def test_a_bundle_gets_its_input_and_arguments(tmp_path: Path) -> None:
    manifest = "name: doubled\nrun: main.py\ninputs: {type: object, required: [n]}\noutputs: {type: object}\n"
    (tmp_path / "manifest.yaml").write_text(manifest)
    (tmp_path / "main.py").write_text(
        "import json, sys\n"
        "n = json.load(sys.stdin)['n']\n"
        "json.dump({'doubled': 2 * n, 'words': sys.argv[1:]}, sys.stdout)\n"
    )
    result = exec_bundle(tmp_path, ["--flag", "a b"], inputs={"n": 21})
    report = result.check().report
    assert report is not None
    assert report["output"] == {"doubled": 42, "words": ["--flag", "a b"]}
    for path, inputs in ((tmp_path, {"m": 1}), (tmp_path / "missing.tar.gz", None)):
        with pytest.raises(RunnerError):
            exec_bundle(path, inputs=inputs)


def test_the_output_of_the_caller_is_not_touched(capfd: pytest.CaptureFixture[str]) -> None:
    run([*SHELL, "echo out; echo err >&2"])
    with pytest.raises(RunnerError):
        run(["no-such-program"])
    sys.stdout.flush()
    assert capfd.readouterr() == ("", "")
