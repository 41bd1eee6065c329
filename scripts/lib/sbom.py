#!/usr/bin/env python3
"""Prints the bill of materials of a program, as CycloneDX 1.5 in JSON:

    scripts/lib/sbom.py PACKAGE

Its crates are those that `cargo build -p PACKAGE` builds for this machine. What only the build executes (procedural
macros, dependencies of build scripts) has the scope `excluded`. The C library and Rust's are in a static program, too:
their versions are those of this machine. The time is SOURCE_DATE_EPOCH, so that the same sources give the same bytes.
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def rustc():
    return dict(line.split(": ", 1) for line in run("rustc", "-vV").splitlines()[1:])


def metadata_of_host():
    return json.loads(run("cargo", "metadata", "--offline", "--locked", "--format-version", "1",
                          "--filter-platform", rustc()["host"]))


def crates_of(package, edges):
    """Name and version of each crate below a package of the tree, itself included."""
    lines = run("cargo", "tree", "--offline", "--locked", "--package", package, "--edges", edges,
                "--prefix", "none", "--no-dedupe", "--format", "{p}").splitlines()
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, filter(None, lines))}


def reference(name, version):
    return f"pkg:cargo/{name}@{version}"


def component(package, checksums, linked):
    key = (package["name"], package["version"])
    return {
        "type": "library", "bom-ref": reference(*key), "name": key[0], "version": key[1],
        "scope": "required" if key in linked else "excluded",
        "hashes": [{"alg": "SHA-256", "content": checksums[key]}],
        "licenses": [{"expression": package["license"].replace("/", " OR ")}], "purl": reference(*key),
    }


def bill(program):
    metadata = metadata_of_host()
    packages = {package["id"]: package for package in metadata["packages"]}
    keys = {one: (package["name"], package["version"]) for one, package in packages.items()}
    built, linked = crates_of(program, "normal,build"), crates_of(program, "normal,no-proc-macro")
    # The crates of this tree are the program.
    own = {keys[one] for one in metadata["workspace_members"]}
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    crates = sorted((p for one, p in packages.items() if keys[one] in built - own), key=lambda p: (p["name"], p["version"]))
    (top,) = (package for package in packages.values() if package["name"] == program)
    top_reference = reference(program, top["version"])
    uses = {top_reference: set()} | {reference(p["name"], p["version"]): set() for p in crates}
    for node in (node for node in metadata["resolve"]["nodes"] if keys[node["id"]] in built):
        source = top_reference if keys[node["id"]] in own else reference(*keys[node["id"]])
        for dependency in node["deps"]:
            key = keys[dependency["pkg"]]
            if key in built - own and any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                uses[source].add(reference(*key))
    components = [component(package, checksums, linked) for package in crates]
    for name, version in (platform.libc_ver(), ("rust-std", rustc()["release"])):
        purl = f"pkg:generic/{name}@{version}"
        components.append({"type": "library", "bom-ref": purl, "name": name, "version": version,
                           "scope": "required", "purl": purl})
        uses[top_reference].add(purl)
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([program, components]))}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": {
            "type": "application", "bom-ref": top_reference, "name": program, "version": top["version"],
            "licenses": [{"expression": top["license"]}], "purl": top_reference}},
        "components": components,
        "dependencies": [{"ref": one, "dependsOn": sorted(others)} for one, others in sorted(uses.items())],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(json.dumps(bill(sys.argv[1]), indent=2))
