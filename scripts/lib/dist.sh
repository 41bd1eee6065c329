# shellcheck shell=bash
# Builds a program to install, `runner` or the named one, in the working directory, and prints its path. Each is
# built by itself: together, cargo would give `runner` the features that its dependencies have for the others.
dist_program() {
    local package=${1:-runner}
    cargo build --quiet --locked --profile dist -p "$package"
    cargo build --quiet --locked --profile dist -p "$package" --message-format=json 2>/dev/null | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == ["bin"]:
        print(message["executable"])'
}
