# shellcheck shell=bash
# Leaves the paths of this machine out of the programs that are built afterwards: those of the tree and of the sources of
# dependencies, which have to be there. Joined with what .cargo/config.toml says, which RUSTFLAGS would replace.
leave_paths_out() {
    local flags="--remap-path-prefix=$PWD=/runner" directory name
    for directory in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
        flags+=" --remap-path-prefix=${directory%/}=/dependencies"
    done
    name=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUSTFLAGS
    export "$name=$flags"
}

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
