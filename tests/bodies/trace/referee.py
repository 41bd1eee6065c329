"""Looks for files of the first argument, of which only `seen` is in the view, and for others."""
import glob
import importlib
import os
import socket
import subprocess
import sys

top = sys.argv[1]
hidden, seen = top + "/hidden", top + "/seen"


def attempt(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except (OSError, ImportError):
        pass


sys.path[:0] = [hidden, seen]
for module in ("hidden_module", "seen_module", "no_module"):
    attempt(importlib.import_module, module)
for name in (hidden + "/key", seen + "/file", hidden + "/nowhere", "/etc/shadow", "/var/lib/dpkg/status"):
    attempt(open, name)
    attempt(os.stat, name)
    attempt(os.access, name, os.R_OK)
    attempt(os.readlink, name)
    attempt(os.chmod, name, 0o600)
directory = os.open(seen, os.O_RDONLY)
for name in ("file", "../hidden/key", "link", "dangling", "nowhere"):
    attempt(os.stat, name, dir_fd=directory)
    attempt(os.open, name, os.O_WRONLY, dir_fd=directory)
    attempt(os.mkdir, name + "-directory", dir_fd=directory)
os.chdir(seen)
attempt(os.unlink, "file")
attempt(os.unlink, "../hidden/key")
glob.glob(hidden + "/*")
glob.glob(seen + "/*")
for name in ("socket", "nowhere"):
    attempt(socket.socket(socket.AF_UNIX).connect, hidden + "/" + name)
    attempt(socket.socket(socket.AF_UNIX).bind, hidden + "/bound-" + name)
for tool in ("tool", "no-tool"):
    attempt(subprocess.run, [hidden + "/" + tool], check=False)
