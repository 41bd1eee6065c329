//! Facts of the host that a plan depends on.

use crate::run::error::RunError;
use crate::run::host::resources;
use sandbox::cgroups::{self, Backend};
use sandbox::host;
use spec::host::HostSupport;
use spec::limits::Coverage;
use spec::request::Request;

#[derive(Debug)]
pub(super) struct HostFacts {
    pub(in crate::run) host: HostSupport,
    pub(in crate::run) backend: &'static str,
    pub(in crate::run) coverage: Vec<Coverage>,
}

impl HostFacts {
    pub(in crate::run) fn inspect(request: &Request) -> Result<Self, RunError> {
        let named = request.caller.cgroup_parent.as_deref();
        let facts = cgroups::observe(named, request.caller.in_delegated_scope)?;
        let backend = match cgroups::should_reexec(named, &facts) {
            // A run would start itself again in that scope.
            Some(_) => Backend::V2(cgroups::Unified {
                parent: String::new(),
                controllers: Vec::new(),
                to_enable: Vec::new(),
                move_to_leaf: false,
                missing: Vec::new(),
                in_delegated_scope: true,
            }),
            None => resources::choose_backend(named, &facts)?,
        };
        Ok(Self {
            host: host::detect()?,
            backend: backend.name(),
            coverage: backend.coverage(),
        })
    }
}
