for host, port in asked:
    is_name = host[0].isalpha()
    first = {
        443: hello(*[host] * is_name) + b"who\n",
        80: f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode(),
    }
    answer = dial(host, port, first.get(port, b"who\n"))
    say(f"{host}:{port}", "reached" if answer[0].isdigit() or answer.startswith("HTTP/1.1 200") else answer)
