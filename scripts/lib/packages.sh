# For scripts that need Debian packages: to be sourced, by bash with `set -euo pipefail`.

loud() { printf '\n!! %s\n' "$*" >&2; }

is_one_of() {
    local wanted=$1 word
    shift
    for word; do [ "$wanted" != "$word" ] || return 0; done
    return 1
}

# Prints the packages of those `program:package` pairs whose program is missing.
packages_of_missing() {
    # What bodies find, whatever version switchers the caller has.
    local -x PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    local pair
    for pair; do
        command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}"
    done
}

# Installs packages. What happens without them comes first, for the message where they cannot be.
install_or_say() {
    local without=$1
    shift
    [ $# -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        loud "missing, $without: $*"
        loud "as root on Debian: apt-get install -y --no-install-recommends $*"
        return 0
    fi
    echo "installing $*"
    if ! { apt-get update -qq && without_services apt-get install -y -qq \
        --no-install-recommends "$@" >/dev/null; }; then
        loud "apt-get could not install $*: $without"
    fi
}

# Runs an installation during which no package starts a service of its own. What the host's owner
# says about that, where he does, is let be.
without_services() (
    policy=/usr/sbin/policy-rc.d
    export DEBIAN_FRONTEND=noninteractive
    if [ ! -e "$policy" ] && [ ! -L "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    "$@"
)
