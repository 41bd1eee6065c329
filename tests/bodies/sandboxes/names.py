"""Makes a tree with hostile names in the directory that is its word."""

import os
import sys

os.chdir(sys.argv[1])
names = [b"new\nline", b"\x1b[31mred", b"\xff\xfe", b".wh.gone", b".wh..wh..opq", b"-rf", b" ", b"a\\b", b"x" * 255]
for name in names:
    with open(name, "wb") as file:
        file.write(name)
os.symlink("../../../../etc/passwd", "out")
os.symlink("/nowhere/\n", "dangling")
# Exactly the longest path that a name may have below `copy/`.
os.makedirs("long")
os.chdir("long")
for _ in range(15):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
with open("end", "w", encoding="utf-8") as file:
    file.write("deep\n")
