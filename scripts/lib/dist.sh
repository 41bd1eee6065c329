# shellcheck shell=bash
# Builds the program to install in the working directory, and prints its path.
dist_program() {
    cargo build --quiet --locked --profile dist
    cargo build --quiet --locked --profile dist --message-format=json 2>/dev/null | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == ["bin"]:
        print(message["executable"])'
}
