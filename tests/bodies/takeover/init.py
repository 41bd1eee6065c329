# Takes over init: leaves `attack` where it finds it, and an orphan that ends with the exit code of the
# planted bug. Prints what init reached, if it notes that.
import os
import sys
import time

attack, has_notes = sys.argv[1], sys.argv[2] == "notes"
with open("/tmp/attack", "w") as file:
    file.write(attack)
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
while has_notes and not os.path.exists("/tmp/notes"):
    time.sleep(0.01)
if has_notes:
    print(open("/tmp/notes").read(), flush=True)
else:
    time.sleep(600)
