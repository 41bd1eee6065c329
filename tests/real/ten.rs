//! Ten toolchains at work under both system call policies: they compile, link, pack, install, start
//! threads and children, and connect over loopback.

use std::path::Path;
use std::process::Command;

use spec::syscall_policy::SyscallPolicyName;

use support::packages::{has, succeed};
use support::{Ground, is_root, needs_root, tier_includes};

/// One toolchain and its work.
struct Work {
    /// Its name.
    name: &'static str,
    /// The programs that it needs in the system directories.
    programs: &'static [&'static str],
    /// The script for an empty directory, for `bash -euo pipefail`.
    script: &'static str,
    /// The expected output.
    prints: &'static str,
}

const WORKS: [Work; 10] = [
    Work {
        name: "bash",
        programs: &["bash", "tar", "xz"],
        script: include_str!("../bodies/real/toolchain_bash.sh"),
        prints: "a,b,c\n1000\nended by 15\n3\n./a\n",
    },
    Work {
        name: "gcc",
        programs: &["gcc", "g++", "make"],
        script: include_str!("../bodies/real/toolchain_gcc.sh"),
        prints: "caught 42\n",
    },
    Work {
        name: "git",
        programs: &["git"],
        script: include_str!("../bodies/real/toolchain_git.sh"),
        prints: "change 3\nchange 2\nchange 1\n## other\n  new\n",
    },
    Work {
        name: "node",
        programs: &["node"],
        script: include_str!("../bodies/real/toolchain_node.sh"),
        prints: "served 42\n99999 child\nzipped\n",
    },
    Work {
        name: "npm",
        programs: &["node", "npm"],
        script: include_str!("../bodies/real/toolchain_npm.sh"),
        prints: "part runs\nmade\n",
    },
    Work {
        name: "python",
        programs: &["python3"],
        script: include_str!("../bodies/real/toolchain_python.sh"),
        prints: "[1, 2]\n[1, 2]\n45\nserved\n7\nTrue 1\nok\n",
    },
    Work {
        name: "pip",
        programs: &["python3"],
        script: include_str!("../bodies/real/toolchain_pip.sh"),
        prints: "installed\n",
    },
    Work {
        name: "go",
        programs: &["go", "gcc"],
        script: include_str!("../bodies/real/toolchain_go.sh"),
        prints: "20 true <nil> child\n",
    },
    Work {
        name: "java",
        programs: &["javac", "java", "jar"],
        script: include_str!("../bodies/real/toolchain_java.sh"),
        prints: "served\ntext child\n4999950000\n",
    },
    Work {
        name: "rust",
        programs: &["gcc"],
        script: include_str!("../bodies/real/toolchain_rust.sh"),
        prints: "served true child\n",
    },
];

/// The directory of the Rust toolchain that the caller uses: it is below a home directory.
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

/// Whether the work was done under `policy`; `None` if the host lacks the programs, with a skip
/// printed by [`has`] or [`rust`].
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
    // The strict policy allows less, so its results show more.
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
