import asyncio, ssl, sys
async def fetch(host, port):
    context = ssl.create_default_context() if port == 443 else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.write(f"GET /name HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    text = await reader.read()
    writer.close()
    await writer.wait_closed()
    return text.partition(b"\r\n\r\n")[2].decode()
async def main(host):
    answers = await asyncio.gather(*(fetch(host, port) for port in [80, 443] * 8))
    print("".join(sorted(set(answers))), len(answers))
asyncio.run(main(sys.argv[1]))
