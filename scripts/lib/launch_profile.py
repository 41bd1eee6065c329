#!/usr/bin/env python3
"""What one launch consists of, as tables: for scripts/profile.

    launch_profile.py measure [--json] ROUNDS WORK PROGRAM WORD…   WORK: a directory for its files
    launch_profile.py parse [--json] -- FILE…    each of a kind that scripts/profile --help names
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
from collections import Counter

# Most that one launch may take; one that hangs should not hang this as well.
LIMIT_S = 60

SUPERVISOR = "supervisor"
INIT = "init"
FIRST = "body's first process until its exec"
BODY = "body"
OTHERS = "other processes"
# In this order; what the body does is its own and no part of the launch.
COLUMNS = (SUPERVISOR, INIT, FIRST, OTHERS)

TABLES = {"phase of the supervisor": "phases", "step of the child, from its clone on": "steps"}
HEAD = re.compile(r"^runner: +took +until  (.+)$")
FAILED = re.compile(r"^runner: failed: ", re.MULTILINE)
# What a launch costs depends on it: without groups nothing is made, written and removed there.
GROUPS = re.compile(r"^runner: cgroup back end: (.+)$", re.MULTILINE)
ROW = re.compile(r"^runner: +(\d+)\.(\d{3}) +\d+\.\d{3}  (.+)$")


def times(stderr):
    """{"phases": {name: µs}, "steps": …} of one -vv, in the order of the lines."""
    tables, table = {"phases": {}, "steps": {}}, None
    for line in stderr.splitlines():
        if head := HEAD.match(line):
            table = tables.get(TABLES.get(head[1]))
        elif table is not None and (row := ROW.match(line)):
            # Whatever comes twice in one launch is one row.
            table[row[3]] = table.get(row[3], 0) + int(row[1]) * 1000 + int(row[2])
    return tables


def rows(launches):
    """[{name, launches, min_us, median_us}], the last one of the sums, of one {name: µs} each."""
    order = []
    for launch in launches:
        place = 0
        for name in launch:
            # What the first launch had not comes after what was before it in its own.
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1

    def row(name, values):
        return {
            "name": name,
            "launches": len(values),
            "min_us": min(values),
            "median_us": round(statistics.median(values)),
        }

    found = [row(name, [launch[name] for launch in launches if name in launch]) for name in order]
    if found:
        found.append(row("all", [sum(launch.values()) for launch in launches if launch]))
    return found


LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?([\w?]+)(\(| resumed>)(.*)$")
RESULT = re.compile(r"= (-?\d+)(?: /\* (\d+) in strace's PID NS \*/)?[^=]*$")
CLONES = ("clone", "clone3", "fork", "vfork")
EXECS = ("execve", "execveat")


class Family:
    """Whose child each process is, from the lines of one strace."""

    def __init__(self):
        self.roles, self.clones, self.init, self.first = {}, [], None, None

    def begin(self, parent, arguments):
        self.clones.append({"parent": parent, "flags": arguments, "child": None})

    def end(self, parent, child):
        """A clone returned `child`, less than 0 where it failed. Its child may have been seen before:
        then it is no longer among the clones."""
        for clone in self.clones:
            if clone["parent"] == parent and clone["child"] is None:
                clone["child"] = child
                if child < 0:
                    self.clones.remove(clone)
                return

    def role(self, pid):
        if pid not in self.roles:
            self.roles[pid] = self.new_role(pid) if self.roles else SUPERVISOR
        return self.roles[pid]

    def new_role(self, pid):
        # A child is often seen before its parent's clone returns, and a parent in a PID namespace
        # sees another number than strace.
        ways = (lambda child: child == pid, lambda child: child is None, lambda child: True)
        found = (clone for fits in ways for clone in self.clones if fits(clone["child"]))
        clone = next(found, None)
        if clone is None:
            return OTHERS
        self.clones.remove(clone)
        of = self.roles[clone["parent"]]
        if "CLONE_THREAD" in clone["flags"] or of in (BODY, OTHERS):
            return of
        if of == SUPERVISOR and "CLONE_NEWPID" in clone["flags"] and self.init is None:
            self.init = pid
            return INIT
        if of == INIT and self.first is None:
            self.first = pid
            return FIRST
        return OTHERS


def calls(trace):
    """{role: Counter of system calls} of one strace -f -o."""
    family, found = Family(), {role: Counter() for role in (*COLUMNS, BODY)}
    for line in trace.splitlines():
        parts = LINE.match(line)
        if parts is None:
            continue
        pid, name, begins, rest = int(parts[1]), parts[2], parts[3] == "(", parts[4]
        role = family.role(pid)
        if begins:
            found[role][name] += 1
            if name in CLONES:
                family.begin(pid, rest)
        if rest.endswith("<unfinished ...>"):
            continue
        result = RESULT.search(rest)
        value = int(result[2] or result[1]) if result else -1
        if name in CLONES:
            family.end(pid, value)
        elif name in EXECS and value == 0 and role == FIRST:
            family.roles[pid] = BODY
    return found


def by_role(found):
    return {role: {"total": sum(of.values()), "calls": dict(sorted_calls(of))} for role, of in found.items()}


def sorted_calls(counts):
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


FAULT = re.compile(r"^.*?\s(\d+)/\d+\s+page-faults(:\w+)?:")
TASK = re.compile(r"PERF_RECORD_(FORK|COMM)( exec)?(?:: (.*):(\d+)/\d+|\((\d+):\d+\):\((\d+):\d+\))$")


def faults(script):
    """{"roles": {role: page faults}, "user_mode_only": bool} of perf script --show-task-events; None
    where it has none."""
    counts, parents, supervisor, init, first, user_only = Counter(), {}, None, None, None, False
    executed = set()
    for line in script.splitlines():
        line = line.rstrip()
        if fault := FAULT.match(line):
            pid = int(fault[1])
            counts[(pid, pid in executed)] += 1
            user_only |= fault[2] == ":u"
        elif task := TASK.search(line):
            if task[1] == "FORK":
                child, parent = int(task[5]), int(task[6])
                if child != parent:
                    parents[child] = parent
                    # Its first process: later ones belong to the body.
                    first = child if first is None and parent == init else first
            elif task[2]:
                pid = int(task[4])
                supervisor = supervisor or pid
                if pid != supervisor:
                    executed.add(pid)
            elif task[3] == "init" and parents.get(int(task[4])) == supervisor:
                init = int(task[4])
    found = Counter()
    for (pid, after), count in counts.items():
        if pid == supervisor:
            found[SUPERVISOR] += count
        elif pid == init:
            found[INIT] += count
        elif pid == first:
            found[BODY if after else FIRST] += count
        else:
            line_of = pid
            while line_of in parents and line_of != first:
                line_of = parents[line_of]
            found[BODY if line_of == first else OTHERS] += count
    return {"roles": dict(found), "user_mode_only": user_only} if found else None


def start(command, stderr):
    """One launch: its code, and its page faults with those of every process that it waited for."""
    with open(stderr, "wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
        # Not SIGKILL: the runner ends the body, and strace the runner.
        guard = threading.Timer(LIMIT_S, process.terminate)
        guard.start()
        _, status, usage = os.wait4(process.pid, 0)
        guard.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_minflt


def text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def last_line(path):
    lines = text(path).strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def measure(rounds, work, program, words):
    def at(name):
        return os.path.join(work, name)

    command = [program, words[0], "-vv", *words[1:]]
    launches, page_faults, codes, groups = [], [], set(), set()
    for number in range(rounds + 1):
        code, minor = start(command, at("stderr"))
        said = text(at("stderr"))
        launch = times(said)
        if not launch["phases"] or FAILED.search(said):
            sys.stderr.write(said)
            sys.exit(f"no launch to show: {' '.join(command)} ended with code {code}")
        # The first one finds caches cold.
        if number > 0:
            launches.append(launch)
            page_faults.append(minor)
            codes.add(code)
            groups.update(GROUPS.findall(said))
    result = {
        "program": program,
        "words": ["BODY" if word == at("body") else word for word in words],
        "launches": rounds,
        "codes": sorted(codes),
        "cgroups": sorted(groups),
        **tables(launches),
        "page_faults_all": round(statistics.median(page_faults)),
        "absent": [],
    }

    def traced(name, key, tracer, read):
        if shutil.which(name) is None:
            result["absent"].append({"name": name, "why": "not on the path"})
            return
        # Without -vv, whose lines are system calls as well.
        code, _ = start([*tracer, program, *words], at("stderr"))
        found = read() if code in codes else None
        if found:
            result[key] = found
        else:
            why = f"ended with code {code}: {last_line(at('stderr'))}"
            result["absent"].append({"name": name, "why": why})

    traced(
        "strace",
        "system_calls",
        ["strace", "-f", "-qq", "-e", "signal=none", "-o", at("trace")],
        lambda: by_role(calls(text(at("trace")))),
    )
    traced(
        "perf",
        "page_faults",
        ["perf", "record", "-q", "-N", "-B", "-e", "page-faults", "-c", "1", "-o", at("perf"), "--"],
        lambda: perf_script(at("perf")),
    )
    return result


def perf_script(path):
    words = ["perf", "script", "-i", path, "--show-task-events", "-F", "comm,pid,tid,event"]
    script = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return faults(script.stdout.decode(errors="replace"))


def tables(launches):
    return {name: rows([launch[name] for launch in launches]) for name in ("phases", "steps")}


def parse(paths):
    launches, result = [], {}

    def one(key, found):
        if key in result:
            sys.exit(f"{path} is a second one of its kind: {key} are those of one launch")
        result[key] = found

    for path in paths:
        words = text(path)
        if any(HEAD.match(line) for line in words.splitlines()):
            launches.append(times(words))
        elif "PERF_RECORD_COMM" in words:
            one("page_faults", faults(words))
        elif any(LINE.match(line) for line in words.splitlines()):
            one("system_calls", by_role(calls(words)))
        else:
            sys.exit(f"{path} is of no kind that scripts/profile --help names")
    return {"launches": len(launches), **tables(launches), **result}


def time_table(title, of, launches):
    odd = any(row["launches"] != launches for row in of)
    yield f"| {title} | min µs | median µs |" + (" launches |" if odd else "")
    yield "| --- | ---: | ---: |" + (" ---: |" if odd else "")
    for row in of:
        cells = f"| {row['name']} | {row['min_us']:,} | {row['median_us']:,} |"
        yield cells + (f" {row['launches']} |" if odd else "")


def call_table(roles):
    columns = [role for role in COLUMNS if role != OTHERS or roles[role]["total"]]
    yield "| system call | " + " | ".join(columns) + " | all |"
    yield "| --- |" + " ---: |" * (len(columns) + 1)
    every = Counter()
    for role in columns:
        every.update(roles[role]["calls"])
    for name, count in sorted_calls(every):
        cells = [str(roles[role]["calls"].get(name, "")) for role in columns]
        yield f"| `{name}` | " + " | ".join(cells) + f" | {count} |"
    totals = [str(roles[role]["total"]) for role in columns]
    yield "| **all** | " + " | ".join(totals) + f" | {sum(every.values())} |"


def markdown(result):
    if "program" in result:
        yield f"`{result['program']} {' '.join(result['words'])}`, {result['launches']} launches with `-vv`"
        codes, groups = ", ".join(map(str, result["codes"])), ", ".join(result["cgroups"])
        yield f"after one that is not counted; ended with code {codes}; cgroup back end: {groups or 'not said'}."
    for name, title, about in (
        ("phases", "phase of the supervisor", "One after the other: their sum is the launch."),
        (
            "steps",
            "step of the child",
            "From its clone on, beside the supervisor; waiting for the supervisor is a step, too.",
        ),
    ):
        if result[name]:
            yield f"\n## {name.capitalize()}\n\n{about}\n"
            yield from time_table(title, result[name], result["launches"])
    if roles := result.get("system_calls"):
        yield "\n## System calls\n"
        yield "One launch under `strace -f`, without `-vv`. strace stops the process twice at each of them,"
        yield "so only counts are shown, no times. The supervisor's own exec is one of its calls. After its"
        yield f"exec the body made {roles[BODY]['total']} more.\n"
        yield from call_table(roles)
    if "page_faults_all" in result or result.get("page_faults"):
        yield "\n## Page faults\n"
    if "page_faults_all" in result:
        yield f"All processes together, by getrusage, without reads from disk: {result['page_faults_all']}"
        yield "(median of the launches). That has those in which the kernel itself touches a page, too;"
        yield "perf has them not."
    if page_faults := result.get("page_faults"):
        mode = "of user mode only (perf_event_paranoid)" if page_faults["user_mode_only"] else "all"
        yield f"By role, one launch under perf, {mode}:\n"
        yield "| role | page faults |\n| --- | ---: |"
        for role in (*COLUMNS, BODY):
            name = "body after its exec" if role == BODY else role
            if count := page_faults["roles"].get(role):
                yield f"| {name} | {count} |"
    if result.get("absent"):
        yield "\n## Not shown\n"
        for absent in result["absent"]:
            yield f"- {absent['name']}: {absent['why']}"


def main():
    # For `| head`.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    what, words = sys.argv[1], sys.argv[2:]
    as_json = words[0] == "--json"
    words = words[1:] if as_json else words
    if what == "parse":
        result = parse(words[1:])
    else:
        result = measure(int(words[0]), words[1], words[2], words[3:])
    if as_json:
        json.dump(result, sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        print("\n".join(markdown(result)))


if __name__ == "__main__":
    main()
