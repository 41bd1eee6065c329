"""Swaps a directory for a link, and a file for a link, as fast as it can.

    swap.py DIRECTORY TARGET    `d` of the directory is a directory with the file `f`, or a link to TARGET
"""

import os
import sys

directory, target = sys.argv[1:]
os.chdir(directory)
os.makedirs("a/d", exist_ok=True)
with open("a/d/f", "w", encoding="utf-8") as file:
    file.write("own\n")
with open("a/f", "w", encoding="utf-8") as file:
    file.write("own\n")
print("up", flush=True)
while True:
    for name, to in (("d", target), ("f", os.path.join(target, "f"))):
        os.rename(f"a/{name}", f"{name}.kept")
        os.symlink(to, f"a/{name}")
        os.unlink(f"a/{name}")
        os.rename(f"{name}.kept", f"a/{name}")
