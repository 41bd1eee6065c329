"""Runs `RUNNER run FLAGS... -- CMD...` as a later command of a sandbox that stays.

The report of the sandbox becomes that of the command: how it ended is known here alone.
"""
import json
import os
import subprocess
import sys

runner, _run, *words = sys.argv[1:]
end = words.index("--")
flags, command = words[:end], words[end + 1 :]
[report] = [word.removeprefix("--json=") for word in flags if word.startswith("--json=")]
name = f"later-{os.getpid()}"
created = subprocess.run([runner, "sandbox", "create", "--name", name, *flags], stdout=subprocess.DEVNULL)
if created.returncode != 0:
    sys.exit(created.returncode)
subprocess.run([runner, "sandbox", "exec", name, "true"], stderr=subprocess.DEVNULL)
code = subprocess.run([runner, "sandbox", "exec", name, *command]).returncode
subprocess.run([runner, "sandbox", "rm", "-f", name], stdout=subprocess.DEVNULL, check=True)
with open(report) as file:
    document = json.load(file)
if 125 <= code <= 127:
    error = {"code": "not_started", "message": "not started", "hint": None}
    document |= {"outcome": "failed", "exit": None, "error": error}
elif code > 128:
    document |= {"outcome": "signaled", "exit": {"code": None, "signal": code - 128, "core_dump": False, "raw_status": code - 128}}
else:
    document |= {"exit": {"code": code, "signal": None, "core_dump": False, "raw_status": code << 8}}
with open(report, "w") as file:
    json.dump(document, file)
sys.exit(code)
