#!/usr/bin/env python3
"""Adds one run of one fuzz target to docs/fuzzing.json and writes docs/fuzzing.md anew.

    scripts/lib/fuzzing_docs.py TARGET INPUTS SECONDS EDGES
"""

import datetime
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
TARGETS = {path.stem for path in (ROOT / "fuzz" / "src" / "bin").glob("*.rs")}
RECORD = DOCS / "fuzzing.json"

HEAD = """# Fuzzing

What hostile bytes reach first is fuzzed with libFuzzer: the targets of `fuzz/`, each a property that
the tests check too (`tests/parsers`), most of them against another program's reading of the same
bytes. `scripts/fuzz TARGET --seconds N --write-docs` adds a run to this table, and nothing else does:
what `scripts/test` executes on every run is not counted. Inputs that broke a property are in
`tests/parsers/corpus`. Edges are those that the last run reached.

A parser that holds for so many inputs is not a parser without faults.

| target | inputs | minutes | edges | last run |
| --- | ---: | ---: | ---: | --- |
"""


def main():
    target, inputs, seconds, edges = sys.argv[1], *map(int, sys.argv[2:5])
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    entry = record.setdefault(target, {"inputs": 0, "seconds": 0})
    entry["inputs"] += inputs
    entry["seconds"] += seconds
    entry["edges"] = edges
    entry["last_run"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    (DOCS / "fuzzing.md").write_text(HEAD + table(record))


def table(record):
    lines = [line(target, record.get(target)) for target in sorted(TARGETS | record.keys())]
    inputs = sum(entry["inputs"] for entry in record.values())
    seconds = sum(entry["seconds"] for entry in record.values())
    return "".join(lines) + row("**all**", inputs, seconds, "", "")


def line(target, entry):
    if entry is None:
        return f"| `{target}` | – | – | – | never recorded |\n"
    return row(f"`{target}`", entry["inputs"], entry["seconds"], entry["edges"], entry["last_run"])


def row(name, inputs, seconds, edges, day):
    return f"| {name} | {inputs:,} | {seconds / 60:.1f} | {edges} | {day} |\n"


if __name__ == "__main__":
    main()
