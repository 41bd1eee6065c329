//! What a call wants to do with a path, from its arguments.

use filter::{Arguments, LastLink, PathAccess, PathArgument};
use rustix::fs::{AtFlags, OFlags};
use spec::path_use::PathOperation;

/// The half of an argument that the kernel uses for descriptors and flags.
pub(crate) fn lower(arguments: &Arguments, index: u8) -> u32 {
    let [a, b, c, d, ..] = arguments[usize::from(index)].to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What a call does, depending on whether the path exists.
pub(crate) struct Want {
    pub(crate) if_exists: PathOperation,
    pub(crate) if_missing: PathOperation,
    pub(crate) follows: bool,
}

impl Want {
    pub(crate) fn of(arguments: &Arguments, argument: &PathArgument) -> Self {
        use PathOperation::{Connect, Create, Execute, Inspect, Read, Remove, Write};
        let has = |index, bits: AtFlags| lower(arguments, index) & bits.bits() != 0;
        let follows = match argument.last_link {
            LastLink::Follow => true,
            LastLink::Keep => false,
            LastLink::FollowWithout(index) => !has(index, AtFlags::SYMLINK_NOFOLLOW),
            LastLink::FollowWith(index) => has(index, AtFlags::SYMLINK_FOLLOW),
        };
        let (if_exists, if_missing) = match argument.access {
            PathAccess::Inspect => (Inspect, Inspect),
            PathAccess::Read => (Read, Read),
            PathAccess::Write => (Write, Write),
            PathAccess::Create => (Inspect, Create),
            PathAccess::Replace | PathAccess::Overwrite => (Write, Create),
            PathAccess::Remove => (Remove, Remove),
            PathAccess::Execute => (Execute, Execute),
            PathAccess::Connect | PathAccess::Send => (Connect, Connect),
            PathAccess::Open(index) => return Self::of_open(lower(arguments, index)),
        };
        Self {
            if_exists,
            if_missing,
            follows,
        }
    }

    fn of_open(flags: u32) -> Self {
        use PathOperation::{Create, Inspect, Read, Write};
        let flags = OFlags::from_bits_retain(flags);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        let opens = if writes { Write } else { Read };
        let creates = flags.contains(OFlags::CREATE);
        let (if_exists, if_missing) = if flags.contains(OFlags::PATH) {
            (Inspect, Inspect)
        } else if creates && flags.contains(OFlags::EXCL) {
            (Inspect, Create)
        } else if creates {
            (opens, Create)
        } else {
            (opens, opens)
        };
        Self {
            if_exists,
            if_missing,
            follows: !flags.contains(OFlags::NOFOLLOW),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_reads_writes_or_creates_by_its_flags() {
        use PathOperation::{Create, Inspect, Read, Write};
        for (flags, if_exists, if_missing) in [
            (OFlags::RDONLY, Read, Read),
            (OFlags::WRONLY, Write, Write),
            (OFlags::RDWR, Write, Write),
            (OFlags::TRUNC, Write, Write),
            (OFlags::CREATE, Read, Create),
            (OFlags::WRONLY | OFlags::CREATE, Write, Create),
            (
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
                Inspect,
                Create,
            ),
            (OFlags::PATH | OFlags::RDWR, Inspect, Inspect),
        ] {
            let want = Want::of_open(flags.bits());
            assert_eq!((want.if_exists, want.if_missing), (if_exists, if_missing));
            assert!(want.follows);
        }
        assert!(!Want::of_open(OFlags::NOFOLLOW.bits()).follows);
    }
}
