#!/usr/bin/env python3
"""How many system calls of x86-64 a program can reach through a filter.

    reachable.py verdicts FILE…         through the runner's own filter, by its golden verdicts: what a
                                        later file says of a call replaces what earlier ones say
    reachable.py docker PACKAGE.deb     through Docker's profile (golang-github-docker-docker-dev)
    reachable.py podman PACKAGE.deb     through Podman's profile (golang-github-containers-common)

A call counts where some arguments get it past the filter. Profiles are resolved as their tools do
for a container that was given nothing besides: x86-64, a kernel of today, the capabilities that the
same package names as its default. Names are counted over policies/syscall-numbers-x86_64.txt, so
that all three are of one table. Prints one line: `reachable: N of M`.
"""

import io
import json
import os
import re
import subprocess
import sys
import tarfile

NUMBERS = os.path.join(os.path.dirname(__file__), "../../policies/syscall-numbers-x86_64.txt")
# Where the packages have them.
DOCKER_PROFILE = "./usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json"
DOCKER_CAPABILITIES = "./usr/share/gocode/src/github.com/docker/docker/oci/caps/defaults.go"
PODMAN_PROFILE = "./usr/share/containers/seccomp.json"
PODMAN_CAPABILITIES = "./usr/share/containers/containers.conf"


def known_calls():
    with open(NUMBERS, encoding="utf-8") as file:
        lines = (line.split() for line in file if not line.startswith("#"))
        return {words[1] for words in lines if len(words) == 2}


def of_verdicts(texts):
    """Names with at least one line whose plain variant says `allow`."""
    verdicts = {}
    for text in texts:
        named = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                _, call, plain, *_ = line.split()
                named.setdefault(call.partition("(")[0], set()).add(plain)
        verdicts |= named
    return {name for name, plain in verdicts.items() if "allow" in plain}


def holds(rule, capabilities):
    """Whether this entry of a profile counts, as the tools decide it."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    if "amd64" not in (includes.get("arches") or ["amd64"]):
        return False
    if "amd64" in (excludes.get("arches") or []):
        return False
    # Every capability that is included must be there, and none that is excluded. The oldest
    # kernel that an entry asks for is 4.8.
    if any(name not in capabilities for name in includes.get("caps") or []):
        return False
    return not any(name in capabilities for name in excludes.get("caps") or [])


def of_profile(profile, capabilities):
    """Names that the profile allows, for some arguments at least."""
    # An allowed default would turn the count around; nobody's profile has one.
    if profile["defaultAction"] != "SCMP_ACT_ERRNO":
        sys.exit(f"the profile's default is {profile['defaultAction']}: it cannot be counted like this")
    allowed = set()
    for rule in profile["syscalls"]:
        if rule["action"] == "SCMP_ACT_ALLOW" and holds(rule, capabilities):
            allowed.update(rule["names"])
    return allowed


def files_of(package, names):
    """The contents of some files of a Debian package."""
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        return [opened.extractfile(name).read().decode() for name in names]


def capabilities_of(text):
    """`"CAP_CHOWN"` or `"CHOWN"` in the list of defaults; Podman's is a comment that says it."""
    begin = re.search(r"default_capabilities = \[|return \[\]string\{", text)
    if begin is None:
        sys.exit("the package does not say which capabilities are the default")
    listed = re.split(r"[\]}]", text[begin.end() :], maxsplit=1)[0]
    names = re.findall(r'"([A-Z_]+)"', listed)
    return {name if name.startswith("CAP_") else f"CAP_{name}" for name in names}


def main(words):
    if len(words) < 2 or (words[0] != "verdicts" and len(words) != 2):
        sys.exit(__doc__)
    what, path, *more = words
    known = known_calls()
    source = ""
    if what == "verdicts":
        texts = []
        for name in [path, *more]:
            with open(name, encoding="utf-8") as file:
                texts.append(file.read())
        found = of_verdicts(texts)
    elif what in ("docker", "podman"):
        names = {
            "docker": (DOCKER_PROFILE, DOCKER_CAPABILITIES),
            "podman": (PODMAN_PROFILE, PODMAN_CAPABILITIES),
        }[what]
        profile, defaults = files_of(path, names)
        found = of_profile(json.loads(profile), capabilities_of(defaults))
        # NAME_VERSION_ARCHITECTURE.deb
        source = f" ({' '.join(os.path.basename(path).split('_')[:2])})"
    else:
        sys.exit(__doc__)
    print(f"reachable: {len(found & known)} of {len(known)}{source}")


if __name__ == "__main__":
    main(sys.argv[1:])
