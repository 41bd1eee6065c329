"""The official client of Python: every tool once, as a host of an agent calls it.

Arguments: the words that start the server, or the URL of one and its token.
"""

import asyncio
import base64
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def texts(result):
    return [block.text for block in result.content]


async def use(session):
    tools = {tool.name for tool in (await session.list_tools()).tools}
    assert tools == {
        "execute_command",
        "get_process_output",
        "kill_process",
        "read_file",
        "write_file",
        "list_files",
        "explain_denial",
    }, tools

    async def call(name, **arguments):
        return await session.call_tool(name, arguments)

    failed = await call("execute_command", command="echo out; echo err >&2; exit 3")
    assert failed.is_error and texts(failed)[1:] == ["out\n", "err\n"], failed
    assert failed.structured_content["exit_code"] == 3, failed

    seen = []

    async def progress(value, total, message):
        seen.append((value, message))

    slow = await session.call_tool(
        "execute_command", {"command": "echo on; sleep 1.5"}, progress_callback=progress
    )
    assert not slow.is_error and seen and "3 bytes of output" in seen[0][1], (slow, seen)

    raw = base64.b64encode(bytes(range(256))).decode()
    await call("write_file", path="d/raw", content=raw, encoding="base64")
    read = (await call("read_file", path="d/raw")).structured_content
    assert (read["content"], read["encoding"], read["size"]) == (raw, "base64", 256), read
    await call("write_file", path="d/text", content="zwölf\n")
    read = (await call("read_file", path="d/text", offset=1, limit=3)).structured_content
    assert (read["content"], read["next_offset"]) == ("wö", 4), read
    listed = await call("list_files", path="d")
    assert texts(listed) == ["2 entries", "raw\ntext\n"], listed

    started = await call("execute_command", command="echo up; sleep 1000", background=True)
    id = started.structured_content["id"]
    output = {"stdout": ""}
    while output["stdout"] != "up\n":
        output = (await call("get_process_output", id=id)).structured_content
    assert output["running"], output
    await call("kill_process", id=id)
    while output["running"]:
        output = (await call("get_process_output", id=id)).structured_content
    assert output["exit_code"] == 137, output

    denied = (await call("explain_denial", path="/etc/shadow")).structured_content["answer"]
    assert denied["verdict"] == "denied" and "--ro" in denied["change"], denied


def connect(program, *words):
    if not program.startswith("http:"):
        return stdio_client(StdioServerParameters(command=program, args=list(words)))
    headers = {"Authorization": f"Bearer {words[0]}"}
    client = httpx2.AsyncClient(headers=headers, timeout=60)
    # At its end it ends the session.
    return streamable_http_client(program, http_client=client)


async def main(*words):
    async with connect(*words) as streams:
        async with ClientSession(*streams) as session:
            assert (await session.initialize()).server_info.name == "runner"
            await use(session)
    print("used")


asyncio.run(main(*sys.argv[1:]))
