#!/usr/bin/env python3
"""What was proven of the sandbox: from what commands printed, as a table in the docs.

    proof.py rows [NAME…]                      name, tier and command of each row, for scripts/prove
    proof.py take NAME LOG KEPT                takes the row's figure out of a log into KEPT
    proof.py missing NAME WHY KEPT             says in KEPT why the row could not be measured
    proof.py render KEPT                       prints the table
    proof.py write KEPT DOC…                   writes it into each DOC between `<!-- proof -->` marks

KEPT is docs/security.json: `{"rows": [ROW…]}`, each ROW in the order below with `name` and either
`found`, a text, or `not_measured`, why; `on` (a date), `kernel`, `as` (root or user). A figure is what
a command printed, or is not there: nothing is computed that no command said.
"""

import datetime
import json
import os
import platform
import re
import sys


def last(prefix):
    """The text after the last line's `prefix: `."""

    def take(log):
        found = re.findall(rf"^(?:test .* \.\.\. )?{prefix}: (.+)$", log, re.M)
        return found[-1].strip() if found else None

    return take


def of_whole(prefix):
    """The text after the last line's `prefix: `, of a run of the whole test command that had no fault."""

    def take(log):
        sums = re.findall(r"^\d+ passed, (\d+) failed, \d+ skipped", log, re.M)
        if not sums or set(sums) != {"0"} or re.search(r"^PROBLEM: ", log, re.M):
            return None
        return last(prefix)(log)

    return take


def each(prefix):
    """Every kind of line with that prefix, the worst of each: lines that differ in numbers only are of
    one kind."""

    def faults(text):
        return sum(int(number) for number in re.findall(r"(?:leaks|wrong)=(\d+)", text))

    def take(log):
        kinds = {}
        for text in re.findall(rf"^(?:test .* \.\.\. )?{prefix}: (.+)$", log, re.M):
            kind = re.sub(r"\d+", "", text)
            if faults(kinds.get(kind, "")) <= faults(text):
                kinds[kind] = text.strip()
        return "; ".join(kinds.values()) or None

    return take


def peak(log):
    """The largest value of the bench's table of memory, and of how many bodies."""
    try:
        rows = json.loads(log)["rows"]
        found = [row for row in rows if row.get("table", "") == "peak of the supervisor's memory"]
        largest = max(found, key=lambda row: row["p99_mib"])
    except (ValueError, KeyError, TypeError):
        return None
    return f"{largest['p99_mib']:.1f} MiB ({largest['name']}; the largest of {len(found)} bodies)"


def storms(log):
    """Median and p99 of both fork storms, from the JSON of the bench."""
    try:
        rows = json.loads(log)["rows"]
    except (ValueError, KeyError, TypeError):
        return None
    found = [
        f"{row['name']}: {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms ({row['rounds']} rounds)"
        for row in rows
        if row.get("table", "").startswith("fork storms")
    ]
    return "; ".join(found) or None


class Row:
    def __init__(self, name, what, tier, command, take):
        self.name, self.what, self.tier, self.command, self.take = name, what, tier, command, take


def tests(program, words="", tier=None):
    """A test program whose lines are looked at."""
    long = f"RUNNER_TESTS_TIER={tier} " if tier else ""
    return f"{long}cargo test --locked --test {program} -- --nocapture --test-threads=1 {words}".strip()


# `quick`: seconds, on a built tree. `full`: minutes. `whole`: the whole test command, best told from
# a log that is there already (scripts/prove --log).
ROWS = [
    Row(
        "cases",
        "attacks and faults of [the catalogue](threats.md)",
        "whole",
        "scripts/test",
        of_whole("threats"),
    ),
    Row(
        "calls-default",
        "system calls that a body can reach, `--syscalls default`",
        "quick",
        "python3 scripts/lib/reachable.py verdicts tests/golden/filter/verdicts-x86_64.txt",
        last("reachable"),
    ),
    Row(
        "calls-strict",
        "the same, `--syscalls strict`",
        "quick",
        "python3 scripts/lib/reachable.py verdicts tests/golden/filter/verdicts-x86_64.txt tests/golden/filter/verdicts-strict-x86_64.txt",
        last("reachable"),
    ),
    Row(
        "calls-docker",
        "the same with Docker's profile and capabilities",
        "quick",
        "scripts/lib/with-package golang-github-docker-docker-dev python3 scripts/lib/reachable.py docker",
        last("reachable"),
    ),
    Row(
        "calls-podman",
        "the same with Podman's",
        "quick",
        "scripts/lib/with-package golang-github-containers-common python3 scripts/lib/reachable.py podman",
        last("reachable"),
    ),
    Row(
        "toolchains",
        "toolchains that do real work in there",
        "full",
        tests("real", "toolchains", tier="long"),
        last("toolchains"),
    ),
    Row("archives", "hostile archives", "full", tests("archives"), last("archives")),
    Row("matrix", "hostile bodies beside [other tools](matrix.md)", "full", tests("matrix", tier="long"), last("matrix")),
    Row("fuzzing", "fuzzing of the parsers, all runs of `scripts/fuzz --write-docs`", "quick", "scripts/lib/fuzzing_docs.py sum", last("fuzzing")),
    Row(
        "leaks",
        "left behind after many runs and kills",
        "full",
        tests("endurance", tier="long"),
        each("endurance"),
    ),
    Row("faults", "faults injected into set-up and sync", "full", tests("faults", tier="long"), each("faults")),
    Row(
        "reproducible",
        "two release builds in different places",
        "full",
        "scripts/check-release --twice",
        last("check-release"),
    ),
    Row(
        "peak",
        "the supervisor's own memory under exhaustion, at most",
        "full",
        "cargo bench --locked --bench limits -- --json",
        peak,
    ),
    Row(
        "kill",
        "from kill to nobody left, under a fork storm, median and p99",
        "full",
        "cargo bench --locked --bench limits -- --json",
        storms,
    ),
]


def row_of(name):
    for row in ROWS:
        if row.name == name:
            return row
    sys.exit(f"{name} is no row: {' '.join(row.name for row in ROWS)}")


def read(path):
    if not os.path.exists(path):
        return {"rows": []}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def keep(path, entry):
    """Puts one row in the place of the one of that name."""
    kept = read(path)
    by_name = {one["name"]: one for one in kept["rows"]}
    by_name[entry["name"]] = entry
    rows = [by_name[row.name] for row in ROWS if row.name in by_name]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"rows": rows}, file, ensure_ascii=False, indent=1)
        file.write("\n")


def circumstances(log=None):
    """Of a figure that was found in this log: of the day on which it was written."""
    at_s = os.path.getmtime(log) if log else None
    now = datetime.datetime.now(datetime.timezone.utc)
    day = now if at_s is None else datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc)
    return {
        "on": day.date().isoformat(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "as": "root" if os.geteuid() == 0 else "user",
    }


def take(name, log, path):
    row = row_of(name)
    with open(log, encoding="utf-8", errors="replace") as file:
        found = row.take(file.read())
    if found is None:
        sys.exit(1)
    keep(path, {"name": name, "found": found, **circumstances(log)})
    print(found)


def render(kept):
    by_name = {one["name"]: one for one in kept["rows"]}
    lines = ["| what | found | on | command |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        entry = by_name.get(row.name, {"not_measured": "nobody has yet"})
        if "found" in entry:
            found = entry["found"].replace("|", "\\|")
            when = f"{entry['on']}, Linux {entry['kernel']}, {entry['as']}"
        else:
            found, when = f"not measured: {entry['not_measured']}", "–"
        lines.append(f"| {row.what} | {found} | {when} | `{row.command}` |")
    return "\n".join(lines) + "\n"


def write(kept, documents):
    table = render(kept)
    pattern = re.compile(r"(<!-- proof -->\n).*?(<!-- /proof -->)", re.S)
    for document in documents:
        with open(document, encoding="utf-8") as file:
            text = file.read()
        text, places = pattern.subn(lambda found: f"{found[1]}\n{table}\n{found[2]}", text)
        if places != 1:
            sys.exit(f"{document} has {places} places `<!-- proof -->` … `<!-- /proof -->` and not one")
        with open(document, "w", encoding="utf-8") as file:
            file.write(text)


def main(words):
    what, *rest = words or [""]
    if what == "rows":
        for row in [row_of(name) for name in rest] or ROWS:
            print(f"{row.name}\t{row.tier}\t{row.command}")
    elif what == "take" and len(rest) == 3:
        take(*rest)
    elif what == "missing" and len(rest) == 3:
        name, why, path = rest
        keep(path, {"name": row_of(name).name, "not_measured": why, **circumstances()})
    elif what == "render" and len(rest) == 1:
        sys.stdout.write(render(read(rest[0])))
    elif what == "write" and len(rest) >= 2:
        write(read(rest[0]), rest[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
