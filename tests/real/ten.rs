//! Ten toolchains, each doing real work under both system call policies: they compile, link, pack,
//! install, start threads and children, and serve and ask over the loopback.

use std::path::Path;
use std::process::Command;

use spec::syscall_policy::SyscallPolicyName;

use support::packages::{has, succeed};
use support::{Ground, is_root, needs_root, tier_includes};

/// One toolchain at work.
struct Work {
    /// Its name.
    name: &'static str,
    /// Programs that it needs, where every sandbox shows them.
    programs: &'static [&'static str],
    /// What is done in an empty directory, by `bash -euo pipefail`.
    script: &'static str,
    /// What that prints.
    prints: &'static str,
}

const WORKS: [Work; 10] = [
    Work {
        name: "bash",
        programs: &["bash", "tar", "xz"],
        script: r#"
            words=(c a b); paste -sd, <(printf '%s\n' "${words[@]}" | sort)
            mkfifo pipe; (seq 1000 >pipe &); wc -l <pipe
            sleep 60 & kill %1; wait %1 || echo "ended by $(($? - 128))"
            seq 9 >a; cp -a a b; touch -d yesterday b; ln b c; tar -cJf d.tar.xz a b c; tar -tf d.tar.xz | wc -l
            find . -newer b -name a; nice true; timeout 9 true; flock a true; df . >e; sync a
        "#,
        prints: "a,b,c\n1000\nended by 15\n3\n./a\n",
    },
    Work {
        name: "gcc",
        programs: &["gcc", "g++", "make"],
        script: r#"
            echo 'int twice(int n) { return 2 * n; }' >twice.c
            cat >main.cc <<'END'
#include <future>
#include <iostream>
#include <stdexcept>
extern "C" int twice(int);
int main() {
    auto answer = std::async(std::launch::async, [] { return twice(21); });
    try { throw std::runtime_error("caught"); } catch (std::exception &e) { std::cout << e.what() << ' '; }
    std::cout << answer.get() << '\n';
}
END
            printf 'main: main.o libtwice.so\n\tg++ -pthread -o main main.o -L. -ltwice -Wl,-rpath,.\nlibtwice.so: twice.c\n\tgcc -shared -fPIC -o $@ $<\n' >Makefile
            make -s -j2 main && ./main
        "#,
        prints: "caught 42\n",
    },
    Work {
        name: "git",
        programs: &["git"],
        script: r#"
            export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
            git init -q -b main one; cd one
            for n in 1 2 3; do echo $n >file; git add .; git commit -qm "change $n"; done
            git gc -q; git worktree add -q ../tree -b other; cd ..
            git clone -q one two; cd two; git fsck 2>/dev/null; git log --format=%s; git -C ../tree status -sb
            echo 4 >file; git stash -q; git stash pop -q; git commit -qam 'change 4'; git push -q origin HEAD:refs/heads/new
            git -C ../one branch --list new
        "#,
        prints: "change 3\nchange 2\nchange 1\n## other\n  new\n",
    },
    Work {
        name: "node",
        programs: &["node"],
        script: r#"
            cat >main.js <<'END'
const { Worker } = require('worker_threads'), http = require('http'), fs = require('fs');
const watcher = fs.watch('.');
new Worker('require("worker_threads").parentPort.postMessage(42)', { eval: true }).on('message', answer => {
  const server = http.createServer((_, reply) => reply.end(`served ${answer}`)).listen(0, '127.0.0.1', async () => {
    const reply = await fetch(`http://127.0.0.1:${server.address().port}`);
    console.log(await reply.text());
    fs.mkdirSync('d'); fs.writeFileSync('d/a', 'x'.repeat(99999)); fs.cpSync('d', 'e', { recursive: true });
    console.log(fs.statSync('e/a').size, require('child_process').execSync('echo child').toString().trim());
    console.log(require('zlib').gunzipSync(require('zlib').gzipSync('zipped')).toString());
    watcher.close(); server.close(); server.closeAllConnections();
  });
});
END
            node main.js
        "#,
        prints: "served 42\n99999 child\nzipped\n",
    },
    Work {
        name: "npm",
        programs: &["node", "npm"],
        script: r#"
            export npm_config_cache=$PWD/cache npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
            mkdir part whole
            echo '{"name":"part","version":"1.0.0","bin":{"part":"bin.js"},"scripts":{"postinstall":"echo made >made"}}' >part/package.json
            printf '#!/usr/bin/env node\nconsole.log("part runs")\n' >part/bin.js; chmod +x part/bin.js
            (cd part; npm pack --silent >/dev/null)
            echo '{"name":"whole","version":"1.0.0","scripts":{"start":"part"}}' >whole/package.json
            cd whole; npm install --offline --silent ../part/part-1.0.0.tgz
            npm start --silent; cat node_modules/part/made
        "#,
        prints: "part runs\nmade\n",
    },
    Work {
        name: "python",
        programs: &["python3"],
        script: r#"
            cat >main.py <<'END'
import asyncio, concurrent.futures, multiprocessing, shutil, sqlite3, subprocess, tempfile, threading, mmap, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *words): pass
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(abs, [1, -2]))
    with concurrent.futures.ThreadPoolExecutor(4) as threads: print(sum(threads.map(abs, range(-9, 0))))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever).start()
    print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}").read().decode()); server.shutdown()
    # Locks on parts of files are refused under the strict policy.
    base = sqlite3.connect("file:base?nolock=1", uri=True); base.execute("create table t(a)"); base.execute("insert into t values(7)"); base.commit()
    print(base.execute("select a from t").fetchone()[0])
    print(asyncio.run(asyncio.create_subprocess_exec("true")) is not None, subprocess.run(["false"]).returncode)
    shared = mmap.mmap(-1, 4096); shared[:2] = b"ok"; shutil.copytree(asyncio.__path__[0], "copy")
    with tempfile.TemporaryFile() as file: file.write(shared[:2]); file.seek(0); print(file.read().decode())
END
            python3 main.py
        "#,
        prints: "[1, 2]\n[1, 2]\n45\nserved\n7\nTrue 1\nok\n",
    },
    Work {
        name: "pip",
        programs: &["python3"],
        script: r#"
            cat >wheel.py <<'END'
import zipfile
with zipfile.ZipFile("demo-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("demo.py", "def main(): print('installed')\n")
    wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("demo-1.0.dist-info/entry_points.txt", "[console_scripts]\ndemo = demo:main\n")
    wheel.writestr("demo-1.0.dist-info/RECORD", "")
END
            python3 wheel.py; python3 -m venv --without-pip venv
            python3 -m pip --python venv/bin/python install -q --no-index --disable-pip-version-check --no-cache-dir ./demo-1.0-py3-none-any.whl
            venv/bin/demo
        "#,
        prints: "installed\n",
    },
    Work {
        name: "go",
        programs: &["go", "gcc"],
        script: r#"
            export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local
            go mod init -modfile=go.mod demo 2>/dev/null || go mod init demo 2>/dev/null
            cat >main.go <<'END'
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { panic(err) }
	go http.Serve(listener, http.HandlerFunc(func(reply http.ResponseWriter, _ *http.Request) { fmt.Fprint(reply, "hello") }))
	var all sync.WaitGroup
	var sum sync.Map
	for number := 0; number < 20; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			reply, err := http.Get("http://" + listener.Addr().String())
			if err != nil { panic(err) }
			body, _ := io.ReadAll(reply.Body)
			sum.Store(number, string(body))
		}(number)
	}
	all.Wait()
	count := 0
	sum.Range(func(_, body any) bool { if body == "hello" { count++ }; return true })
	from, _ := os.Open("main.go")
	to, _ := os.Create("copy")
	copied, err := io.Copy(to, from)
	child, _ := exec.Command("echo", "child").Output()
	fmt.Print(count, " ", copied > 500, " ", err, " ", string(child))
}
END
            go build -o main . && ./main
        "#,
        prints: "20 true <nil> child\n",
    },
    Work {
        name: "java",
        programs: &["javac", "java", "jar"],
        script: r#"
            cat >Main.java <<'END'
import java.io.*; import java.net.*; import java.nio.file.*; import java.util.concurrent.*;
public class Main {
    public static void main(String[] words) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (ServerSocket server = new ServerSocket(0, 9, InetAddress.getLoopbackAddress())) {
            Future<?> served = threads.submit(() -> {
                try (Socket one = server.accept()) { one.getOutputStream().write("served".getBytes()); } return null; });
            try (Socket one = new Socket(server.getInetAddress(), server.getLocalPort())) {
                System.out.println(new String(one.getInputStream().readAllBytes())); }
            served.get();
        }
        Path file = Files.createTempFile(Path.of("."), "a", "b");
        Files.writeString(file, "text"); Files.copy(file, Path.of("copy")); Files.move(file, Path.of("moved"));
        System.out.println(Files.readString(Path.of("copy")) + " " + new String(
            new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
        long sum = java.util.stream.LongStream.range(0, 100000).parallel().sum(); System.gc();
        System.out.println(sum); threads.shutdown();
    }
}
END
            javac Main.java; jar cfe main.jar Main Main.class; java -jar main.jar
        "#,
        prints: "served\ntext child\n4999950000\n",
    },
    Work {
        name: "rust",
        programs: &["gcc"],
        script: r#"
            export CARGO_HOME=$PWD/home RUSTC=$TOOLCHAIN/bin/rustc
            mkdir -p src; printf '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
            cat >src/main.rs <<'END'
use std::{fs, io::{Read, Write}, net::{TcpListener, TcpStream}, process::Command, thread};
fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || listener.accept().and_then(|(mut one, _)| one.write_all(b"served")));
    let mut text = String::new();
    TcpStream::connect(address)?.read_to_string(&mut text)?;
    server.join().expect("joined")?;
    fs::copy("Cargo.toml", "copy")?;
    let mut from = fs::File::open("copy")?;
    let copied = std::io::copy(&mut from, &mut fs::File::create("again")?)?;
    let child = Command::new("echo").arg("child").output()?;
    print!("{text} {} {}", copied > 20, String::from_utf8_lossy(&child.stdout));
    Ok(())
}
#[test]
fn it_is() { assert_eq!(6 * 7, 42); }
END
            "$TOOLCHAIN/bin/cargo" run --quiet --offline
        "#,
        prints: "served true child\n",
    },
];

/// The directory of the Rust toolchain that the caller uses: it lies below a home.
fn rust() -> Option<String> {
    let found = succeed(Command::new("rustc").args(["--print", "sysroot"]));
    let found = found.map(|text| text.trim().to_owned());
    let usable = found
        .ok()
        .filter(|path| Path::new(path).join("bin/cargo").exists());
    if usable.is_none() {
        if is_root() {
            support::skip("no Rust toolchain");
        } else {
            needs_root("the Rust toolchain lies in a home that this user cannot reach");
        }
    }
    usable
}

/// Whether the work was done under `policy`; `None` where the host has not what it needs, which was
/// said then as a skip: by [`has`] or [`rust`].
fn is_done(work: &Work, policy: SyscallPolicyName) -> Option<bool> {
    if !work.programs.iter().all(|program| has(program)) {
        return None;
    }
    let ground = Ground::new();
    let mut flags = vec!["--syscalls", policy.name(), "-m", "1g", "--disk", "700m"];
    let rust = match work.name {
        "rust" => rust()?,
        _ => String::new(),
    };
    let toolchain = format!("TOOLCHAIN={rust}");
    if work.name == "rust" {
        flags.extend(["--ro", &rust, "-e", &toolchain]);
    }
    let script = format!("mkdir /tmp/work; cd /tmp/work\n{}", work.script);
    let done = ground.run(&flags, &["bash", "-euo", "pipefail", "-c", &script]);
    assert_eq!(done.report["syscall_policy"], policy.name());
    let well = done.outcome() == "exited" && done.code == 0 && done.text() == work.prints;
    if !well {
        println!("{} under {}: {done:#?}", work.name, policy.name());
    }
    Some(well)
}

#[test]
fn ten_toolchains_do_real_work_under_the_strict_policy_and_the_default_one() {
    // What works under the strict policy, which allows less, says the most.
    let policies = match tier_includes("long") {
        true => &SyscallPolicyName::ALL[..],
        false => &[SyscallPolicyName::Strict],
    };
    let mut told = Vec::new();
    let mut failed = Vec::new();
    for policy in policies {
        let mut count = 0;
        let mut tried = 0;
        for work in &WORKS {
            match is_done(work, *policy) {
                Some(true) => count += 1,
                Some(false) => failed.push((work.name, policy.name())),
                None => continue,
            }
            tried += 1;
        }
        told.push(format!("{count} of {tried} ({})", policy.name()));
    }
    println!("toolchains: {}", told.join(", "));
    assert!(failed.is_empty(), "{failed:?}");
}
