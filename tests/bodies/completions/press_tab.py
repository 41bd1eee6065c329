"""Types at an interactive shell, and presses TAB.

    press_tab.py SETUP TYPED SHELL…

SETUP is a line for the shell. Prints the line that the shell has completed TYPED to.
"""

import os
import pty
import re
import select
import sys
import time

setup, typed, *shell = sys.argv[1:]
deadline_s = time.monotonic() + 60
output = b""


def read_until(pattern):
    """What the first group of `pattern` matches, in all that the shell has printed."""
    global output
    while not (found := re.search(pattern, output)):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([terminal], [], [], left_s)[0]:
            sys.exit(f"no {pattern!r} in {output!r}")
        try:
            output += os.read(terminal, 4096)
        except OSError:
            sys.exit(f"the shell ended: {output!r}")
    return found[1].decode()


pid, terminal = pty.fork()
if pid == 0:
    os.execvp(shell[0], shell)
# The quotes distinguish what the shell prints from the echo of what is typed.
os.write(terminal, f"{setup}; echo REA''DY\n".encode())
read_until(rb"(READY)\r?\n")
# Control-A goes to the start of the line, which becomes the argument of a command that prints it.
os.write(terminal, f"{typed}\t\x01echo DO''NE \n".encode())
print(read_until(rb"DONE ([^\r\n]*)[\r\n]").strip())
os.close(terminal)
os.waitpid(pid, 0)
