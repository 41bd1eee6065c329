"""The calls of this package for asyncio: the same names and arguments, as coroutines.

Each call runs in a thread of its own. If its task is cancelled, the program that it executes is asked to end, and with
it the command; the task ends once the program has. What `Sandbox.start` has started goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import socket
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar

from . import _run, _sandbox
from ._flags import PathLike
from ._program import stop_channel
from ._result import Result
from .documents import CommandRecord, Denial, Report, SandboxState

T = TypeVar("T")

__all__ = ["Command", "Forwarding", "Sandbox", "exec_bundle", "run"]


def _begin(function: Callable[..., T], *arguments: Any, **keywords: Any) -> "asyncio.Future[T]":
    # Not asyncio.to_thread: calls that wait would occupy all threads of its pool.
    executor = ThreadPoolExecutor(max_workers=1)
    context = contextvars.copy_context()
    work = functools.partial(context.run, function, *arguments, **keywords)
    begun = asyncio.get_running_loop().run_in_executor(executor, work)
    executor.shutdown(wait=False)
    return begun


async def _settle(call: "asyncio.Future[T]") -> None:
    """Waits for its end, whatever happens to the task."""
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError:
            continue


async def _call(
    function: Callable[..., T], *arguments: Any, undo: Optional[Callable[[T], None]] = None, **keywords: Any
) -> T:
    """Calls it in a thread. A task that is cancelled meanwhile ends what it executes, waits for that, and undoes what
    it has made."""
    own_end, thread_end = socket.socketpair()
    with own_end, thread_end:
        token = stop_channel.set(thread_end)
        try:
            call = _begin(function, *arguments, **keywords)
        finally:
            stop_channel.reset(token)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            own_end.send(b"x")
            await _settle(call)
            if call.exception() is None and undo is not None:
                await _settle(_begin(undo, call.result()))
            raise


async def _finish(function: Callable[..., None], **keywords: Any) -> None:
    """Calls it in a thread, to its end also if the task is cancelled."""
    call = _begin(function, **keywords)
    try:
        await asyncio.shield(call)
    except asyncio.CancelledError:
        await _settle(call)
        raise


async def run(argv: Sequence[PathLike], **keywords: Any) -> Result:
    """As `runner_sandbox.run`."""
    return await _call(_run.run, argv, **keywords)


async def exec_bundle(bundle: PathLike, args: Sequence[PathLike] = (), **keywords: Any) -> Result:
    """As `runner_sandbox.exec_bundle`."""
    return await _call(_run.exec_bundle, bundle, args, **keywords)


class Sandbox:
    """As `runner_sandbox.Sandbox`; ``async with`` removes it at the end."""

    def __init__(self, name: str, *, program: Optional[str] = None) -> None:
        self._sandbox = _sandbox.Sandbox(name, program=program)

    @classmethod
    async def create(cls, **keywords: Any) -> Sandbox:
        made = cls.__new__(cls)
        made._sandbox = await _call(_sandbox.Sandbox.create, undo=lambda one: one.remove(force=True), **keywords)
        return made

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.remove(force=True)

    @property
    def name(self) -> str:
        return self._sandbox.name

    @property
    def report(self) -> Optional[Report]:
        return self._sandbox.report

    @property
    def denials(self) -> List[Denial]:
        return self._sandbox.denials

    async def run(self, argv: Sequence[PathLike], **keywords: Any) -> Result:
        return await _call(self._sandbox.run, argv, **keywords)

    async def start(self, argv: Sequence[PathLike], **keywords: Any) -> Command:
        return Command(await _call(self._sandbox.start, argv, **keywords))

    async def write(self, path: PathLike, content: bytes, *, mode: int = 0o644) -> None:
        await _call(self._sandbox.write, path, content, mode=mode)

    async def read(self, path: PathLike, *, max_size: int = _sandbox.READ_MAX) -> bytes:
        return await _call(self._sandbox.read, path, max_size=max_size)

    async def copy_in(self, source: PathLike, destination: PathLike) -> None:
        await _call(self._sandbox.copy_in, source, destination)

    async def copy_out(self, source: PathLike, destination: PathLike) -> None:
        await _call(self._sandbox.copy_out, source, destination)

    async def snapshot(self, file: PathLike) -> None:
        await _call(self._sandbox.snapshot, file)

    async def forward(self, port: int, host_port: int = 0) -> Forwarding:
        opened = await _call(self._sandbox.forward, port, host_port, undo=lambda one: one.close())
        return Forwarding(opened)

    async def pause(self) -> None:
        await _call(self._sandbox.pause)

    async def resume(self) -> None:
        await _call(self._sandbox.resume)

    async def remove(self, *, force: bool = False) -> None:
        """As `runner_sandbox.Sandbox.remove`. Finished also if the task is cancelled."""
        await _finish(self._sandbox.remove, force=force)

    async def state(self) -> Optional[SandboxState]:
        return await _call(self._sandbox.state)

    async def command_records(self) -> List[CommandRecord]:
        return await _call(self._sandbox.command_records)


class Command:
    """As `runner_sandbox.Command`."""

    def __init__(self, command: _sandbox.Command) -> None:
        self._command = command

    @property
    def id(self) -> int:
        return self._command.id

    @property
    def argv(self) -> Tuple[str, ...]:
        return self._command.argv

    async def logs(self) -> Tuple[bytes, bytes]:
        return await _call(self._command.logs)

    async def wait(self, timeout: Optional[float] = None) -> Result:
        return await _call(self._command.wait, timeout)

    async def kill(self, signal: str = "KILL") -> None:
        await _call(self._command.kill, signal)


class Forwarding:
    """As `runner_sandbox.Forwarding`; ``async with`` closes it at the end."""

    def __init__(self, forwarding: _sandbox.Forwarding) -> None:
        self._forwarding = forwarding

    async def __aenter__(self) -> Forwarding:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    @property
    def host(self) -> str:
        return self._forwarding.host

    @property
    def port(self) -> int:
        return self._forwarding.port

    async def close(self) -> None:
        """As `runner_sandbox.Forwarding.close`. Finished also if the task is cancelled."""
        await _finish(self._forwarding.close)
