//! System call policy of one architecture, and a plain evaluation of its rules. Tests compare the
//! compiled filter with it.

use serde::Deserialize;

use crate::Arch;
use crate::bpf::{ALLOW, ERRNO};

/// The six arguments of a system call.
pub type Arguments = [u64; 6];

/// Index in [`SyscallPolicy::rules`] of the rule for known calls without a rule.
pub(crate) const UNLISTED: usize = 0;
/// Index of the rule for unknown numbers.
pub const UNKNOWN: usize = 1;
/// Index of the rule for the x32 ABI.
pub(crate) const X32: usize = 2;

/// Id of denials of calls of a foreign architecture, for which the filter kills the process. No rule
/// may have it.
pub(super) const FOREIGN_ARCHITECTURE: &str = "foreign-architecture";

/// First number of the x32 ABI (`__X32_SYSCALL_BIT`).
pub(super) const X32_NUMBER_MIN: u32 = 0x4000_0000;

/// A policy with the numbers of one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallPolicy {
    pub arch: Arch,
    /// The first three are `UNLISTED`, [`UNKNOWN`] and `X32`.
    pub rules: Vec<Rule>,
    /// Every known call, ascending by number.
    pub calls: Vec<Call>,
}

/// A known system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub number: u16,
    pub name: String,
    /// Index in [`SyscallPolicy::rules`].
    pub rule: usize,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub id: String,
    pub reason: String,
    /// `None` if the rule refuses nothing.
    pub report: Option<Reporting>,
    /// The first case whose conditions all hold decides.
    pub cases: Vec<Case>,
    pub action: Decision,
}

/// One case of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub when: Vec<Condition>,
    pub then: Decision,
}

/// A condition on one half of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// 0 to 5.
    pub argument: u8,
    /// The upper 32 bits, instead of the lower ones.
    #[serde(default)]
    pub upper: bool,
    #[serde(default = "every_bit")]
    pub mask: u32,
    /// Allowed values of the masked bits.
    pub one_of: Vec<u32>,
}

const fn every_bit() -> u32 {
    u32::MAX
}

/// Decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Decision {
    #[serde(rename = "allow")]
    Allow,
    /// The call does nothing and returns 0.
    #[serde(rename = "ignore")]
    Ignore,
    #[serde(rename = "ENOMEM")]
    NoMemory,
    #[serde(rename = "EPERM")]
    NotPermitted,
    #[serde(rename = "EINVAL")]
    InvalidArgument,
    #[serde(rename = "ENOLCK")]
    NoLocks,
    /// ENOSYS: callers that test for the call use a fallback.
    #[serde(rename = "ENOSYS")]
    NotImplemented,
    #[serde(rename = "EPROTONOSUPPORT")]
    ProtocolNotSupported,
    #[serde(rename = "EOPNOTSUPP")]
    OperationNotSupported,
    #[serde(rename = "EAFNOSUPPORT")]
    FamilyNotSupported,
}

impl Decision {
    /// All decisions that a policy can state.
    pub const ALL: [Self; 10] = [
        Self::Allow,
        Self::Ignore,
        Self::NoMemory,
        Self::NotPermitted,
        Self::InvalidArgument,
        Self::NoLocks,
        Self::NotImplemented,
        Self::ProtocolNotSupported,
        Self::OperationNotSupported,
        Self::FamilyNotSupported,
    ];

    /// The errno for the body; `None` if the call is allowed. Numbers of `<asm-generic/errno.h>`,
    /// which both architectures use.
    #[must_use]
    pub const fn errno(self) -> Option<u16> {
        match self {
            Self::Allow => None,
            Self::Ignore => Some(0),
            Self::NoMemory => Some(12),
            Self::NotPermitted => Some(1),
            Self::InvalidArgument => Some(22),
            Self::NoLocks => Some(37),
            Self::NotImplemented => Some(38),
            Self::ProtocolNotSupported => Some(93),
            Self::OperationNotSupported => Some(95),
            Self::FamilyNotSupported => Some(97),
        }
    }

    /// Whether the body gets an error.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        !matches!(self, Self::Allow | Self::Ignore)
    }

    /// The value that the filter returns to the kernel.
    #[must_use]
    pub fn return_value(self) -> u32 {
        match self.errno() {
            None => ALLOW,
            Some(errno) => ERRNO | u32::from(errno),
        }
    }

    /// Name in the policy: `allow`, `ignore` or the errno's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ignore => "ignore",
            Self::NoMemory => "ENOMEM",
            Self::NotPermitted => "EPERM",
            Self::InvalidArgument => "EINVAL",
            Self::NoLocks => "ENOLCK",
            Self::NotImplemented => "ENOSYS",
            Self::ProtocolNotSupported => "EPROTONOSUPPORT",
            Self::OperationNotSupported => "EOPNOTSUPP",
            Self::FamilyNotSupported => "EAFNOSUPPORT",
        }
    }
}

/// Whether a refusal is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reporting {
    Yes,
    /// Not a denial, because libraries make this call to find out whether it exists.
    Probe,
}

/// Decision about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling<'p> {
    pub rule: &'p Rule,
    pub decision: Decision,
}

impl Condition {
    /// Whether the condition holds for `arguments`.
    #[must_use]
    pub fn holds(&self, arguments: &Arguments) -> bool {
        let [a, b, c, d, upper @ ..] = arguments[usize::from(self.argument)].to_le_bytes();
        let half = u32::from_le_bytes(if self.upper { upper } else { [a, b, c, d] });
        self.one_of.contains(&(half & self.mask))
    }
}

impl Rule {
    /// Returns the decision for `arguments`.
    #[must_use]
    pub fn decide(&self, arguments: &Arguments) -> Decision {
        self.cases
            .iter()
            .find(|case| case.when.iter().all(|condition| condition.holds(arguments)))
            .map_or(self.action, |case| case.then)
    }

    /// Whether the rule can allow a call.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.decisions().any(|decision| decision == Decision::Allow)
    }

    /// Whether the rule can refuse a call.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.decisions().any(|decision| decision != Decision::Allow)
    }

    fn decisions(&self) -> impl Iterator<Item = Decision> {
        self.cases.iter().map(|case| case.then).chain([self.action])
    }
}

impl SyscallPolicy {
    pub(crate) fn rule_of(&self, name: &str) -> Option<&Rule> {
        let call = self.calls.iter().find(|call| call.name == name)?;
        self.rules.get(call.rule)
    }

    fn call(&self, number: u32) -> Option<&Call> {
        let mut calls = self.calls.iter();
        calls.find(|call| u32::from(call.number) == number)
    }

    /// Moves the calls of the rules whose id begins with `prefix` to the unlisted ones.
    #[must_use]
    pub(crate) fn without(mut self, prefix: &str) -> Self {
        for call in &mut self.calls {
            let rule = self.rules.get(call.rule);
            if rule.is_some_and(|rule| rule.id.starts_with(prefix)) {
                call.rule = UNLISTED;
            }
        }
        self
    }

    /// Returns the decision about call `number` of the native architecture, and the rule.
    #[must_use]
    pub fn ruling(&self, number: u32, arguments: &Arguments) -> Ruling<'_> {
        let index = match self.call(number) {
            Some(call) => call.rule,
            None if self.arch == Arch::X86_64 && number >= X32_NUMBER_MIN => X32,
            None => UNKNOWN,
        };
        let rule = &self.rules[index];
        Ruling {
            rule,
            decision: rule.decide(arguments),
        }
    }

    /// The name of call `number`; `None` if it is unknown.
    #[must_use]
    pub fn name_of(&self, number: u32) -> Option<&str> {
        self.call(number).map(|call| call.name.as_str())
    }

    /// The number of the call `name`; `None` if this architecture does not have it.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u32> {
        let call = self.calls.iter().find(|call| call.name == name)?;
        Some(call.number.into())
    }
}
