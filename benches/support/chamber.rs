//! A mount namespace in which the host's groups of version 2 are not mounted: crun refuses hosts
//! that have both versions. Whoever is to be launched there is started by this process while it is
//! there, so that the launch itself costs nothing more.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const VERSION_2: &str = "/sys/fs/cgroup/unified";

pub struct Chamber {
    /// Keeps the namespace; ended with the value.
    holder: Child,
    inside: File,
    outside: File,
}

impl Chamber {
    /// None where the host has no second version beside the first, and for users who may not enter.
    pub fn new() -> Option<Rc<Self>> {
        let is_here = Path::new(VERSION_2).join("cgroup.procs").exists();
        if !is_here || !rustix::process::geteuid().is_root() {
            return None;
        }
        let script = format!("umount -l {VERSION_2} && echo && exec cat");
        let mut holder = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            // Ends with this process, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let said = holder.stdout.as_mut().unwrap().read(&mut ready);
        assert_eq!(said.unwrap(), 1, "a mount namespace of its own");
        let space = |process: &str| File::open(format!("/proc/{process}/ns/mnt")).unwrap();
        let inside = space(&holder.id().to_string());
        Some(Rc::new(Self {
            holder,
            inside,
            outside: space("self"),
        }))
    }

    /// Only for a process with one thread. Its working directory is the root afterwards.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        let enter = |space: &File| {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Mount)).unwrap();
        };
        enter(&self.inside);
        let result = act();
        enter(&self.outside);
        result
    }
}

impl Drop for Chamber {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}
