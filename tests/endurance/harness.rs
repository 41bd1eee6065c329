//! The directories of one harness, and the process that starts all its runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use support::{random, tier_includes};

/// Names the test for which a process is the harness.
const HARNESS: &str = "RUNNER_TESTS_HARNESS";
/// The directory of that harness.
const PLACE: &str = "RUNNER_TESTS_PLACE";

/// One harness at a time: each of them uses all CPUs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The number of runs by tier: default, long, soak.
pub fn how_many([default, long, soak]: [usize; 3]) -> usize {
    if tier_includes("soak") {
        soak
    } else if tier_includes("long") {
        long
    } else {
        default
    }
}

/// Runs `work` in a separate process with its own directories. `test` is the path of the calling
/// test, which that process runs again.
pub fn in_a_process_of_its_own(test: &str, work: fn(&Place)) {
    if let Some(harness) = std::env::var_os(HARNESS) {
        assert_eq!(harness, test, "a harness of another test");
        let place = std::env::var_os(PLACE).expect("the place of the harness");
        return work(&Place::at(place.into()));
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::Builder::new()
        .prefix("endurance-")
        // The uid of a body must be able to enter it.
        .permissions(std::fs::Permissions::from_mode(0o711))
        .tempdir()
        .expect("a directory");
    let place = Place::at(directory.path().to_owned());
    place.make();
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(HARNESS, test)
        .env(PLACE, &place.directory)
        .env("TMPDIR", place.temporary())
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", place.runtime())
        .env("RUNNER_OPT_CACHE_DIRECTORY", place.cache())
        .stdin(Stdio::null());
    let groups = Groups::make();
    if let Some(groups) = &groups {
        command.env("RUNNER_OPT_CGROUP_PARENT", &groups.parent);
    }
    let output = command.output().expect("the harness starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    // Without capture, the test's own name precedes its first output.
    let figures: Vec<&str> = said
        .lines()
        .filter_map(|line| line.find("endurance: ").map(|at| &line[at..]))
        .collect();
    for line in &figures {
        println!("{line}");
    }
    assert!(output.status.success(), "{test}: {said}\n{complaint}");
    assert!(!figures.is_empty(), "no figures: {said}");
}

/// The directories and groups of one harness.
pub struct Place {
    directory: PathBuf,
}

impl Place {
    fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn make(&self) {
        for (path, mode) in [
            (self.temporary(), 0o711),
            (self.cache(), 0o700),
            (self.files(), 0o711),
        ] {
            std::fs::create_dir(&path).expect("made");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        }
    }

    /// Records of runs. The first run creates it.
    pub fn runtime(&self) -> PathBuf {
        self.directory.join("runtime")
    }

    /// The temporary directory of runs.
    pub fn temporary(&self) -> PathBuf {
        self.directory.join("temporary")
    }

    /// Unpacked bundles.
    pub fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// Files of the harness itself.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }
}

/// A group in each hierarchy, below the one that the tests were given.
struct Groups {
    parent: String,
    places: Vec<PathBuf>,
}

impl Groups {
    /// `None`: the tests have no group of their own.
    fn make() -> Option<Self> {
        let above = std::env::var("RUNNER_OPT_CGROUP_PARENT").ok()?;
        let parent = format!("{}/endurance-{}", above.trim_end_matches('/'), random());
        let above = above.trim_matches('/');
        let places = hierarchies()
            .into_iter()
            .filter(|top| top.join(above).is_dir())
            .map(|top| top.join(parent.trim_matches('/')))
            .filter(|place| std::fs::create_dir(place).is_ok())
            .collect::<Vec<_>>();
        let groups = Self { parent, places };
        groups.places.iter().for_each(|place| hand_out(place));
        Some(groups)
    }
}

/// Version 2: the groups below get the controllers of this one. Runs do without a controller that
/// cannot be enabled.
fn hand_out(place: &Path) {
    let controllers = std::fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let file = place.join("cgroup.subtree_control");
        if let Err(error) = std::fs::write(file, format!("+{controller}")) {
            println!("{controller}: {error}");
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for place in &self.places {
            if let Err(error) = std::fs::remove_dir(place) {
                println!("{}: {error}", place.display());
            }
        }
    }
}

/// The top directories of the cgroup hierarchies.
pub fn hierarchies() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .map(|line| PathBuf::from(line.split(' ').nth(4).expect("a mount point")))
        .collect()
}
