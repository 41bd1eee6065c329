#!/usr/bin/env python3
"""What benches found, as one table, as a check against the docs, and in the docs.

    marks.py table DIR             every mark of DIR/*.json, met or missed
    marks.py check DIR KEPT        exit 1 where a ratio is worse than in KEPT (docs/performance.json)
    marks.py json DIR              one JSON of all results
    marks.py write DIR KEPT DOC…   writes KEPT, and the tables into each DOC between its markers

DIR holds NAME.json as root and NAME.user.json as an ordinary user.
"""

import json
import os
import platform
import re
import sys

# Another run of the same program on the same machine moves a ratio by that much.
TOLERANCE = 1.25
# Times are of one machine; only these can be compared with the docs of another one.
COMPARED_UNITS = ("", "MiB", "runs")
# What docs/costs.md shows.
FEW = (
    "run ÷ bwrap",
    "run ÷ floor",
    "exec hello ÷ bwrap",
    "unpack 2,000 files ÷ tar xzf",
    "cached, by identity: over hello",
    "own memory for hello",
    "price of a system call",
)


def results(directory):
    """(who, result) of each bench that was run, in the order of their files' times."""
    names = [name for name in os.listdir(directory) if name.endswith(".json")]
    names.sort(key=lambda name: os.stat(os.path.join(directory, name)).st_mtime_ns)
    for name in names:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            yield "user" if name.endswith(".user.json") else "root", json.load(file)


def by_mark(found):
    """Each mark once, in order: [bench, mark, {who: mark}]."""
    marks = {}
    for who, result in found:
        for mark in result["marks"]:
            entry = marks.setdefault(mark["name"], [result["bench"], mark, {}])
            entry[2][who] = mark
    return list(marks.values())


def shown(number):
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:.{digits}f}"


def limit(mark):
    number = f"{mark['limit']:g}"
    return f"{'≥' if mark['at_least'] else '≤'} {number} {mark['unit']}".strip()


def value(mark):
    if mark is None:
        return "–"
    if "not_measured" in mark:
        return "not measured"
    number = f"{shown(mark['value'])} {mark['unit']}".strip()
    return number if mark["met"] else f"**{number}**"


def verdict(whose):
    measured = [mark for mark in whose.values() if "value" in mark]
    if not measured:
        return "not measured"
    return "met" if all(mark["met"] for mark in measured) else "missed"


def print_table(found):
    marks = by_mark(found)
    whos = [who for who in ("root", "user") if any(who in mark[2] for mark in marks)]
    print("| bench | mark | limit | " + " | ".join(f"as {who}" for who in whos) + " | |")
    print("| --- | --- | --- |" + " --- |" * (len(whos) + 1))
    for bench, mark, whose in marks:
        cells = [bench, mark["name"], limit(mark)]
        cells += [value(whose.get(who)).strip("*") for who in whos] + [verdict(whose)]
        print("| " + " | ".join(cells) + " |")
    for who, result in found:
        for absent in result.get("absent", []):
            print(f"absent | {result['bench']} as {who}: {absent['name']} | {absent['why']}")
    verdicts = [verdict(whose) for *_, whose in marks]
    counts = [f"{verdicts.count(name)} {name}" for name in ("met", "missed", "not measured")]
    print(f"\n{len(marks)} marks: " + ", ".join(counts))


def check(found, kept):
    """Whether any ratio is worse than the kept one by more than the tolerance."""
    before_of = {
        (mark["name"], who): mark.get("value")
        for who, result in rows_of(kept)
        for mark in result["marks"]
    }
    worse, compared = [], 0
    for _, mark, whose in by_mark(found):
        for who, mark in whose.items():
            before = before_of.get((mark["name"], who))
            if before is None or "value" not in mark or mark["unit"] not in COMPARED_UNITS:
                continue
            compared += 1
            now = mark["value"]
            bad = now * TOLERANCE < before if mark["at_least"] else before * TOLERANCE < now
            if bad:
                worse.append(f"{mark['name']} as {who}: {shown(now)}, in the docs {shown(before)}")
    for line in worse:
        print(f"worse | {line}")
    print(f"{compared} ratios compared with the docs, {len(worse)} worse by more than {TOLERANCE:g} times")
    return not worse


def host():
    groups = "version 2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "version 1"
    release = ".".join(platform.release().split(".")[:2])
    return f"Linux {release}, {os.cpu_count()} processors, cgroups of {groups}"


def few_table(found):
    lines = ["| | limit | as root | as a user |", "| --- | --- | --- | --- |"]
    for _, mark, whose in by_mark(found):
        if mark["name"] in FEW:
            cells = [mark["name"], limit(mark)]
            cells += [value(whose.get(who)) for who in ("root", "user")]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def marks_table(found):
    lines = [
        "| bench | mark | limit | as root | as a user | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for bench, mark, whose in by_mark(found):
        cells = [f"`{bench}`", mark["name"], limit(mark)]
        cells += [value(whose.get(who)) for who in ("root", "user")] + [verdict(whose)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fill(text, marker, contents):
    """Puts contents between `<!-- marker -->` and `<!-- /marker -->`, if the text has them."""
    pattern = re.compile(f"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.S)
    return pattern.sub(lambda found: f"{found[1]}\n{contents.strip()}\n\n{found[2]}", text)


def tables_of_docs(result):
    """The tables of a bench, of its pairs only those with `runner`, and one line for each cause of absence."""
    lines, is_pairs = [], False
    for line in result["markdown"].splitlines():
        is_pairs = line.startswith("|") and (is_pairs or line.startswith("| pair |"))
        if not is_pairs or "runner" in line or line.startswith(("| pair |", "| --- |")):
            lines.append(line)
    causes = {}
    for one in result.get("absent", []):
        # "NAME: PROGRAM is not on the path" is one cause, whatever the program.
        cause = "not on the path" if one["why"].endswith("not on the path") else one["why"]
        causes.setdefault(cause, []).append(one["name"])
    absent = [f"Not measured ({cause}): {', '.join(names)}." for cause, names in causes.items()]
    return "\n".join([*lines, "", *absent])


def rows_of(kept):
    """What `results` gives, of the marks that the docs keep."""
    for bench, whose in kept["results"].items():
        for who, marks in whose.items():
            yield who, {"bench": bench, "marks": marks}


def write(found, kept_path, documents):
    with open(kept_path, encoding="utf-8") as file:
        kept = json.load(file)
    for who, result in found:
        kept["results"].setdefault(result["bench"], {})[who] = result["marks"]
    kept["host"] = host()
    with open(kept_path, "w", encoding="utf-8") as file:
        json.dump(kept, file, ensure_ascii=False, indent=1)
        file.write("\n")
    for document in documents:
        with open(document, encoding="utf-8") as file:
            text = file.read()
        text = fill(text, "host", kept["host"])
        text = fill(text, "marks", marks_table(list(rows_of(kept))))
        text = fill(text, "few", few_table(list(rows_of(kept))))
        for who, result in found:
            text = fill(text, f"{result['bench']} as {who}", tables_of_docs(result))
        with open(document, "w", encoding="utf-8") as file:
            file.write(text)


def main(words):
    if len(words) < 2:
        sys.exit(__doc__)
    what, directory, *rest = words
    found = list(results(directory))
    if what == "table":
        print_table(found)
    elif what == "check":
        with open(rest[0], encoding="utf-8") as file:
            kept = json.load(file)
        sys.exit(0 if check(found, kept) else 1)
    elif what == "json":
        json.dump({"host": host(), "results": [{"as": who, **result} for who, result in found]}, sys.stdout)
        print()
    elif what == "write":
        write(found, rest[0], rest[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
