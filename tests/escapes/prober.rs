//! The filters as the kernel loads them: a process checks every number and argument vector without
//! making a call (`prober.c` explains how), and a body makes those that are refused.

use std::fmt::Write as _;
use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use filter::{Arch, Arguments, Decision, Reporting, SeccompData, interpret};
use spec::syscall_policy::SyscallPolicyName;

use super::attempts::{case, program};
use super::policies::built_in_policy;
use super::vectors::{vectors, with_each_high_bit, with_high_bits};
use support::Ground;
use support::bodies::c_body;
use support::source_path;

/// uretprobe and uprobe: filters do not see them.
const PAST_EVERY_FILTER: &[u32] = if cfg!(target_arch = "x86_64") {
    &[335, 336]
} else {
    &[]
};

/// The output of the prober under the silent program of `policy` for `questions`, or for its default
/// questions. Not in a sandbox, where the filter has a listener already.
fn probed(policy: SyscallPolicyName, questions: Option<String>) -> Vec<String> {
    let mut prober = Command::new(c_body("prober", include_str!("prober.c")));
    if questions.is_some() {
        prober.arg("-");
    }
    let text = questions.unwrap_or_default();
    let output = thread::scope(|scope| {
        let under_the_filter = scope.spawn(|| {
            rustix::thread::set_no_new_privs(true).expect("no_new_privs is set");
            sys::seccomp::load(sandbox::seccomp::programs(policy).silent).expect("it is loaded");
            run_with_input(&mut prober, &text)
        });
        under_the_filter.join().expect("the prober ended")
    });
    output.lines().map(str::to_owned).collect()
}

/// The output of `command`, which must exit with 0, for the input `text`.
fn run_with_input(command: &mut Command, text: &str) -> String {
    let mut input = tempfile::tempfile().expect("a file");
    input.write_all(text.as_bytes()).expect("written");
    input.rewind().expect("at its start");
    let output = command
        .stdin(Stdio::from(input))
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The expected output, from the interpreted filter.
fn predicted(policy: SyscallPolicyName, number: u32, arguments: &Arguments) -> &'static str {
    let data = SeccompData {
        number,
        arch: Arch::NATIVE.audit_value(),
        instruction_pointer: 0,
        arguments: *arguments,
    };
    let answer = interpret(sandbox::seccomp::programs(policy).silent, &data);
    let decision = Decision::ALL
        .into_iter()
        .find(|decision| decision.return_value() == answer);
    match decision.expect("an answer of a decision") {
        Decision::Allow => "reached",
        refusal => refusal.name(),
    }
}

/// B-29, B-33, B-38.
#[test]
fn the_kernel_answers_each_number_and_each_socket_as_it_did_when_a_person_read_it() {
    for policy in SyscallPolicyName::ALL {
        let lines = probed(policy, None);
        assert_eq!(lines.len(), 1024 - PAST_EVERY_FILTER.len() + 64 * 16);
        for line in &lines {
            assert_predicted(policy, line);
        }
        let arch = match Arch::NATIVE {
            Arch::X86_64 => "x86_64",
            // Never probed; the lines above were compared with the interpreted filter.
            Arch::Aarch64 => continue,
        };
        let path = source_path(&format!(
            "tests/golden/filter/probed-{}-{arch}.txt",
            policy.name()
        ));
        let table = table(policy, &lines);
        support::golden::assert_golden(&path, &table);
    }
}

/// `call NUMBER ANSWER` or `socket FAMILY TYPE ANSWER`.
fn assert_predicted(policy: SyscallPolicyName, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let value = |word: &str| word.parse::<u32>().expect("a number");
    let socket = built_in_policy(policy, Arch::NATIVE).number_of("socket");
    let (number, arguments, answer) = match words[..] {
        ["call", number, answer] => (value(number), [0; 6], answer),
        ["socket", family, kind, answer] => (
            socket.expect("known"),
            [value(family).into(), value(kind).into(), 0, 0, 0, 0],
            answer,
        ),
        _ => panic!("{line}"),
    };
    assert_eq!(answer, predicted(policy, number, &arguments), "{line}");
}

/// One line for each range of unnamed numbers with the same answer, one for each other number, one
/// for each range of socket families and types.
fn table(policy: SyscallPolicyName, lines: &[String]) -> String {
    let known = built_in_policy(policy, Arch::NATIVE);
    let mut text = format!(
        "# What the kernel answers a body under the {} policy, all arguments 0: number, call, \
         answer.\n# `reached` is past the filter: what the kernel says then is its own matter. To \
         renew it see policies/README.md.\n",
        policy.name()
    );
    // First and last of a range, and its common answer.
    let mut run: Option<(u32, u32, String)> = None;
    let mut flush = |run: &mut Option<(u32, u32, String)>| {
        if let Some((first, last, what)) = run.take() {
            let numbers = match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            let _infallible = writeln!(text, "{}", what.replace('#', &numbers));
        }
    };
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (number, what) = match words[..] {
            ["call", number, answer] => {
                let number: u32 = number.parse().expect("a number");
                let name = known.name_of(number).unwrap_or("-");
                (number, format!("# {name} {answer}"))
            }
            ["socket", family, kind, answer] => {
                let kind: u32 = kind.parse().expect("a number");
                (kind, format!("socket {family} # {answer}"))
            }
            _ => panic!("{line}"),
        };
        match &mut run {
            Some((_, last, before)) if *before == what && *last + 1 == number => *last = number,
            _ => {
                flush(&mut run);
                run = Some((number, number, what));
            }
        }
    }
    flush(&mut run);
    text
}

/// B-21, B-22, B-32, B-34, B-35, B-36, B-38, B-70, H-14, H-15: CVE-2019-10063.
#[test]
fn the_kernel_answers_each_argument_vector_as_the_policy_says() {
    for name in SyscallPolicyName::ALL {
        let policy = built_in_policy(name, Arch::NATIVE);
        let mut asked: Vec<(u32, Arguments)> = Vec::new();
        for call in &policy.calls {
            let number = u32::from(call.number);
            if PAST_EVERY_FILTER.contains(&number) {
                continue;
            }
            let rule = &policy.rules[call.rule];
            let all = vectors(rule);
            for (place, vector) in all.iter().enumerate() {
                asked.push((number, *vector));
                // Every vector as it is, every seventh with bits in the upper halves.
                if place % 7 == 0 {
                    let high = with_high_bits(rule, vector).into_iter();
                    asked.extend(high.map(|high| (number, high)));
                }
            }
            if let Some(vector) = all.first() {
                let high = with_each_high_bit(rule, vector).into_iter();
                asked.extend(high.map(|high| (number, high)));
            }
        }
        // Both ends of the unknown numbers, and the x32 ABI.
        for number in (470..600).chain([1023, 0x3fff_ffff, 0x4000_0000, 0x4000_013b, 0x7fff_ffff]) {
            asked.extend([[0; 6], [u64::MAX; 6]].map(|arguments| (number, arguments)));
        }
        let answers = probed(name, Some(questions(&asked)));
        assert_predicted_all(name, &asked, &answers);
        let is_refused = |(number, arguments): &(u32, Arguments)| {
            predicted(name, *number, arguments) != "reached"
        };
        asked.retain(is_refused);
        for flags in [&[][..], &["--trace"]] {
            let answers = refused_to_a_body(name, &asked, flags);
            assert_predicted_all(name, &asked, &answers);
        }
    }
}

fn questions(asked: &[(u32, Arguments)]) -> String {
    let lines = asked.iter().map(|(number, [a, b, c, d, e, f])| {
        format!("{number:x} {a:x} {b:x} {c:x} {d:x} {e:x} {f:x}\n")
    });
    lines.collect()
}

fn assert_predicted_all(policy: SyscallPolicyName, asked: &[(u32, Arguments)], answers: &[String]) {
    assert_eq!(answers.len(), asked.len());
    for ((number, arguments), answer) in asked.iter().zip(answers) {
        let wanted = predicted(policy, *number, arguments);
        assert_eq!(answer, wanted, "{}: {number}{arguments:x?}", policy.name());
    }
}

/// What a body gets that makes the calls `asked`, all of which are refused. Each that is worth a report
/// is counted.
fn refused_to_a_body(
    policy: SyscallPolicyName,
    asked: &[(u32, Arguments)],
    flags: &[&str],
) -> Vec<String> {
    let ground = Ground::new();
    let prober = c_body("prober", include_str!("prober.c"));
    let flags = [&["-i", "--syscalls", policy.name()], flags].concat();
    let case = case(&ground, &flags, &prober, &["make"]).stdin(questions(asked));
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.report["syscall_policy"], policy.name());
    let known = built_in_policy(policy, Arch::NATIVE);
    let is_reported = |(number, arguments): &&(u32, Arguments)| {
        let ruling = known.ruling(*number, arguments);
        ruling.decision != Decision::Ignore && ruling.rule.report == Some(Reporting::Yes)
    };
    let reported = asked.iter().filter(is_reported).count();
    let denials = done.report["denials"].as_array().expect("a list");
    let counted = denials.iter().filter_map(|denial| denial["count"].as_u64());
    let beyond = &done.report["observation"]["syscalls"]["beyond"];
    let all = counted.sum::<u64>() + beyond.as_u64().expect("a number");
    assert_eq!(usize::try_from(all), Ok(reported));
    done.text().lines().map(str::to_owned).collect()
}

/// B-31: also under the strict policy.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_32_bit_entry_kills_a_body_under_the_strict_policy() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/the_32_bit_entry_kills_a_body_under_the_strict_policy.c");
    let body = program("int80-strict", text);
    let done = case(&ground, &["--syscalls", "strict"], &body, &[]).done();
    done.assert_outcome("signaled", 128 + 31);
    assert_eq!(done.text(), "before\n");
}
