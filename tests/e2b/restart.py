"""A program whose server is killed and started again while it has a sandbox."""

import sys
import time

from e2b import Sandbox, SandboxException, SandboxQuery

METADATA = {"purpose": "a test", "text": "two\nlines"}


def main():
    envs = {"ONE": "1\n2", "HOME_OF": "sandbox"}
    sandbox = Sandbox.create(metadata=METADATA, envs=envs, timeout=600)
    sandbox.files.write("/tmp/kept", "kept")
    handle = sandbox.commands.run("sleep 1000", background=True)
    print("ready", flush=True)
    assert sys.stdin.readline() == "go\n"
    # With what the program has: its id and the token.
    assert sandbox.is_running()
    assert sandbox.files.read("/tmp/kept") == "kept"
    assert sandbox.commands.run('echo "$ONE$TWO"', envs={"TWO": "3"}).stdout == "1\n23\n"
    assert sandbox.commands.run("echo $HOME_OF", envs={"HOME_OF": "command"}).stdout == "command\n"
    # With the key and the id.
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("cat /tmp/kept").stdout == "kept"
    info = sandbox.get_info()
    assert (info.metadata, info.template_id) == (METADATA, "base"), info
    found = Sandbox.list(query=SandboxQuery(metadata={"purpose": "a test"})).next_items()
    assert [one.sandbox_id for one in found] == [sandbox.sandbox_id], found
    sandbox.set_timeout(1200)
    assert (sandbox.get_info().end_at - info.end_at).total_seconds() > 300
    # The command runs, and has no streams any more.
    assert handle.pid in [one.pid for one in sandbox.commands.list()]
    try:
        sandbox.commands.connect(handle.pid)
        raise AssertionError("a stream")
    except SandboxException as error:
        assert "started again" in str(error), error
    assert sandbox.commands.kill(handle.pid)
    while sandbox.commands.kill(handle.pid):
        # Its processes are still ending.
        time.sleep(0.01)
    assert sandbox.kill()
    assert not sandbox.is_running()
    print("all of it")


main()
