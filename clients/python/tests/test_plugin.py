"""The pytest plugin, by pytest itself."""

from __future__ import annotations

import pytest

from runner_sandbox import Sandbox


def names_of(pytester: pytest.Pytester) -> "list[str]":
    return (pytester.path / "names").read_text().split()


TESTS = """
import pathlib
import pytest

def note(sandbox):
    with open("names", "a") as file:
        file.write(sandbox.name + "\\n")
"""


def test_each_test_has_a_fresh_sandbox_that_is_removed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TESTS
        + """
@pytest.mark.parametrize("number", range(3))
def test_it(sandbox, number):
    note(sandbox)
    assert sandbox.run(["ls", "-A", "/scratch"]).text == ""
    sandbox.write("/scratch/file", b"")
"""
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)
    names = names_of(pytester)
    assert len(set(names)) == 3
    assert all(Sandbox(name).state() is None for name in names)


def test_marker_and_ini_are_keywords_of_create(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsandbox_flags =\n    --pids=50\n    --memory=60m\n")
    (pytester.path / "data").mkdir()
    (pytester.path / "data" / "file").write_text("of the host")
    pytester.makepyfile(
        TESTS
        + """
@pytest.mark.sandbox(ro="data", env={"A": "of the class", "B": "2"})
class TestIt:
    @pytest.mark.sandbox(env={"A": "of the test"}, flags=["--memory=70m"])
    def test_it(self, sandbox):
        assert sandbox.run(["cat", pathlib.Path("data/file").resolve()]).text == "of the host"
        assert sandbox.run(["sh", "-c", "echo $A$B"]).text == "of the test\\n"
        sandbox.remove()
        limits = sandbox.report["limits"]
        assert limits["processes"]["effective"] == 50
        assert limits["memory_bytes"]["effective"] == 70 << 20

@pytest.mark.sandbox(memory="plenty")
def test_refused(sandbox):
    pass

@pytest.mark.sandbox(memmory="1g")
def test_misspelled(sandbox):
    pass

@pytest.mark.sandbox("64m")
def test_positional(sandbox):
    pass
"""
    )
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=1, errors=3)
    result.stdout.fnmatch_lines(["*(usage)*", "*memmory*", "*takes keywords*"])


def test_a_failure_shows_commands_and_denials_escaped_and_a_success_does_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TESTS
        + r"""
def work(sandbox):
    sandbox.run(["sh", "-c", r"printf '\033]0;owned\007 \377 tail of %s' output; unshare -m true; exit 3"])
    sandbox.start(["sh", "-c", "echo in the background >&2"]).wait(60)

def test_good(sandbox):
    work(sandbox)

def test_bad(sandbox):
    note(sandbox)
    work(sandbox)
    assert not "this fails"

def test_error(sandbox):
    sandbox.run(["no-such-program"])
"""
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*this fails*",
            "*Captured sandbox teardown*",
            "sh -c * exited, exit code 3",
            r"stdout: \x1b?0;owned\x07 \xff tail of output",
            "stderr: unshare: *",
            "sh -c * started as command 2",
            "stderr: in the background",
            "denied: syscall unshare(*",
            "*Captured sandbox teardown*",
            "no-such-program: *(program_not_found)",
        ]
    )
    printed = result.stdout.str() + result.stderr.str()
    assert printed.count("Captured sandbox teardown") == 2
    assert "\x1b]" not in printed and "\x07" not in printed
    assert all(Sandbox(name).state() is None for name in names_of(pytester))


def test_a_sandbox_that_its_test_has_ended_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TESTS
        + """
@pytest.mark.sandbox(flags=["--cpu-time=100ms", "--grace=0s"])
def test_it(sandbox):
    sandbox.run(["sh", "-c", "while :; do :; done"])
"""
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*(sandbox_ended)*", "the sandbox ended: cpu_exhausted"])


def test_a_missing_program_is_an_error_that_says_what_to_do(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nsandbox_program = /no/such/runner\n")
    pytester.makepyfile("def test_it(sandbox):\n    pass\n\ndef test_without():\n    pass\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*install runner*"])


def test_an_interrupted_session_leaves_no_sandbox(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TESTS
        + """
def test_it(sandbox):
    note(sandbox)
    sandbox.start(["sleep", "1000"])
    raise KeyboardInterrupt
"""
    )
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (name,) = names_of(pytester)
    assert Sandbox(name).state() is None
