//! Refused system calls of the body: answers them in place of the filter, and counts them.
//!
//! The answer is always that of the silent program for the number and the arguments that the kernel copied.
//! It is an errno, unless the body is traced: then the filter asks about calls that are allowed, too.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use filter::bpf::{ALLOW, ERRNO, Instruction};
use filter::{Examined, SeccompData, examine, interpret};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use spec::limits::milliseconds;
use spec::merged::Merged;
use spec::path_use::PathUses;
use sys::seccomp::Listener;

use crate::path_trace::PathTrace;
use crate::ruleset::Ruleset;
use crate::signal_trace::InitSignals;

/// Calls that are answered without delay. Each takes about 10 µs of this process, which no limit of the
/// body counts.
const BURST: u32 = 100_000;
/// From then on, answers per [`PERIOD`]: a thread waits for its answer, and can be killed meanwhile.
const PER_PERIOD: u32 = 2_000;
const PERIOD: Duration = Duration::from_millis(100);

/// The refused calls of a run.
#[derive(Debug)]
pub struct RefusedCalls {
    listener: Result<Listener, Errno>,
    /// The program that decides.
    silent: &'static [Instruction],
    calls: Merged<Examined>,
    /// `--trace`.
    trace: Option<PathTrace>,
    left: u32,
    refilled: Instant,
    /// No process has the filter any more. The descriptor is readable for good then, also while the kernel
    /// still tears init's namespaces down, and taking a call would block.
    is_over: bool,
}

impl RefusedCalls {
    pub(crate) fn new(
        listener: Result<Listener, Errno>,
        silent: &'static [Instruction],
        now: Instant,
    ) -> Self {
        Self {
            listener,
            silent,
            calls: Merged::default(),
            trace: None,
            left: BURST,
            refilled: now,
            is_over: false,
        }
    }

    /// Also looks at the paths and signals of calls that are allowed, for a body under [`Programs::traced`].
    ///
    /// [`Programs::traced`]: crate::seccomp::Programs::traced
    ///
    /// # Errors
    /// The errno for which /proc cannot be used.
    pub(crate) fn traced(self, ruleset: Option<Ruleset>) -> Result<Self, Errno> {
        Ok(Self {
            trace: Some(PathTrace::start(ruleset)?),
            ..self
        })
    }

    /// What a traced body did with paths so far, from its first instruction on; `None`: it is not traced.
    #[must_use]
    pub fn path_uses(&self) -> Option<&PathUses> {
        self.trace.as_ref().map(PathTrace::uses)
    }

    /// The first process of a traced body. `None`: it is not traced, or not known.
    #[must_use]
    pub fn first_process(&self) -> Option<u32> {
        self.trace.as_ref().and_then(PathTrace::first_process)
    }

    /// The signals that a traced body sent to process 1; `None`: it is not traced.
    #[must_use]
    pub fn signals_to_init(&self) -> Option<&InitSignals> {
        self.trace.as_ref().map(PathTrace::signals)
    }

    /// The symbolic links on the way to the paths of a traced body; none if it is not traced.
    #[must_use]
    pub fn path_links(&self) -> BTreeSet<Vec<u8>> {
        self.trace
            .as_ref()
            .map(PathTrace::links)
            .unwrap_or_default()
    }

    /// What was refused so far.
    ///
    /// # Errors
    /// The errno for which it is not observed: EBUSY in a sandbox that observes its calls itself, EINVAL
    /// before Linux 5.19.
    pub fn calls(&self) -> Result<&Merged<Examined>, Errno> {
        match self.listener {
            Ok(_) => Ok(&self.calls),
            Err(errno) => Err(errno),
        }
    }

    /// Number of distinct refusals, look-ups that failed and signals so far.
    pub(crate) fn distinct(&self) -> usize {
        let of_trace = self.trace.as_ref().map_or(0, |trace| {
            trace.uses().failed.distinct().count() + trace.signals().sent.distinct().count()
        });
        self.calls.distinct().count() + of_trace
    }

    /// Readable when [`RefusedCalls::answer`] has work; `None` while calls must wait.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        let listener = self.listener.as_ref().ok()?;
        (self.left > 0 && !self.is_over).then(|| listener.as_fd())
    }

    /// The descriptor has hung up.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// When waiting calls are answered again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.left == 0).then(|| self.refilled + PERIOD)
    }

    /// Answers one call (seccomp_unotify(2)). `is_waiting`: the descriptor is readable.
    pub(crate) fn answer(
        &mut self,
        is_waiting: bool,
        started: Instant,
        now: Instant,
    ) -> Result<(), Errno> {
        if self.left == 0 && now.duration_since(self.refilled) >= PERIOD {
            self.left = PER_PERIOD;
        }
        let (Ok(listener), true) = (&self.listener, is_waiting && self.left > 0) else {
            return Ok(());
        };
        let Some(waiting) = listener.receive()? else {
            return Ok(());
        };
        let now_ms = milliseconds(now.duration_since(started));
        if let Some(trace) = &mut self.trace
            && interpret(self.silent, &waiting.call) == ALLOW
        {
            trace.look_at(listener, &waiting, now_ms);
            return listener.pass(&waiting, self.silent);
        }
        let (errno, call) = refusal(self.silent, &waiting.call);
        listener.refuse(&waiting, errno)?;
        self.calls.add(call, now_ms);
        self.left -= 1;
        if self.left == 0 {
            self.refilled = now;
        }
        Ok(())
    }

    /// Answers the calls of the body's process until `link` is readable. Does not look at those that it
    /// makes before it is the body.
    pub(crate) fn answer_until_readable(&mut self, link: BorrowedFd<'_>) -> Result<(), Errno> {
        let started = Instant::now();
        if let Some(trace) = &mut self.trace {
            trace.set_launching(true);
        }
        loop {
            let listener = self.as_fd();
            let mut watched = vec![PollFd::from_borrowed_fd(link, PollFlags::IN)];
            watched.extend(listener.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match rustix::event::poll(&mut watched, None) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
            let is_link = !watched[0].revents().is_empty();
            let of_listener = watched.get(1).map_or(PollFlags::empty(), PollFd::revents);
            if is_link {
                break;
            }
            let is_waiting = of_listener.contains(PollFlags::IN);
            if !is_waiting && !of_listener.is_empty() {
                self.end();
            }
            self.answer(is_waiting, started, Instant::now())?;
        }
        if let Some(trace) = &mut self.trace {
            trace.set_launching(false);
        }
        Ok(())
    }
}

/// The errno of `silent` for `call`, and what decided.
fn refusal(silent: &[Instruction], call: &SeccompData) -> (Errno, Examined) {
    let (value, examined) = examine(silent, call);
    let number = match value & !0xffff {
        ERRNO => value & 0xffff,
        // The programs refuse the same calls; anything else fails closed.
        _ => 0,
    };
    let errno = match i32::try_from(number) {
        Ok(number @ 1..=4095) => Errno::from_raw_os_error(number),
        _ => Errno::NOSYS,
    };
    (errno, examined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{programs, traced_call};
    use filter::bpf::{ALLOW, USER_NOTIFICATION};
    use filter::{Arch, TRACED_CALLS};
    use filter::{SyscallPolicy, default_policy, interpret, interpret_observed, strict_policy};
    use spec::syscall_policy::SyscallPolicyName;

    fn call_of(number: u32, arguments: [u64; 6]) -> SeccompData {
        SeccompData {
            number,
            arch: Arch::NATIVE.audit_value(),
            instruction_pointer: 0,
            arguments,
        }
    }

    fn policies() -> [(SyscallPolicyName, SyscallPolicy); 2] {
        let (default, strict) = (default_policy(Arch::NATIVE), strict_policy(Arch::NATIVE));
        [
            (SyscallPolicyName::Default, default.expect("a policy")),
            (SyscallPolicyName::Strict, strict.expect("a policy")),
        ]
    }

    /// Arguments that reach every case of the policies: each value of a condition, alone and with others.
    fn arguments(policy: &SyscallPolicy) -> Vec<[u64; 6]> {
        let mut all = vec![[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]];
        for case in policy.rules.iter().flat_map(|rule| &rule.cases) {
            let mut joined = [0; 6];
            for condition in &case.when {
                for value in &condition.one_of {
                    let shift = if condition.upper { 32 } else { 0 };
                    let mut one = [0; 6];
                    one[usize::from(condition.argument)] = u64::from(*value) << shift;
                    joined[usize::from(condition.argument)] |= u64::from(*value) << shift;
                    all.push(one);
                }
            }
            all.push(joined);
        }
        all
    }

    #[test]
    fn the_observed_program_asks_about_refusals_only_and_the_answer_is_that_of_the_silent_one() {
        for (name, policy) in policies() {
            let programs = programs(name);
            let arguments = arguments(&policy);
            let mut asked = 0;
            for number in (0..600).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
                for arguments in &arguments {
                    let call = call_of(number, *arguments);
                    let silent = interpret(programs.silent, &call);
                    match interpret(programs.observed, &call) {
                        USER_NOTIFICATION => {
                            asked += 1;
                            let ruling = policy.ruling(number, arguments);
                            let (errno, _) = refusal(programs.silent, &call);
                            assert_eq!(
                                Some(errno.raw_os_error()),
                                ruling.decision.errno().map(i32::from)
                            );
                            assert_eq!(silent, ruling.decision.return_value());
                            assert!(ruling.decision.is_refusal(), "{number}");
                        }
                        observed => assert_eq!(observed, silent, "{number} {arguments:?}"),
                    }
                }
            }
            assert!(asked > 10_000, "{asked}");
        }
    }

    /// B-71: the answer to an allowed call is to go on, and to no other.
    #[test]
    fn the_traced_program_asks_also_about_allowed_calls_with_paths_and_about_no_others() {
        for (name, policy) in policies() {
            let programs = programs(name);
            let mut asked = 0;
            for number in (0..600).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
                for arguments in &arguments(&policy) {
                    let call = call_of(number, *arguments);
                    let traced = interpret(programs.traced, &call);
                    let observed = interpret(programs.observed, &call);
                    if traced == observed {
                        continue;
                    }
                    asked += 1;
                    assert_eq!((traced, observed), (USER_NOTIFICATION, ALLOW), "{number}");
                    assert_eq!(interpret(programs.silent, &call), ALLOW, "{number}");
                    assert!(traced_call(number).is_some(), "{number}");
                }
            }
            assert!(asked > 1_000, "{asked}");
            for call in TRACED_CALLS {
                let Some(number) = policy.number_of(call.name) else {
                    continue;
                };
                let ask = call_of(number, [1; 6]);
                let is_allowed = interpret(programs.silent, &ask) == ALLOW;
                let is_asked = interpret(programs.traced, &ask) == USER_NOTIFICATION;
                assert!(is_asked || !is_allowed, "{}", call.name);
            }
            // About a descriptor, without a path, or a signal to another process than the first.
            for (name, arguments) in [
                ("kill", [2, 15, 1, 1, 1, 1]),
                ("kill", [u64::MAX, 15, 1, 1, 1, 1]),
                ("tkill", [0, 1, 1, 1, 1, 1]),
                ("tgkill", [1, 2, 1, 1, 1, 1]),
                ("tgkill", [2, 1, 1, 1, 1, 1]),
                ("rt_sigqueueinfo", [2, 1, 1, 1, 1, 1]),
                ("rt_tgsigqueueinfo", [1, 2, 1, 1, 1, 1]),
                ("sendto", [3, 1, 1, 0, 0, 16]),
                ("sendmsg", [3, 1, 0x4080, 0, 0, 0]),
                ("newfstatat", [3, 1, 1, 0x1000, 0, 0]),
                ("statx", [3, 1, 0x1800, 0, 0, 0]),
                ("utimensat", [3, 0, 1, 0, 0, 0]),
            ] {
                let number = policy.number_of(name).expect(name);
                let call = call_of(number, arguments);
                assert_eq!(interpret(programs.traced, &call), ALLOW, "{name}");
            }
        }
    }

    /// The kernel takes calls that are always allowed from a bitmap, and runs the program for the others.
    #[test]
    fn an_allowed_call_costs_no_more_under_the_observed_program() {
        for (name, policy) in policies() {
            let programs = programs(name);
            let steps = |program: &[Instruction], call: &SeccompData| {
                let mut steps = 0;
                let value = interpret_observed(program, call, |_, _| steps += 1);
                (value == ALLOW).then_some(steps)
            };
            let (mut silent, mut observed) = (0, 0);
            for known in &policy.calls {
                for arguments in arguments(&policy) {
                    let call = call_of(known.number.into(), arguments);
                    let of_silent = steps(programs.silent, &call);
                    let of_observed = steps(programs.observed, &call);
                    assert_eq!(of_silent.is_some(), of_observed.is_some());
                    silent += of_silent.unwrap_or(0);
                    observed += of_observed.unwrap_or(0);
                }
            }
            assert!(observed * 100 <= silent * 103, "{observed} > {silent}");
        }
    }

    #[test]
    fn calls_with_the_same_reason_are_equal() {
        let programs = programs(SyscallPolicyName::Default);
        let (_, policy) = &policies()[0];
        let number = |name| policy.number_of(name).expect(name);
        let examined =
            |name, arguments| refusal(programs.silent, &call_of(number(name), arguments)).1;
        let setns = |argument| examined("setns", [argument; 6]);
        assert_eq!(setns(1), setns(2));
        assert_eq!(setns(1).compared, [0; 6]);
        let socket = |family, protocol| examined("socket", [family, 3, protocol, 9, 9, 9]);
        assert_eq!(socket(17, 3), socket(17, 4));
        assert_eq!(socket(17, 3).arguments, [17, 0, 0, 0, 0, 0]);
        assert_ne!(socket(17, 3), socket(40, 3));
        // CLONE_NEWUSER is one of the bits that decide, the exit signal is not.
        let clone = |flags| examined("clone", [flags, 0, 0, 0, 0, 0]);
        assert_eq!(clone(0x1000_0011), clone(0x1000_0000));
    }

    #[test]
    fn a_program_that_allows_fails_closed() {
        let (errno, _) = refusal(&[], &call_of(0, [0; 6]));
        assert_eq!(errno, Errno::NOSYS);
    }
}
