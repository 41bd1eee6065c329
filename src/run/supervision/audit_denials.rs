//! What only the audit records of the host say of Landlock's refusals, in the report of a trace.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use crate::plan::access::parent;
use crate::run::dry_run::why::paths::PathRules;
use crate::run::supervision::path_denials;
use rustix::io::Errno;
use sandbox::audit_record::Refusal;
use sandbox::audit_trail::{AuditTrail, DomainMaker};
use sandbox::launch::{AuditRecords, LaunchPlan, Launched};
use sandbox::resources::Resources;
use spec::path::escape;
use spec::path_use::PathOperation;
use spec::report::Denial;
use sys::audit::AuditUnread;

/// Why no audit record is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::run) enum NoAudit {
    #[error("the body is not traced")]
    NotTraced,
    #[error("Landlock has audit records from Linux 6.15 on")]
    OldLandlock,
    #[error("audit records do not tell the body from other programs of its user")]
    SharedUid,
    #[error("the first process of the body is not known")]
    UnknownProcess,
    #[error("the audit of this host is off")]
    Off,
    #[error("this host stops when it loses an audit record")]
    StopsHost,
    #[error("no audit record reaches the network namespace of the runner")]
    OtherNetwork,
    #[error("the audit of this host cannot be read: {0}")]
    Call(Errno),
}

impl From<AuditUnread> for NoAudit {
    fn from(unread: AuditUnread) -> Self {
        match unread {
            AuditUnread::Off => Self::Off,
            AuditUnread::StopsHost => Self::StopsHost,
            AuditUnread::OtherNetwork => Self::OtherNetwork,
            AuditUnread::Call(errno) => Self::Call(errno),
        }
    }
}

/// The records of a host from before the body's start on.
pub(in crate::run) struct HostRecords {
    socket: OwnedFd,
    uid: u32,
}

impl HostRecords {
    /// Opens them if the body of `plan` is traced, and lets Landlock record what it refuses to it.
    ///
    /// # Errors
    /// Why there are none, or why they would not say whose they are. Then Landlock records nothing.
    pub(in crate::run) fn open(
        plan: &mut LaunchPlan<'_>,
        resources: &Resources,
    ) -> Result<Self, NoAudit> {
        let opened = match (plan.is_traced, plan.records) {
            (false, _) => Err(NoAudit::NotTraced),
            (true, AuditRecords::Unsupported) => Err(NoAudit::OldLandlock),
            (true, AuditRecords::Nothing | AuditRecords::OfBody) => Self::of_uid(resources),
        };
        if opened.is_ok() {
            plan.records = AuditRecords::OfBody;
        }
        opened
    }

    fn of_uid(resources: &Resources) -> Result<Self, NoAudit> {
        let uid = resources.body_ids().ok_or(NoAudit::SharedUid)?.uid;
        #[cfg(feature = "planted-bugs")]
        if let Some(socket) = confinement::planted::audit_records() {
            return Ok(Self { socket, uid });
        }
        let socket = sys::audit::open()?;
        Ok(Self { socket, uid })
    }

    /// Those of the body's domain.
    ///
    /// # Errors
    /// It is not known which process made the domain.
    pub(in crate::run) fn of_body(self, launched: &Launched) -> Result<AuditTrail, NoAudit> {
        let init = u32::try_from(launched.child.pid()).map_err(|_range| NoAudit::UnknownProcess)?;
        let first = launched.refused_calls.first_process();
        let process = first.filter(|first| *first != init);
        let maker = DomainMaker {
            uid: self.uid,
            process: process.ok_or(NoAudit::UnknownProcess)?,
            init,
        };
        Ok(AuditTrail::new(self.socket, maker))
    }
}

/// The denials of files and programs that `listed` lacks.
pub(super) fn of_paths(
    trail: &AuditTrail,
    rules: &PathRules<'_>,
    listed: &[Denial],
) -> Vec<Denial> {
    let listed: BTreeSet<(Option<PathOperation>, &str)> = listed
        .iter()
        .flat_map(|denial| names(denial).map(|name| (denial.operation, name)))
        .collect();
    let refused = trail.refusals().distinct();
    let refused = refused.filter_map(|(refusal, equal)| match refusal {
        Refusal::Path { operation, path } => {
            let name = escape(path);
            let is_listed = listed.contains(&(Some(*operation), &name));
            (!is_listed).then(|| path_denials::refused(rules, *operation, path, *equal))
        }
        Refusal::Signal { .. } => None,
    });
    refused.collect()
}

/// What a record can name for a denial: of an entry that is made or removed, the directory.
fn names(denial: &Denial) -> impl Iterator<Item = &str> {
    let names_directory = matches!(
        denial.operation,
        Some(PathOperation::Create | PathOperation::Remove)
    );
    let object = denial.object.as_str();
    let directory = std::str::from_utf8(parent(object.as_bytes())).ok();
    [Some(object), directory.filter(|_| names_directory)]
        .into_iter()
        .flatten()
}

/// How many signals to process 1 were refused.
pub(super) fn refused_signals(trail: &AuditTrail) -> u64 {
    let refused = trail.refusals().distinct();
    let signals = refused.filter_map(|(refusal, equal)| match refusal {
        Refusal::Signal { .. } => Some(equal.count),
        Refusal::Path { .. } => None,
    });
    signals.sum()
}
