//! A system call policy for one architecture, and what it decides: the naive reading of the rules.
//!
//! Slow and plain on purpose: it explains single calls, and tests hold the compiled filter
//! against it.

use std::borrow::Cow;

use serde::Deserialize;

use crate::filter::Arch;

/// The six arguments of a system call.
pub type Arguments = [u64; 6];

/// Place in [`SyscallPolicy::rules`] of the rule for known calls that no rule names.
pub(crate) const UNLISTED: u8 = 0;
/// Place of the rule for numbers that no table knows.
pub const UNKNOWN: u8 = 1;
/// Place of the rule for the x32 ABI.
pub(crate) const X32: u8 = 2;

/// Id under which a call of a foreign architecture is reported; the filter kills the process.
pub(crate) const FOREIGN_ARCHITECTURE: &str = "foreign-architecture";

/// First number of the x32 ABI (`__X32_SYSCALL_BIT`).
pub(super) const X32_NUMBER_MIN: u32 = 0x4000_0000;

/// A policy bound to the numbers of one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallPolicy {
    pub arch: Arch,
    /// The rules; the first three are `UNLISTED`, [`UNKNOWN`] and `X32`.
    pub rules: Cow<'static, [Rule]>,
    /// Every known call, ascending by number.
    pub calls: Cow<'static, [Call]>,
    /// Their names in the same order, one space between.
    pub names: Cow<'static, str>,
}

/// A known system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub number: u16,
    /// Place of its rule in [`SyscallPolicy::rules`].
    pub rule: u8,
}

impl Call {
    pub(super) const fn new(number: u16, rule: u8) -> Self {
        Self { number, rule }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Stable name; denials carry it.
    pub id: Cow<'static, str>,
    pub reason: Cow<'static, str>,
    /// Whether a refusal is reported; `None` where the rule refuses nothing.
    pub report: Option<Reporting>,
    /// The first whose conditions all hold decides.
    pub cases: Cow<'static, [Case]>,
    /// What is decided where no case does.
    pub action: Decision,
}

/// One case of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub when: Cow<'static, [Condition]>,
    /// What is decided then.
    pub then: Decision,
}

/// Something about the lower 32 bits of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// The bits that count.
    #[serde(default = "every_bit")]
    pub mask: u32,
    /// What those bits may be.
    pub one_of: Cow<'static, [u32]>,
}

const fn every_bit() -> u32 {
    u32::MAX
}

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Decision {
    /// The kernel does the call.
    #[serde(rename = "allow")]
    Allow,
    #[serde(rename = "EPERM")]
    NotPermitted,
    #[serde(rename = "EINVAL")]
    InvalidArgument,
    #[serde(rename = "ENOLCK")]
    NoLocks,
    /// "Function not implemented": whoever tests for the call takes another way.
    #[serde(rename = "ENOSYS")]
    NotImplemented,
    #[serde(rename = "EPROTONOSUPPORT")]
    ProtocolNotSupported,
    #[serde(rename = "EOPNOTSUPP")]
    OperationNotSupported,
    /// "Address family not supported by protocol".
    #[serde(rename = "EAFNOSUPPORT")]
    FamilyNotSupported,
}

impl Decision {
    /// The errno that the body gets; `None` where the call is allowed. The numbers are those of
    /// `<asm-generic/errno.h>`, which both architectures use.
    #[must_use]
    pub const fn errno(self) -> Option<u16> {
        match self {
            Self::Allow => None,
            Self::NotPermitted => Some(1),
            Self::InvalidArgument => Some(22),
            Self::NoLocks => Some(37),
            Self::NotImplemented => Some(38),
            Self::ProtocolNotSupported => Some(93),
            Self::OperationNotSupported => Some(95),
            Self::FamilyNotSupported => Some(97),
        }
    }

    /// As it is written in the policy: `allow`, or the errno's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
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

/// Whether a refusal is worth a line in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reporting {
    /// A denial: the listener hears of it.
    Yes,
    /// A library's test whether the call is there: a plain errno in every variant.
    Probe,
}

/// What the policy says about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling<'p> {
    /// The rule that decided.
    pub rule: &'p Rule,
    pub decision: Decision,
}

impl Condition {
    /// Whether it holds for `arguments`. Whatever stands above the lower 32 bits is ignored, as
    /// the kernel ignores it.
    #[must_use]
    pub fn holds(&self, arguments: &Arguments) -> bool {
        let bytes = arguments[usize::from(self.argument)].to_le_bytes();
        let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.one_of.contains(&(low & self.mask))
    }
}

impl Rule {
    /// What this rule decides about `arguments`.
    #[must_use]
    pub fn decide(&self, arguments: &Arguments) -> Decision {
        self.cases
            .iter()
            .find(|case| case.when.iter().all(|condition| condition.holds(arguments)))
            .map_or(self.action, |case| case.then)
    }

    /// Whether any call can be allowed by it.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.decisions().any(|decision| decision == Decision::Allow)
    }

    /// Whether any call can be refused by it.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.decisions().any(|decision| decision != Decision::Allow)
    }

    fn decisions(&self) -> impl Iterator<Item = Decision> {
        self.cases.iter().map(|case| case.then).chain([self.action])
    }
}

impl SyscallPolicy {
    /// The rule that decides about the call `name`; `None` where this architecture has none.
    #[must_use]
    pub(crate) fn rule_of(&self, name: &str) -> Option<&Rule> {
        let known = self.calls.iter().zip(self.names.split(' '));
        let (call, _) = known.into_iter().find(|(_, known)| *known == name)?;
        self.rules.get(usize::from(call.rule))
    }

    /// What is decided about call `number` of the native architecture with `arguments`, and by
    /// which rule.
    #[must_use]
    pub fn ruling(&self, number: u32, arguments: &Arguments) -> Ruling<'_> {
        let place = match self
            .calls
            .iter()
            .find(|call| u32::from(call.number) == number)
        {
            Some(call) => call.rule,
            None if self.arch == Arch::X86_64 && number >= X32_NUMBER_MIN => X32,
            None => UNKNOWN,
        };
        let rule = &self.rules[usize::from(place)];
        Ruling {
            rule,
            decision: rule.decide(arguments),
        }
    }

    /// The name of call `number`; `None` where no table knows it.
    #[must_use]
    pub fn name_of(&self, number: u32) -> Option<&str> {
        self.calls
            .iter()
            .zip(self.names.split(' '))
            .find(|(call, _)| u32::from(call.number) == number)
            .map(|(_, name)| name)
    }

    /// The number of the call `name`; `None` where this architecture has no such call.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u32> {
        self.calls
            .iter()
            .zip(self.names.split(' '))
            .find(|(_, known)| *known == name)
            .map(|(call, _)| u32::from(call.number))
    }
}
