//! Finds the mounted cgroup hierarchies and this process's cgroup in each, in two files of /proc.

use std::collections::BTreeMap;

/// A controller that a limit or a counter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    Memory,
    Pids,
    Cpu,
    /// Counts CPU time. Version 2 does that without a controller.
    Cpuacct,
}

impl Controller {
    /// All controllers, in the order of creation.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Cpuacct];
    /// Controllers of version 2.
    pub const OF_V2: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// Name in the kernel's files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) mount_point: String,
    /// Directory of this process's cgroup, or why it is not visible.
    pub(super) own: Result<String, String>,
}

impl Hierarchy {
    /// Returns the parent of the runs' cgroups: the configured path `named`, else this process's cgroup.
    pub(super) fn parent(&self, named: Option<&str>) -> Result<String, String> {
        match named {
            Some(named) => join(&self.mount_point, named),
            None => self.own.clone(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Version 1. Controllers that are mounted together have equal hierarchies.
    pub(super) v1: BTreeMap<Controller, Hierarchy>,
    pub(super) freezer: Option<Hierarchy>,
    pub(super) unified: Option<Hierarchy>,
}

struct Mount {
    root: String,
    mount_point: String,
    is_v2: bool,
    controllers: Vec<String>,
}

/// Parses /proc/self/cgroup (cgroups(7)) and /proc/self/mountinfo (proc_pid_mountinfo(5)).
pub(super) fn parse(cgroup: &str, mountinfo: &str) -> Layout {
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(parse_mount).collect();
    let mut layout = Layout::default();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if number == "0" && controllers.is_empty() {
            layout.unified = find_hierarchy(path, mounts.iter().filter(|mount| mount.is_v2));
            continue;
        }
        for name in controllers.split(',') {
            let with_controller = mounts
                .iter()
                .filter(|mount| mount.controllers.iter().any(|known| known == name));
            let found = find_hierarchy(path, with_controller);
            if name == "freezer" {
                layout.freezer = found;
                continue;
            }
            let mut controllers = Controller::ALL.into_iter();
            let controller = controllers.find(|controller| controller.name() == name);
            if let (Some(controller), Some(found)) = (controller, found) {
                layout.v1.insert(controller, found);
            }
        }
    }
    layout
}

/// Finds a mount in which the cgroup `path` is visible, else returns the first one, with the reason.
fn find_hierarchy<'mount>(
    path: &str,
    mounts: impl Iterator<Item = &'mount Mount>,
) -> Option<Hierarchy> {
    let mut fallback = None;
    for mount in mounts {
        let own = strip_root(path, &mount.root)
            .and_then(|rest| join(&mount.mount_point, rest).ok())
            .ok_or_else(|| {
                format!(
                    "the runner's own cgroup {path} is not visible below {}, which shows {}",
                    mount.mount_point, mount.root
                )
            });
        let found = Hierarchy {
            mount_point: mount.mount_point.clone(),
            own,
        };
        if found.own.is_ok() {
            return Some(found);
        }
        fallback.get_or_insert(found);
    }
    fallback
}

/// Strips `root` from `path`; `None` if `path` is not below it. The path of a cgroup outside of this
/// cgroup namespace begins with `/..`.
fn strip_root<'path>(path: &'path str, root: &str) -> Option<&'path str> {
    if path.split('/').any(|segment| segment == "..") {
        return None;
    }
    if root == "/" {
        return Some(path);
    }
    path.strip_prefix(root)
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn join(mount_point: &str, path: &str) -> Result<String, String> {
    if path
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return Err(format!(
            "{path} is not a valid cgroup path: it contains `.` or `..`"
        ));
    }
    let rest = path.trim_matches('/');
    Ok(match rest {
        "" => mount_point.to_owned(),
        rest => format!("{}/{rest}", mount_point.trim_end_matches('/')),
    })
}

/// Parses a line of mountinfo; `None` if it is not a cgroup file system.
fn parse_mount(line: &str) -> Option<Mount> {
    let (about_mount, about_filesystem) = line.split_once(" - ")?;
    let mut fields = about_mount.split(' ').skip(3);
    let (root, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = about_filesystem.split(' ');
    let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let is_v2 = match kind {
        "cgroup" => false,
        "cgroup2" => true,
        _ => return None,
    };
    Some(Mount {
        root: unescape(root),
        mount_point: unescape(mount_point),
        is_v2,
        controllers: if is_v2 {
            Vec::new()
        } else {
            options.split(',').map(str::to_owned).collect()
        },
    })
}

/// Replaces the octal escapes of mountinfo, such as `\040`.
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let number = after
            .get(..3)
            .and_then(|octal| u8::from_str_radix(octal, 8).ok())
            .filter(u8::is_ascii);
        match number {
            Some(number) => {
                text.push(char::from(number));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_shows_a_part_of_the_tree_shows_the_group_at_the_shortened_path() {
        let layout = parse(
            "4:memory:/docker/abc/inner\n",
            "1 2 0:1 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let memory = &layout.v1[&Controller::Memory];
        assert_eq!(memory.own, Ok("/sys/fs/cgroup/memory/inner".to_owned()));
        assert_eq!(
            memory.parent(Some("/named")),
            Ok("/sys/fs/cgroup/memory/named".to_owned())
        );
    }

    #[test]
    fn a_group_outside_of_the_mount_has_no_path() {
        for own in ["4:memory:/../other\n", "4:memory:/docker/abcd\n"] {
            let layout = parse(own, "1 2 0:1 /docker/abc /m rw - cgroup cgroup rw,memory\n");
            assert!(layout.v1[&Controller::Memory].own.is_err(), "{own}");
        }
    }

    #[test]
    fn the_mount_that_shows_the_group_is_preferred() {
        let layout = parse(
            "0::/a/b\n",
            "1 2 0:1 /c /first rw - cgroup2 cgroup2 rw\n1 2 0:1 / /second rw shared:3 - cgroup2 cgroup2 rw\n",
        );
        let own = layout.unified.expect("mounted").own;
        assert_eq!(own, Ok("/second/a/b".to_owned()));
    }

    #[test]
    fn controllers_mounted_together_share_a_path_and_a_named_hierarchy_is_not_a_controller() {
        let layout = parse(
            "9:name=memory:/\n3:cpu,cpuacct:/x\n",
            "1 2 0:1 / /c\\040d rw - cgroup cgroup rw,cpu,cpuacct\n1 2 0:2 / /n rw - cgroup cgroup rw,name=memory\n",
        );
        assert_eq!(layout.v1.len(), 2);
        assert_eq!(layout.v1[&Controller::Cpu], layout.v1[&Controller::Cpuacct]);
        assert_eq!(layout.v1[&Controller::Cpu].own, Ok("/c d/x".to_owned()));
    }

    #[test]
    fn a_named_parent_cannot_contain_dot_dot() {
        assert!(join("/sys/fs/cgroup", "/a/../..").is_err());
    }
}
