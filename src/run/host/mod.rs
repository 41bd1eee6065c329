//! The host of a run. Consumes the request and the policy, returns the acquired resources: run record,
//! cgroups, uid.

pub(crate) mod early;
pub(crate) mod resources;
pub(crate) mod scope;
pub(super) mod surroundings;
pub(crate) mod temporary_record;
pub(super) mod user_namespaces;
