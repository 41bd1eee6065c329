"""What programs do with the SDK of E2B for Python, unmodified, against `runner serve --api e2b`."""

import os
import threading
import time
import urllib.error
import urllib.request

from e2b import (
    CommandExitException,
    FileNotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    TimeoutException,
)


def expect(kind, call, *words):
    """The call fails with this exception, whose text has the words."""
    try:
        found = call()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"expected {kind.__name__}, found {found!r}")


def commands(sandbox):
    pieces = []
    done = sandbox.commands.run(
        "echo out; echo err >&2; echo $FROM_SANDBOX $OF_COMMAND $BOTH; pwd",
        envs={"OF_COMMAND": "two", "BOTH": "command"},
        cwd="/tmp",
        on_stdout=lambda text: pieces.append(("out", text)),
        on_stderr=lambda text: pieces.append(("err", text)),
    )
    assert done.exit_code == 0 and done.error is None, done
    assert done.stdout == "out\none two command\n/tmp\n", done
    assert done.stderr == "err\n", done
    heard = {kind: "".join(text for of, text in pieces if of == kind) for kind in ("out", "err")}
    assert heard == {"out": done.stdout, "err": done.stderr}, pieces
    error = expect(CommandExitException, lambda: sandbox.commands.run("echo no; exit 3"))
    assert (error.exit_code, error.stdout) == (3, "no\n"), error
    # Far more than what a sandbox keeps of a background command.
    done = sandbox.commands.run("yes 0123456789abcde | head -c 3000000")
    assert len(done.stdout) == 3_000_000, len(done.stdout)
    expect(TimeoutException, lambda: sandbox.commands.run("sleep 60", timeout=0.5))
    assert sandbox.commands.run("printf '\\xc3\\xa4\\xff'").stdout == "\u00e4\ufffd"
    expect(SandboxException, lambda: sandbox.commands.run("true", user="root"), "one user")
    for name in ("A=B", ""):
        expect(SandboxException, lambda: sandbox.commands.run("true", envs={name: "x"}), "variable")


def background(sandbox):
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    assert handle.pid in [one.pid for one in sandbox.commands.list()]
    sandbox.commands.send_stdin(handle.pid, "a line\n")
    assert handle.wait().stdout == "got a line\n"
    assert handle.pid not in [one.pid for one in sandbox.commands.list()]
    assert not sandbox.commands.kill(handle.pid)
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "all\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "all\n"
    handle = sandbox.commands.run("echo $$; sleep 1000", background=True)
    first = next(iter(handle))[0]
    assert int(first) == handle.pid, (first, handle.pid)
    same = sandbox.commands.connect(handle.pid)
    ended = []

    def wait():
        try:
            same.wait()
        except CommandExitException as error:
            ended.append(error.exit_code)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert sandbox.commands.kill(handle.pid)
    waiting.join(20)
    assert ended == [137], ended
    error = expect(CommandExitException, handle.wait)
    assert error.exit_code == 137, error
    expect(SandboxException, lambda: sandbox.commands.connect(handle.pid), "no_command")
    # A client that leaves ends nothing.
    handle = sandbox.commands.run("read line; echo $line > /tmp/left", background=True, stdin=True)
    handle.disconnect()
    sandbox.commands.send_stdin(handle.pid, "still there\n")
    until = time.monotonic() + 20
    while not sandbox.files.exists("/tmp/left") or not sandbox.files.read("/tmp/left"):
        assert time.monotonic() < until
    assert sandbox.files.read("/tmp/left") == "still there\n"


class Shell:
    """A terminal whose output a thread reads."""

    def __init__(self, handle):
        self.pid, self.shown, self.ended = handle.pid, bytearray(), []
        self.thread = threading.Thread(target=self.read, args=(handle,))
        self.thread.start()

    def read(self, handle):
        try:
            self.ended.append(handle.wait(on_pty=self.shown.extend).exit_code)
        except CommandExitException as error:
            self.ended.append(error.exit_code)
        except TimeoutException as error:
            self.ended.append(error)

    def until(self, part):
        limit = time.monotonic() + 20
        while part not in self.shown:
            assert time.monotonic() < limit, (part, bytes(self.shown))
            time.sleep(0.01)

    def end(self):
        self.thread.join(20)
        return self.ended


def terminals(sandbox):
    pty = sandbox.pty
    shell = Shell(pty.create(PtySize(31, 97), cwd="/tmp", envs={"WORD": "of the client"}))
    assert shell.pid in [one.pid for one in sandbox.commands.list()]
    # What is typed is shown, too, so no answer is in its question.
    pty.send_stdin(shell.pid, b"tty; pwd; echo $TERM $WORD $FROM_SANDBOX; stty size\n")
    for part in (b"/dev/pts/", b"/tmp", b"xterm-256color of the client one", b"31 97"):
        shell.until(part)
    same = Shell(pty.connect(shell.pid))
    pty.resize(shell.pid, PtySize(rows=40, cols=120))
    pty.send_stdin(shell.pid, b"stty size\n")
    for one in (shell, same):
        one.until(b"40 120")
    pty.send_stdin(shell.pid, b"bash -c 'echo r''eady; exec sleep 1000'\n")
    shell.until(b"ready")
    pty.send_stdin(shell.pid, b"\x03")
    pty.send_stdin(shell.pid, b"echo s''tatus=$?\n")
    shell.until(b"status=130")
    pty.send_stdin(shell.pid, b"exit 5\n")
    assert (shell.end(), same.end()) == ([5], [5])
    expect(SandboxException, lambda: pty.resize(shell.pid, PtySize(1, 1)), "no_command")
    killed = Shell(pty.create(PtySize(24, 80), timeout=0))
    for size in (PtySize(0, 80), PtySize(24, 0), PtySize(24, 65536)):
        expect(SandboxException, lambda: pty.resize(killed.pid, size), "size")
        expect(SandboxException, lambda: pty.create(size), "size")
    # Each kind of command has its own input.
    expect(SandboxException, lambda: sandbox.commands.send_stdin(killed.pid, "x"), "`pty`")
    expect(SandboxException, lambda: sandbox.commands.close_stdin(killed.pid), "Ctrl-D")
    plain = sandbox.commands.run("cat", background=True, stdin=True)
    expect(SandboxException, lambda: pty.send_stdin(plain.pid, b"x"), "`stdin`")
    expect(SandboxException, lambda: pty.resize(plain.pid, PtySize(1, 1)), "no terminal")
    assert plain.kill()
    assert pty.kill(killed.pid) and not pty.kill(killed.pid)
    assert killed.end() == [137]
    slow = Shell(pty.create(PtySize(24, 80), timeout=1))
    (timeout,) = slow.end()
    assert isinstance(timeout, TimeoutException), timeout
    # An interactive shell ignores SIGTERM, and SIGKILL follows.
    limit = time.monotonic() + 30
    while slow.pid in [one.pid for one in sandbox.commands.list()]:
        assert time.monotonic() < limit
        time.sleep(0.05)
    expect(SandboxException, lambda: pty.send_stdin(slow.pid, b"x"), "no_command")


def files(sandbox):
    files = sandbox.files
    written = files.write("/tmp/a/b c/text", "hello \u00e4\n")
    assert (written.name, written.path) == ("text", "/tmp/a/b c/text"), written
    assert files.read("/tmp/a/b c/text") == "hello \u00e4\n"
    binary = bytes(range(256)) * 1000 + b"\r\n--"
    files.write("/tmp/binary", binary)
    assert bytes(files.read("/tmp/binary", format="bytes")) == binary
    files.write("/tmp/streamed", iter([b"a" * 1000, b"b" * 1000]))
    assert b"".join(files.read("/tmp/streamed", format="stream")) == b"a" * 1000 + b"b" * 1000
    two = [{"path": "/tmp/one", "data": "1"}, {"path": "/tmp/two", "data": b""}]
    assert [info.path for info in files.write_files(two)] == ["/tmp/one", "/tmp/two"]
    assert (files.read("/tmp/one"), files.read("/tmp/two")) == ("1", "")
    files.write("relative", "x")
    home = sandbox.commands.run("pwd").stdout.strip()
    assert files.read(f"{home}/relative") == "x"
    assert files.exists("/tmp/one") and not files.exists("/tmp/none")
    info = files.get_info("/tmp/a/b c/text")
    assert (info.name, info.path, info.size) == ("text", "/tmp/a/b c/text", 9), info
    assert (info.type.value, info.permissions) == ("file", "-rw-r--r--"), info
    assert files.make_dir("/tmp/new/below") and not files.make_dir("/tmp/new/below")
    moved = files.rename("/tmp/one", "/tmp/new/one")
    assert moved.path == "/tmp/new/one" and not files.exists("/tmp/one")
    names = {(entry.name, entry.type.value) for entry in files.list("/tmp/new")}
    assert names == {("below", "dir"), ("one", "file")}, names
    files.remove("/tmp/new")
    files.remove("/tmp/new")
    assert not files.exists("/tmp/new")
    expect(FileNotFoundException, lambda: files.read("/tmp/none"))
    expect(FileNotFoundException, lambda: files.list("/tmp/none"))
    for path in ("/tmp/../etc/passwd", "../x", "/tmp/\0"):
        for call in (files.read, files.list, files.remove, files.get_info):
            expect(SandboxException, lambda: call(path), "path")
        expect(SandboxException, lambda: files.write(path, "x"), "path")
    # What a link of the sandbox names is looked for in the sandbox.
    sandbox.commands.run("ln -s /etc/hostname /tmp/link; ln -s / /tmp/root")
    inside = sandbox.commands.run("cat /etc/hostname || echo none").stdout
    outside = open("/etc/hostname").read()
    if inside != outside:
        try:
            assert files.read("/tmp/link") != outside
        except FileNotFoundException:
            pass
    files.write("/tmp/root/tmp/through", "x")
    assert files.read("/tmp/through") == "x"
    expect(SandboxException, lambda: files.list("/tmp", depth=2), "depth")


class Watched:
    """A directory, and the events of it that were fetched."""

    def __init__(self, sandbox, path, **options):
        self.handle, self.found = sandbox.files.watch_dir(path, **options), []

    def until(self, kind, name):
        """Those before this one."""
        limit = time.monotonic() + 20
        while (kind, name) not in self.found:
            assert time.monotonic() < limit, ((kind, name), self.found)
            self.found += [(one.type.value, one.name) for one in self.handle.get_new_events()]
        at = self.found.index((kind, name))
        before, self.found = self.found[:at], self.found[at + 1 :]
        return before


def watching(sandbox):
    files = sandbox.files
    files.make_dir("/tmp/watched/sub")
    flat = Watched(sandbox, "/tmp/watched")
    deep = Watched(sandbox, "/tmp/watched", recursive=True)
    text = "cd /tmp/watched; echo x > a; chmod 600 a; mv a b; rm b; : > sub/c; mkdir d; : > end"
    sandbox.commands.run(text)
    expected = [("create", "a"), ("write", "a"), ("chmod", "a"), ("rename", "a"), ("create", "b")]
    expected += [("remove", "b"), ("create", "d")]
    assert flat.until("create", "end") == expected
    assert ("create", "sub/c") in deep.until("create", "end")
    files.write("/tmp/watched/uploaded", "x")
    flat.until("create", "uploaded")
    flat.handle.stop()
    expect(SandboxException, flat.handle.get_new_events, "stopped")
    files.rename("/tmp/watched", "/tmp/elsewhere")
    limit = time.monotonic() + 20
    while True:
        try:
            deep.handle.get_new_events()
        except SandboxException as error:
            assert "watch_failed" in str(error), error
            break
        assert time.monotonic() < limit
    expect(FileNotFoundException, lambda: files.watch_dir("/tmp/none"))
    expect(SandboxException, lambda: files.watch_dir("/etc/passwd"), "Not a directory")
    expect(SandboxException, lambda: files.watch_dir("/tmp/.."), "path")


def life(sandbox):
    listed = Sandbox.list().next_items()
    assert [one.sandbox_id for one in listed] == [sandbox.sandbox_id], listed
    assert listed[0].metadata == {"purpose": "a test"}, listed
    info = sandbox.get_info()
    assert (info.template_id, info.state.value) == ("base", "running"), info
    assert 500 < (info.end_at - info.started_at).total_seconds() < 700, info
    for value, count in (("a test", 1), ("other", 0)):
        query = SandboxQuery(metadata={"purpose": value})
        assert len(Sandbox.list(query=query).next_items()) == count
    assert sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo same").stdout == "same\n"
    left = lambda: (sandbox.get_info().end_at - info.end_at).total_seconds()
    sandbox.set_timeout(1200)
    assert left() > 300, left()
    Sandbox.connect(sandbox.sandbox_id, timeout=3600)
    assert left() > 2000, left()
    # A shorter one changes nothing.
    Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert left() > 2000, left()
    sandbox.set_timeout(600)
    assert left() < 300, left()
    for timeout in (24 * 3600, 100_000):
        expect(SandboxException, lambda: sandbox.set_timeout(timeout), "template allows")
    expect(SandboxException, lambda: Sandbox.connect(sandbox.sandbox_id, timeout=100_000), "400")
    expect(SandboxException, lambda: Sandbox.create(metadata={"runner.api": "x"}), "runner.")
    expect(SandboxException, lambda: Sandbox.create(timeout=0), "timeout")
    expect(SandboxException, lambda: Sandbox.create(timeout=100_000), "timeout")
    expect(SandboxException, lambda: Sandbox.create("other"), "--templates", "base")
    expect(SandboxException, lambda: Sandbox.create(allow_internet_access=True), "template decides")
    for name in ("A=B", "A B", ""):
        expect(SandboxException, lambda: Sandbox.create(envs={name: "c"}), "variable")


def end(sandbox):
    assert sandbox.kill() and not sandbox.kill()
    assert not sandbox.is_running()
    expect(SandboxException, lambda: sandbox.commands.run("true"), "not found")
    expect(SandboxNotFoundException, sandbox.get_info)
    assert Sandbox.list().next_items() == []


def pauses(sandbox):
    try:
        assert sandbox.pause()
    except SandboxException as error:
        assert "freezer" in str(error) or "frozen" in str(error), error
        print("no freezer")
        return
    assert sandbox.get_info().state.value == "paused"
    assert not sandbox.pause()
    expect(SandboxException, lambda: sandbox.commands.run("true"), "paused")
    sandbox.connect()
    assert sandbox.get_info().state.value == "running"
    assert sandbox.commands.run("echo on").stdout == "on\n"


def servers(sandbox):
    sandbox.files.write("/tmp/www/page", "of a sandbox")
    handle = sandbox.commands.run("cd /tmp/www; exec python3 -m http.server --bind 127.0.0.1 8000", background=True)
    assert sandbox.get_host(8000).startswith(f"8000-{sandbox.sandbox_id}."), sandbox.get_host(8000)
    headers = {**sandbox.connection_config.sandbox_headers, "E2b-Sandbox-Port": "8000"}
    request = urllib.request.Request(f"{os.environ['E2B_SANDBOX_URL']}/page", headers=headers)
    until = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                assert answer.read() == b"of a sandbox"
            break
        except urllib.error.HTTPError as error:
            assert error.code == 502 and time.monotonic() < until, error
    handle.kill()


def times():
    sandbox = Sandbox.create(timeout=1)
    until = time.monotonic() + 20
    while sandbox.is_running():
        assert time.monotonic() < until
    expect(SandboxNotFoundException, sandbox.get_info)
    sandbox = Sandbox.create("short", timeout=60)
    expect(SandboxException, lambda: sandbox.set_timeout(61), "60000 ms that the template allows")
    sandbox.set_timeout(0)
    until = time.monotonic() + 20
    while sandbox.is_running():
        assert time.monotonic() < until
    expect(SandboxNotFoundException, lambda: sandbox.set_timeout(5))


def main():
    sandbox = Sandbox.create(
        metadata={"purpose": "a test"}, envs={"FROM_SANDBOX": "one", "BOTH": "sandbox"}, timeout=600
    )
    for part in (life, commands, background, terminals, files, watching, servers, pauses, end):
        part(sandbox)
    times()
    print("all of it")


main()
