#!/usr/bin/env python3
"""What was fuzzed, as docs/fuzzing.json keeps it.

    fuzzing_docs.py add TARGET INPUTS SECONDS EDGES    adds a run and writes docs/fuzzing.md anew
    fuzzing_docs.py render                             prints docs/fuzzing.md
    fuzzing_docs.py sum                                prints what all runs add up to
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

Code that reads untrusted bytes is fuzzed with libFuzzer. Each target of `fuzz/` checks a property that
the tests check too (`tests/parsers`); most compare the result with another program's. Only
`scripts/fuzz TARGET --seconds N --write-docs` adds to this table: the inputs that `scripts/test` runs are not
counted. Inputs that broke a property are in `tests/parsers/corpus`. Edges are those of the last run.

These counts do not prove that a parser has no faults.

| target | inputs | minutes | edges | last run |
| --- | ---: | ---: | ---: | --- |
"""


def main(words):
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if len(words) == 5 and words[0] == "add":
        add(record, words[1], *map(int, words[2:]))
    elif words == ["render"]:
        sys.stdout.write(HEAD + table(record))
    elif words == ["sum"]:
        inputs, seconds = sums(record)
        targets = f"{len(TARGETS & record.keys())} of {len(TARGETS)} targets"
        print(f"fuzzing: {inputs:,} inputs executed, {seconds / 3600:.1f} hours, {targets}")
    else:
        sys.exit(__doc__)


def add(record, target, inputs, seconds, edges):
    entry = record.setdefault(target, {"inputs": 0, "seconds": 0})
    entry["inputs"] += inputs
    entry["seconds"] += seconds
    entry["edges"] = edges
    entry["last_run"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    (DOCS / "fuzzing.md").write_text(HEAD + table(record))


def sums(record):
    return tuple(sum(entry[what] for entry in record.values()) for what in ("inputs", "seconds"))


def table(record):
    lines = [line(target, record.get(target)) for target in sorted(TARGETS | record.keys())]
    return "".join(lines) + row("**all**", *sums(record), "", "")


def line(target, entry):
    if entry is None:
        return f"| `{target}` | – | – | – | never recorded |\n"
    return row(f"`{target}`", entry["inputs"], entry["seconds"], entry["edges"], entry["last_run"])


def row(name, inputs, seconds, edges, day):
    return f"| {name} | {inputs:,} | {seconds / 60:.1f} | {edges} | {day} |\n"


if __name__ == "__main__":
    main(sys.argv[1:])
