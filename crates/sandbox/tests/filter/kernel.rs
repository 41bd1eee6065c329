//! How the running kernel applies the default filter.

#![allow(
    unsafe_code,
    reason = "raw system calls with impossible arguments are what is tested"
)]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

use filter::bpf::{ALLOW, Instruction, LOAD, RETURN};
use filter::{Arch, Arguments, Decision, compile};
use rustix::io::Errno;
use spec::syscall_policy::SyscallPolicyName::{self, Default, Strict};
use sys::seccomp;

use crate::policies::built_in_policy;
use crate::vectors::{some_vectors, with_high_bits};

/// uretprobe and uprobe: the kernel does not pass them to filters (Linux 6.14, 6.18), and kills
/// processes that call them outside its own trampolines.
const PAST_EVERY_FILTER: &[u32] = if cfg!(target_arch = "x86_64") {
    &[335, 336]
} else {
    &[]
};

/// Set for the process that `a_32_bit_call_ends_the_process` starts.
const VICTIM: &str = "RUNNER_TEST_VICTIM";

/// Runs `probe` under `program` in a separate thread: without TSYNC a filter applies to one thread.
fn under<T: Send>(program: &[Instruction], probe: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                rustix::thread::set_no_new_privs(true).expect("no_new_privs is set");
                seccomp::load(program).expect("the kernel takes the filter");
                let status =
                    std::fs::read_to_string("/proc/thread-self/status").expect("status is read");
                // Otherwise the calls below would succeed.
                assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
                probe()
            })
            .join()
            .expect("the probe ended")
    })
}

fn call(number: u64, arguments: &Arguments) -> Result<i64, Errno> {
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: each call that is made here is refused by the filter, or harmless with these
    // arguments: it writes to no memory of ours.
    let answer = unsafe { libc::syscall(number.cast_signed(), a, b, c, d, e, f) };
    if answer == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).expect("an errno"));
    }
    Ok(answer)
}

fn number(name: &str) -> u64 {
    let number = built_in_policy(Default, Arch::NATIVE).number_of(name);
    number.expect("a known call").into()
}

fn errno(name: &str, arguments: &[u64]) -> Option<Errno> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    call(number(name), &all).err()
}

/// B-11, B-21, B-30, B-33, B-34, B-36, B-38.
#[test]
fn the_kernel_refuses_what_the_policy_refuses_and_nothing_else() {
    under(runner_sandbox::seccomp::programs(Default).silent, || {
        assert_eq!(errno("getpid", &[]), None);
        assert_eq!(errno("unshare", &[0x1000_0000]), Some(Errno::PERM));
        assert_eq!(errno("clone3", &[0, 0]), Some(Errno::NOSYS));
        assert_eq!(errno("clone", &[0x1000_0011]), Some(Errno::PERM));
        assert_eq!(errno("io_uring_setup", &[1, 0]), Some(Errno::PERM));
        assert_eq!(errno("fsopen", &[0, 0]), Some(Errno::NOSYS));

        for vsock_or_alg in [38, 40] {
            assert_eq!(
                errno("socket", &[vsock_or_alg, 1, 0]),
                Some(Errno::AFNOSUPPORT)
            );
        }
        assert_eq!(errno("socket", &[2, 1, 262]), Some(Errno::PROTONOSUPPORT));
        for (family, kind) in [(1, 1), (1, 5), (2, 1), (2, 2), (16, 3)] {
            let close_on_exec = 0x80000;
            assert_eq!(errno("socket", &[family, kind | close_on_exec, 0]), None);
        }

        // A bad descriptor: the result would be EBADF if the filter allowed it.
        let nowhere = u64::from(u32::MAX);
        for command in [0x5412, 0x1_0000_5412, 0xffff_ffff_0000_541c] {
            assert_eq!(
                errno("ioctl", &[nowhere, command]),
                Some(Errno::PERM),
                "{command:#x}"
            );
        }
        assert_eq!(errno("ioctl", &[nowhere, 0x5413]), Some(Errno::BADF));
        assert_eq!(
            errno("sendto", &[nowhere, 0, 0, 0x2000_0000]),
            Some(Errno::OPNOTSUPP)
        );
        assert_eq!(errno("sendto", &[nowhere, 0, 0, 0x4000]), Some(Errno::BADF));

        assert_eq!(errno("personality", &[0xffff_ffff]), None);
        assert_eq!(errno("personality", &[0x0004_0000]), Some(Errno::PERM));

        for unknown in [400, 423, 470, 600, 1023, 0x4000_0000, 0x4000_0027] {
            if built_in_policy(Default, Arch::NATIVE)
                .name_of(unknown)
                .is_none()
            {
                let unknown = u64::from(unknown);
                assert_eq!(call(unknown, &[0; 6]), Err(Errno::NOSYS), "{unknown}");
            }
        }
        // Threads and processes can still be created without clone3.
        assert_eq!(thread::spawn(|| 7).join().expect("a thread"), 7);
        assert!(Command::new("true").status().expect("a process").success());
    });
}

/// B-70: without a listener a call that it would refuse fails, whether it waits already or comes later.
#[test]
fn a_refused_call_fails_closed_when_nobody_answers() {
    let (send, receive) = std::sync::mpsc::channel();
    let asking = thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).expect("no_new_privs is set");
        let observed = runner_sandbox::seccomp::programs(Default).observed;
        let listener = seccomp::load_with_listener(observed).expect("a listener");
        send.send(seccomp::Listener::new(listener))
            .expect("received");
        let user_namespace = [0x1000_0000];
        let waiting = errno("unshare", &user_namespace);
        (
            waiting,
            errno("unshare", &user_namespace),
            errno("getpid", &[]),
        )
    });
    let listener = receive.recv().expect("a listener");
    let waiting = listener.receive().expect("received").expect("a call");
    assert_eq!(u64::from(waiting.call.number), number("unshare"));
    drop(listener);
    let answers = asking.join().expect("it ended");
    assert_eq!(answers, (Some(Errno::NOSYS), Some(Errno::NOSYS), None));
}

/// Makes every call from 0 to 1023 that the interpreter says is refused.
#[test]
fn the_kernel_gives_each_refused_call_the_errno_of_its_rule() {
    for name in SyscallPolicyName::ALL {
        let refused = assert_refusals(name);
        assert!(refused > 1024 - 381, "only {refused} were tried");
    }
}

/// The number of refused calls by `name`.
fn assert_refusals(name: SyscallPolicyName) -> usize {
    let policy = built_in_policy(name, Arch::NATIVE);
    under(runner_sandbox::seccomp::programs(name).silent, || {
        let mut refused = 0;
        for number in (0..1024).filter(|number| !PAST_EVERY_FILTER.contains(number)) {
            let rule = policy.ruling(number, &[0; 6]).rule;
            let mut vectors = some_vectors(rule, number.into(), 40);
            if rule.cases.is_empty() {
                vectors.truncate(1);
            }
            let high: Vec<Arguments> = vectors
                .iter()
                .flat_map(|vector| with_high_bits(rule, vector))
                .collect();
            for vector in vectors.into_iter().chain(high) {
                let Some(wanted) = policy.ruling(number, &vector).decision.errno() else {
                    continue;
                };
                let wanted = match wanted {
                    0 => Ok(()),
                    wanted => Err(Errno::from_raw_os_error(wanted.into())),
                };
                assert_eq!(
                    call(number.into(), &vector).map(drop),
                    wanted,
                    "{number} {:?} {vector:x?}",
                    policy.name_of(number)
                );
                refused += 1;
            }
        }
        refused
    })
}

#[test]
fn the_kernel_takes_a_program_with_stepping_stones() {
    let mut policy = built_in_policy(Default, Arch::NATIVE).clone();
    let template = policy
        .rules
        .iter()
        .find(|rule| rule.id == "personality")
        .cloned();
    let template = template.expect("a rule by argument");
    let rules = &mut policy.rules;
    rules.truncate(3);
    let mut asked = Vec::new();
    for place in 3..200 {
        let mut rule = template.clone();
        for condition in &mut rule.cases[0].when {
            condition.one_of.push(place);
        }
        rules.push(rule);
    }
    // Only calls that this test does not need get rules by argument.
    let everything = rules.len();
    let mut allow = template;
    allow.cases.clear();
    allow.action = Decision::Allow;
    rules.push(allow);
    for (index, call) in policy.calls.iter_mut().enumerate() {
        call.rule = everything;
        let refused = built_in_policy(Default, Arch::NATIVE)
            .ruling(call.number.into(), &[0; 6])
            .decision
            != Decision::Allow;
        if refused {
            call.rule = 3 + index % 197;
            asked.push(u64::from(call.number));
        }
    }
    let program = compile(&policy);
    assert!(program.len() > 2 * 255, "{}", program.len());
    under(&program, || {
        for number in asked {
            // A personality that no rule lists.
            let arguments = [0x4000_0000, 0, 0, 0, 0, 0];
            assert_eq!(call(number, &arguments), Err(Errno::PERM));
        }
    });
}

#[test]
fn the_kernel_refuses_an_invalid_filter_program() {
    let allow = Instruction::new(RETURN, 0, 0, ALLOW);
    let outside = Instruction::new(LOAD, 0, 0, 64);
    for broken in [
        vec![],
        vec![outside, allow],
        vec![allow; 4097],
        vec![allow; 65536],
    ] {
        let refused = thread::scope(|scope| {
            let load = || {
                rustix::thread::set_no_new_privs(true).expect("no_new_privs is set");
                seccomp::load(&broken)
            };
            scope.spawn(load).join().expect("the thread ended")
        });
        assert_eq!(refused, Err(Errno::INVAL), "{} instructions", broken.len());
    }
}

/// B-31.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_call_ends_the_process() {
    let victim = |filtered: &str| {
        Command::new(std::env::current_exe().expect("a path"))
            .args(["--ignored", "--exact", "kernel::makes_a_32_bit_call"])
            .env(VICTIM, filtered)
            .output()
            .expect("the victim was started")
            .status
    };
    if !victim("no").success() {
        let why = "this kernel has no 32-bit calls";
        assert!(
            std::env::var_os("RUNNER_TESTS_STRICT").is_none_or(|strict| strict != "1"),
            "{why}"
        );
        crate::say(&format!("SKIPPED: {why}"));
        return;
    }
    assert_eq!(victim("yes").signal(), Some(libc::SIGSYS));
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "started by a_32_bit_call_ends_the_process in a process of its own"]
fn makes_a_32_bit_call() {
    const GETPID_OF_I386: u64 = 20;
    let getpid = || {
        let answer: u64;
        // SAFETY: getpid takes nothing and writes nothing; `int 0x80` keeps the other registers
        // but r8 to r11.
        unsafe {
            std::arch::asm!(
                "int 0x80",
                inlateout("rax") GETPID_OF_I386 => answer,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        assert_eq!(answer, u64::from(std::process::id()));
    };
    match std::env::var(VICTIM).as_deref() {
        Ok("yes") => under(runner_sandbox::seccomp::programs(Strict).silent, getpid),
        _ => getpid(),
    }
}
