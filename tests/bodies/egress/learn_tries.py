def ask(name):
    request = f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
    return dial(name, 80, request.encode()).split("\r\n")[0]


# The attempts
say("public", ask(public))
say("private", ask(f"v4-10-1-2-3.{unique}.zone.example"))
say("literal", ask(literal))
