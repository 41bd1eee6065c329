"""Uses of paths that are meant to break the list of them."""

import os
import sys

ssh = sys.argv[1]
attempts = [
    lambda: open(ssh + "/id_rsa").read(),
    lambda: os.listdir(ssh),
    lambda: open("line\nbreak", "w").close(),
    lambda: open("- a: [b", "w").close(),
    lambda: open("# no comment", "w").close(),
    lambda: open(b"\xff\xfe", "w").close(),
    lambda: open('quote"\\', "w").close(),
    lambda: open("x" * 255, "w").close(),
    lambda: os.open("/" + "y" * 4094, os.O_RDONLY),
    lambda: os.symlink("/etc/passwd", "link"),
    lambda: os.symlink(ssh, "keys"),
    lambda: open("keys/id_rsa").read(),
    lambda: os.rename("kept", "moved"),
    lambda: os.remove("kept/file"),
    lambda: os.rmdir("kept"),
    lambda: os.mkdir("kept"),
    lambda: os.chmod("kept", 0),
    lambda: os.symlink("/", "deep"),
    lambda: open("../outside", "w").close(),
]
for attempt in attempts:
    try:
        attempt()
    except OSError:
        pass
os.makedirs("many")
# More of each kind than the 20,000 that are kept.
for number in range(25_000):
    os.close(os.open(f"many/{number}", os.O_CREAT | os.O_WRONLY))
for number in range(25_000):
    try:
        os.stat(f"/absent/{number}")
    except OSError:
        pass
