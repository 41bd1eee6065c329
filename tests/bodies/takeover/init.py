# Takes over init: leaves `attack` in the file that init shares, and an orphan that ends with the exit code of
# the planted bug. Prints what init reached, if it notes that.
import os
import sys
import time

HALF_BYTES = 64 << 10
attack, has_notes = sys.argv[1], sys.argv[2] == "notes"


def shared():
    """The file, once init has given it its length."""
    while True:
        try:
            file = open("/tmp/attack", "r+b", buffering=0)
            if os.fstat(file.fileno()).st_size == 2 * HALF_BYTES:
                return file
        except FileNotFoundError:
            pass
        time.sleep(0.01)


def notes(file):
    """What init has noted, once it has."""
    while True:
        length = int.from_bytes(os.pread(file.fileno(), 8, HALF_BYTES), "little")
        if length > 0:
            return os.pread(file.fileno(), length, HALF_BYTES + 8).decode()
        time.sleep(0.01)


file = shared()
file.write(attack.encode())
gate, opened = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(opened)
        # Until the parent has ended: then init is the parent.
        os.read(gate, 1)
        os._exit(213)
    os._exit(0)
os.close(gate)
os.wait()
os.close(opened)
if has_notes:
    print(notes(file), flush=True)
else:
    time.sleep(600)
