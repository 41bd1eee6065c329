"""Measures what runs and workers cost a NATS server and their machine: for `scripts/scale --measure`.

Messages and bytes are those that the server counts (/varz of its monitoring port), processor time is that of the kernel:
both hardly depend on what else the machine does.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

from nats import HANG_S, STREAM, Connection, Server, idle_connections, wait_until

NOTHING = pathlib.Path(__file__).resolve().parents[2] / "benches" / "support" / "nothing.c"
MIB = 1 << 20


class Ground:
    """A directory, the programs, and bundles."""

    def __init__(self, runner, directory, window_s):
        self.runner, self.directory, self.window_s = runner, pathlib.Path(directory), window_s
        self.numbers = itertools.count()
        self.body = self.path("nothing")
        flags = ["-O2", "-s", "-static", "-nostdlib"]
        subprocess.run(["cc", *flags, "-o", self.body, NOTHING], check=True)

    def path(self, name):
        return self.directory / name

    def new(self, name):
        return self.path(f"{name}-{next(self.numbers)}")

    def bundle(self, run, files=(), weight=0):
        """Its path and digest. `weight`: so many bytes that no compression makes less."""
        folder = self.new("bundle")
        folder.mkdir()
        (folder / "manifest.yaml").write_text(f"name: nothing\nrun: {run}\n", encoding="ascii")
        for file in files:
            shutil.copy(file, folder)
        if weight:
            (folder / "weight").write_bytes(os.urandom(weight))
        archive = folder.with_suffix(".tar.gz")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder, ".")
        return archive, hashlib.sha256(archive.read_bytes()).hexdigest()

    def environment(self, server, state="state"):
        extra = {"NATS_URL": f"nats://127.0.0.1:{server.port}"}
        return os.environ | extra | {"RUNNER_OPT_STATE_DIRECTORY": str(self.path(state))}

    def command(self, server, *words):
        words = [self.runner, *map(str, words)]
        subprocess.run(words, env=self.environment(server), stdout=subprocess.DEVNULL, check=True)

    @contextlib.contextmanager
    def server(self):
        server = Server(self.new("nats"))
        try:
            yield server
        finally:
            server.close()

    @contextlib.contextmanager
    def workers(self, server, count, *flags):
        """Started one after the other; killed at the end."""
        workers, logs = [], []
        try:
            for _number in range(count):
                logs.append(self.new("log"))
                words = [self.runner, "worker", "--stream", STREAM, *map(str, flags)]
                environment = self.environment(server, f"state-{next(self.numbers)}")
                with open(logs[-1], "wb") as log:
                    workers.append(subprocess.Popen(words, env=environment, stderr=log))
                wait_until(lambda: "places for runs" in logs[-1].read_text(), "the worker works")
            yield workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def rates(ground, server, act):
    """A second, while nothing happens but what `act` does."""
    counts = server.during(lambda: act(ground.window_s))
    names = {"in_msgs": "in_msgs_s", "out_msgs": "out_msgs_s", "server_us": "server_us_s"}
    return {new: round(counts[old] / ground.window_s, 2) for old, new in names.items()}


def idle_workers(ground, count):
    with ground.server() as server, ground.workers(server, 1, "--max-runs", 1):
        before = server.memory_bytes()
        with ground.workers(server, count - 1, "--max-runs", 1):
            found = {"workers": count, "simulated": False} | rates(ground, server, time.sleep)
            return found | {"memory_bytes": server.memory_bytes() - before}


def idle_fleet(ground, count):
    with ground.server() as server:
        with ground.workers(server, 1, "--max-runs", 1):
            pass
        before = server.memory_bytes()
        with idle_connections(server, count, is_pulling=True) as serve:
            # Until each has had its first answer.
            serve(10)
            found = {"workers": count, "simulated": True} | rates(ground, server, serve)
            return found | {"memory_bytes": server.memory_bytes() - before}


def submit_all(server, digest, names):
    client = Connection(server.port)
    body = json.dumps({"bundle": f"sha256:{digest}"}).encode()
    for name in names:
        answer = json.loads(client.request(f"{STREAM}.run.{name}", body))
        if "seq" not in answer:
            raise SystemExit(f"nats-server: {answer}")
    client.socket.close()


def runs(ground, count, watching=0, weight=0, flags=()):
    """Of one worker with one place, while so many other connections watch for cancelled runs."""
    with ground.server() as server, ground.workers(server, 1, "--max-runs", 1, *flags) as workers:
        archive, digest = ground.bundle("nothing", [ground.body], weight)
        ground.command(server, "submit", "--stream", STREAM, "--id", "first", archive)
        ground.command(server, "result", "--stream", STREAM, "--wait", "first")
        with idle_connections(server, watching, is_pulling=False) as serve:
            idle = server.during(lambda: serve(ground.window_s / 2))
            stored, done, since = server.stored_bytes(), server.results(), time.monotonic()
            machine_us = tree_us(workers[0].pid)

            def work():
                submit_all(server, digest, [f"r{number}" for number in range(count)])
                while server.results() < done + count:
                    serve(0.5)
                    if time.monotonic() > since + HANG_S:
                        raise SystemExit("the runs do not end")

            found = server.during(work)
            windows = (time.monotonic() - since) / (ground.window_s / 2)
            machine_us = tree_us(workers[0].pid) - machine_us
            stored = server.stored_bytes() - stored
        found |= {"stored_bytes": stored, "machine_us": machine_us}
        each = {name: round((value - windows * idle.get(name, 0)) / count, 1) for name, value in found.items()}
        return {"runs": count, "watching": watching, "bundle_bytes": archive.stat().st_size} | each


def tree_us(pid):
    """Of a process and of all that it has waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1_000_000 / os.sysconf("SC_CLK_TCK")


def busy_places(ground, count):
    """One worker whose places all have a run that goes on."""
    script = ground.path("wait.sh")
    script.write_text(f"#!/bin/sh\nexec sleep {4 * ground.window_s}\n", encoding="ascii")
    script.chmod(0o755)
    with ground.server() as server, ground.workers(server, 1, "--max-runs", count):
        archive, digest = ground.bundle("wait.sh", [script])
        ground.command(server, "submit", "--stream", STREAM, "--id", "first", archive)
        submit_all(server, digest, [f"r{number}" for number in range(1, count)])

        wait_until(lambda: server.in_progress() == count, "all places are taken")
        # Until all have started.
        time.sleep(10)
        return {"places": count} | rates(ground, server, time.sleep)


def clients(ground, count):
    """What `runner submit` of a known bundle and `runner result` cost the server, for each."""
    with ground.server() as server:
        archive, _digest = ground.bundle("nothing", [ground.body])
        with ground.workers(server, 1, "--max-runs", 1):
            ground.command(server, "submit", "--stream", STREAM, "--id", "first", archive)
            ground.command(server, "result", "--stream", STREAM, "--wait", "first")

        def each(act):
            counts = server.during(lambda: [act(number) for number in range(count)])
            return {name: round(value / count, 1) for name, value in counts.items()}

        def submit(number):
            ground.command(server, "submit", "--stream", STREAM, "--id", f"c{number}", archive)

        submitted = each(submit)
        read = each(lambda _number: ground.command(server, "result", "--stream", STREAM, "first"))
        return {"submit": submitted, "result": read}


def kept_runs(ground, count, stored_bytes):
    """Results that stay: of each a value, a report and its meta data, as large as those of measured runs."""
    with ground.server() as server:
        with ground.workers(server, 1, "--max-runs", 1):
            pass
        client = Connection(server.port)
        client.request(f"$JS.API.STREAM.INFO.{STREAM}")
        memory, stored = server.memory_bytes(), server.stored_bytes()
        value, meta = b"v" * 270, b"m" * 360
        chunk = b"c" * max(1, round(stored_bytes) - 1000)
        for number in range(count):
            name = hashlib.sha256(str(number).encode()).hexdigest()
            client.publish(f"$O.{STREAM}-files.C.{name[:22]}", chunk)
            client.publish(f"$O.{STREAM}-files.M.{name}{name[:32]}", meta)
            client.publish(f"$KV.{STREAM}-runs.kept{number}", value)
        wait_until(lambda: server.results() >= count, "all are kept")
        memory, stored = server.memory_bytes() - memory, server.stored_bytes() - stored
        return {"runs": count, "memory_bytes": round(memory / count), "stored_bytes": round(stored / count)}


def oci_bundle(ground):
    """As that of benches/support/peers.rs."""
    bundle = ground.path("oci")
    for name in ("proc", "dev", "tmp", "usr"):
        (bundle / "rootfs" / name).mkdir(parents=True)
    shutil.copy(ground.body, bundle / "rootfs" / "true")

    def mount(to, kind, source, *options):
        return {"destination": to, "type": kind, "source": source, "options": options}

    def id_map(host):
        return [{"containerID": 0, "hostID": host, "size": 1}]

    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", "proc"),
            mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev"),
            mount("/usr", "none", "/usr", "rbind", "ro"),
        ],
        "linux": {
            "namespaces": [
                {"type": kind} for kind in ("user", "pid", "network", "ipc", "uts", "mount", "cgroup")
            ],
            "uidMappings": id_map(os.geteuid()),
            "gidMappings": id_map(os.getegid()),
            "maskedPaths": ["/proc/keys", "/proc/kallsyms"],
            "readonlyPaths": ["/proc/sys"],
        },
    }
    (bundle / "config.json").write_text(json.dumps(config), encoding="ascii")
    return bundle


def launches(ground, rounds, in_a_round):
    """Processor time of one launch and of all processes that it waits for, in µs; in turns."""
    archive, _digest = ground.bundle("nothing", [ground.body])
    container = ["--root", ground.path("containers"), "run", "--bundle", oci_bundle(ground), "scale"]
    # crun refuses hosts that have both versions of cgroups: it is started where the second is not mounted.
    hidden = "/sys/fs/cgroup/unified"
    hide = ["unshare", "-m", "sh", "-c", f'! [ -d {hidden} ] || umount -l {hidden}; exec "$@"', "sh"]
    repeat = ["sh", "-c", f'for _ in $(seq {in_a_round}); do "$@" || exit; done', "sh"]
    commands = {
        "runner exec": [*repeat, ground.runner, "exec", "-q", archive],
        "crun": [*hide, *repeat, "crun", *container],
        "runc": [*repeat, "runc", *container],
    }
    spent = {name: [] for name in commands}
    for _round in range(rounds):
        for name, words in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, env=os.environ | {"RUNNER_OPT_STATE_DIRECTORY": str(ground.path("loops"))})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            spent[name].append(seconds * 1_000_000 / in_a_round)
    return {name: round(statistics.median(times)) for name, times in spent.items()}


def host():
    version = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True)
    kernel = ".".join(platform.release().split(".")[:2])
    return f"Linux {kernel}, {os.cpu_count()} processors, {version.stdout.strip().replace(': v', ' ')}"


# How much of each: as documented, and to see that it works.
FULL = {
    # Several times as long as a worker waits for a message (5 s).
    "window_s": 30,
    "launches": (9, 20),
    "runs": 500,
    "workers": (10, 30, 100),
    "connections": (100, 1_000, 10_000),
    "watching": 1_000,
    "places": 30,
    "clients": 100,
    "weight": 10 * MIB,
    "fetches": 50,
    "kept": 200_000,
}
ONCE = {
    "window_s": 10,
    "launches": (1, 1),
    "runs": 4,
    "workers": (3,),
    "connections": (3,),
    "watching": 3,
    "places": 2,
    "clients": 2,
    "weight": MIB,
    "fetches": 2,
    "kept": 100,
}


def measure(runner, size):
    """All parts, as docs/scale.json keeps them."""
    missing = [name for name in ("nats-server", "cc", "crun", "runc", "unshare") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        raise SystemExit(f"scale: needs root, and {', '.join(missing) or 'all programs'}")
    # So that servers and workers are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="runner-scale.") as directory:
        ground = Ground(runner, directory, size["window_s"])

        def part(act, *words, **more):
            print(f"{act.__name__} {words} {more}", file=sys.stderr, flush=True)
            return act(ground, *words, **more)

        run = part(runs, size["runs"])
        weight = {"weight": size["weight"]}
        return {
            "host": host(),
            "launches_us": part(launches, *size["launches"]),
            "idle": [part(idle_workers, count) for count in size["workers"]]
            + [part(idle_fleet, count) for count in size["connections"]],
            "busy": part(busy_places, size["places"]),
            "run": run,
            "run_beside": part(runs, size["runs"], watching=size["watching"]),
            "clients": part(clients, size["clients"]),
            "cached": part(runs, size["fetches"], **weight),
            "fetched": part(runs, size["fetches"], flags=("--bundle-cache", "1"), **weight),
            "kept": part(kept_runs, size["kept"], run["stored_bytes"]),
        }
