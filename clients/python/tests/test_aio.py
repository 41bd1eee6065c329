"""The twin for asyncio: many calls at once, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, Awaitable, Callable

import pytest

from runner_sandbox import RunnerError, aio

SHELL = ["sh", "-c"]


async def until(is_so: Callable[[], Awaitable[Any]]) -> None:
    while not await is_so():
        await asyncio.sleep(0.02)


def test_each_call_has_its_counterpart(tmp_path: Path) -> None:
    async def work() -> None:
        assert (await aio.run(["echo", "hello"])).text == "hello\n"
        with pytest.raises(RunnerError):
            await aio.run(["no-such-program"])
        async with await aio.Sandbox.create(idle_timeout="5m") as box:
            await box.write("/scratch/in", b"abc")
            assert (await box.run(["cat"], input=b"given")).text == "given"
            assert await box.read("/scratch/in") == b"abc"
            await box.copy_out("/scratch/in", tmp_path / "out")
            await box.copy_in(tmp_path / "out", "/scratch/again")
            await box.snapshot(tmp_path / "files.tar")
            command = await box.start([*SHELL, "echo up; exec sleep 1000"])

            async def has_written() -> bool:
                return (await command.logs())[0] == b"up\n"

            await until(has_written)
            await command.kill("TERM")
            assert (await command.wait()).signal == 15
            async with await box.forward(8000) as forwarding:
                assert (forwarding.host, forwarding.port > 0) == ("127.0.0.1", True)
                _, connection = await asyncio.open_connection(forwarding.host, forwarding.port)
                connection.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(forwarding.host, forwarding.port)
            assert [record["id"] for record in await box.command_records()][-1] >= command.id
            assert await box.state() is not None
            with pytest.raises(RunnerError):
                await box.run(["no-such-program"])
        assert await box.state() is None
        assert box.report is not None and box.denials == box.report["denials"]

    asyncio.run(work())


def test_calls_that_wait_hold_up_no_other() -> None:
    async def work() -> None:
        async with await aio.Sandbox.create(idle_timeout="5m") as box:
            text = "until test -e /scratch/go; do sleep 0.02; done; echo went"
            waiting = [asyncio.ensure_future(box.run([*SHELL, text])) for _ in range(40)]

            async def all_run() -> bool:
                state = await box.state()
                return state is not None and len(state["commands"]) == 40

            await until(all_run)
            await box.write("/scratch/go", b"")
            assert [result.text for result in await asyncio.gather(*waiting)] == ["went\n"] * 40

    asyncio.run(work())


def test_a_task_that_is_cancelled_ends_its_command_and_leaves_nothing() -> None:
    async def work() -> None:
        async with await aio.Sandbox.create(idle_timeout="5m") as box:
            task = asyncio.ensure_future(box.run(["sleep", "1000"]))

            async def number() -> int:
                state = await box.state()
                assert state is not None
                return len(state["commands"])

            async def it_runs() -> bool:
                return await number() == 1

            await until(it_runs)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            async def it_has_ended() -> bool:
                return await number() == 0

            await until(it_has_ended)
            assert (await box.run(["true"])).ok
            # By a timeout of asyncio.
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.run(["sleep", "1000"]), 0.3)
            await until(it_has_ended)

    asyncio.run(work())


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
def test_a_forwarding_that_is_cancelled_at_any_time_leaves_no_port_open(delay: float) -> None:
    async def work() -> None:
        async with await aio.Sandbox.create(idle_timeout="5m") as box:
            with socket.create_server(("127.0.0.1", 0)) as chosen:
                port = chosen.getsockname()[1]
            task = asyncio.ensure_future(box.forward(8000, port))
            await asyncio.sleep(delay)
            task.cancel()
            try:
                await (await task).close()
            except asyncio.CancelledError:
                pass
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(work())


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.1, 0.2, 0.4])
def test_a_creation_that_is_cancelled_at_any_time_leaves_no_sandbox(delay: float) -> None:
    async def work() -> None:
        name = f"cancelled-{int(delay * 1000)}"
        task = asyncio.ensure_future(aio.Sandbox.create(name=name))
        await asyncio.sleep(delay)
        task.cancel()
        try:
            await (await task).remove(force=True)
        except asyncio.CancelledError:
            pass
        assert await aio.Sandbox(name).state() is None

    asyncio.run(work())
