//! Files of the operator that decide who may do what.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Permission to read for the group of a file.
const GROUP_READ: u32 = 0o040;

/// Opens a regular file of this user or of root; `None`: it is another one, or has one of the permission bits
/// `forbidden`.
///
/// The group of this process may read a file of root: so Kubernetes hands a Secret to a user other than root.
///
/// # Errors
/// Those of open(2) and fstat(2).
pub fn open(path: &Path, flags: OFlags, forbidden: u32) -> io::Result<Option<File>> {
    // A FIFO would be waited for.
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    let caller = Ids {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let owner = Ids {
        uid: metadata.uid(),
        gid: metadata.gid(),
    };
    let is_own = metadata.is_file() && is_own(owner, metadata.mode(), forbidden, caller);
    Ok(is_own.then_some(file))
}

#[derive(Clone, Copy)]
struct Ids {
    uid: u32,
    gid: u32,
}

fn is_own(owner: Ids, mode: u32, forbidden: u32, caller: Ids) -> bool {
    let is_lent_by_root = owner.uid == 0 && caller.uid != 0 && owner.gid == caller.gid;
    let forbidden = if is_lent_by_root {
        forbidden & !GROUP_READ
    } else {
        forbidden
    };
    [0, caller.uid].contains(&owner.uid) && mode & forbidden == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Ids = Ids { uid: 7, gid: 8 };
    const ROOT: Ids = Ids { uid: 0, gid: 0 };

    #[test]
    fn a_secret_is_of_the_caller_or_of_root_and_only_root_lends_it_to_the_group_of_the_caller() {
        let of_root_for = |gid| Ids { uid: 0, gid };
        for (owner, mode, caller, expected) in [
            (USER, 0o600, USER, true),
            (USER, 0o640, USER, false),
            (ROOT, 0o400, USER, true),
            (of_root_for(8), 0o440, USER, true),
            (of_root_for(8), 0o460, USER, false),
            (of_root_for(8), 0o444, USER, false),
            (of_root_for(9), 0o440, USER, false),
            (ROOT, 0o440, ROOT, false),
            (Ids { uid: 9, gid: 8 }, 0o440, USER, false),
        ] {
            let found = is_own(owner, mode, 0o077, caller);
            assert_eq!(found, expected, "{}:{} {mode:o}", owner.uid, owner.gid);
        }
        assert!(!is_own(of_root_for(8), 0o664, 0o022, USER));
    }
}
