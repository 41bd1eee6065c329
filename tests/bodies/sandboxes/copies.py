"""Processes that copy files: copies of init, which have its name and are not init.

    copies.py stop FILE     stops the next one and writes its pid to FILE
    copies.py kill          kills each one
    copies.py attack        stops the next one, says what it can do to it, and lets it go on
"""

import ctypes
import os
import signal
import sys


def next_copy():
    while True:
        for name in os.listdir("/proc"):
            if not name.isdigit() or name == "1":
                continue
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    stat = file.read()
            except OSError:
                continue
            # Below init itself, and not a zombie. A command is one, too, until it has executed its program:
            # nobody starts one meanwhile.
            fields = stat.rsplit(") ", 1)[1].split()
            if "(init)" in stat and fields[1] == "1" and fields[0] != "Z":
                return int(name)


def attack(pid):
    reached = []

    def attempt(what, act):
        try:
            act()
            reached.append(what)
        except OSError:
            pass

    def traced():
        libc = ctypes.CDLL(None, use_errno=True)
        for request in (16, 0x4206):
            if libc.ptrace(request, pid, 0, 0) == 0:
                return
        raise OSError(ctypes.get_errno(), "ptrace")

    def stolen():
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.syscall(434, pid, 0)
        if descriptor < 0 or libc.syscall(438, descriptor, 1, 0) < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")

    attempt("ptrace", traced)
    attempt("pidfd_getfd", stolen)
    attempt("mem", lambda: open(f"/proc/{pid}/mem", "r+b").close())
    attempt("maps", lambda: open(f"/proc/{pid}/maps", "rb").read())
    attempt("environ", lambda: open(f"/proc/{pid}/environ", "rb").read())
    attempt("exe", lambda: os.readlink(f"/proc/{pid}/exe"))
    attempt("program", lambda: open(f"/proc/{pid}/exe", "rb").close())
    attempt("descriptors", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt("output", lambda: open(f"/proc/{pid}/fd/1", "wb").close())
    attempt("root", lambda: os.listdir(f"/proc/{pid}/root/"))
    return reached


def main():
    action = sys.argv[1]
    print("up", flush=True)
    if action == "kill":
        while True:
            try:
                os.kill(next_copy(), signal.SIGKILL)
            except ProcessLookupError:
                pass
    pid = next_copy()
    os.kill(pid, signal.SIGSTOP)
    if action == "stop":
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(str(pid))
        return
    print(" ".join(["reached:"] + attack(pid)), flush=True)
    os.kill(pid, signal.SIGCONT)


main()
