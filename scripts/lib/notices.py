#!/usr/bin/env python3
"""Prints the licences and notices of the crates in programs, as their sources have them:

    scripts/lib/notices.py PACKAGE...

A text that several crates have comes once. Crates without a file of it are named with their licence.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
import sbom  # noqa: E402

FILE = re.compile(r"(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)


def main(programs):
    crates = set().union(*(sbom.crates_of(program, "normal,no-proc-macro") for program in programs))
    metadata = sbom.metadata_of_host()
    texts, without = {}, []
    for package in sorted(metadata["packages"], key=lambda package: (package["name"], package["version"])):
        if package["id"] in metadata["workspace_members"] or (package["name"], package["version"]) not in crates:
            continue
        name = f"{package['name']} {package['version']} ({package['license']})"
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [file for file in sorted(folder.iterdir()) if FILE.match(file.name) and file.is_file()]
        for text in dict.fromkeys(file.read_text(errors="replace").strip() for file in files):
            texts.setdefault(text, []).append(name)
        if not files:
            without.append(name)
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        print("-" * 80, *names, "", text, "", sep="\n")
    print("-" * 80, "Without a file of their licence:", *without, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1:])
