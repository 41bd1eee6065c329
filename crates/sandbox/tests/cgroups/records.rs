//! The runtime directory: its owner, and claims of runs and uids.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use runner_sandbox::records::{Collected, Entry, RecordsError, RunRecords};

use crate::host::{ORDINARY_UID, needs_root, shell};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

fn collect(registry: &RunRecords) -> Vec<Collected> {
    registry.collect_leftovers(&mut |_| Ok(())).expect("listed")
}

fn temporary(directory: &Path, name: &str) -> Entry {
    Entry::Temporary {
        directory: directory.to_owned(),
        name: name.into(),
    }
}

/// The number of recorded runs, without spare files.
pub(crate) fn records(directory: &Path) -> usize {
    let runs = std::fs::read_dir(directory.join("runs")).expect("listed");
    let names = runs.map(|entry| entry.expect("listed").file_name());
    names
        .filter(|name| !name.to_string_lossy().starts_with('.'))
        .count()
}

#[test]
fn the_files_of_finished_runs_are_used_again_and_say_nothing_of_them() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    for round in 0..3 {
        let mut live: Vec<_> = (0..6)
            .map(|number| {
                registry
                    .begin(&format!("run-{round}-{number}"))
                    .expect("begun")
            })
            .collect();
        for record in &mut live {
            record
                .record(&temporary(place.path(), "old"))
                .expect("recorded");
        }
        assert_eq!(records(&directory), 6);
        for record in live {
            record.finish().expect("finished");
        }
        let files = std::fs::read_dir(directory.join("runs")).expect("listed");
        assert_eq!((files.count(), records(&directory)), (4, 0));
    }
    // A process that dies in a reused file leaves only its own records.
    let mut record = registry.begin("dies").expect("begun");
    let entry = temporary(place.path(), "new");
    record.record(&entry).expect("recorded");
    assert!(collect(&registry).is_empty(), "it lives");
    drop(record);
    assert_eq!(collect(&registry)[0].removed, [entry]);
}

#[test]
fn the_directory_is_made_once_with_what_a_run_needs_in_it() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let search = match rustix::process::geteuid().is_root() {
        true => 0o711,
        false => 0o700,
    };
    for _ in 0..2 {
        let registry = RunRecords::open(&directory).expect("opened");
        assert_eq!(mode(&directory), search);
        assert_eq!(registry.mount_point(), directory.join("mount"));
        assert_eq!(mode(registry.mount_point()), search);
        assert_eq!(mode(&directory.join("runs")), 0o700);
    }
}

#[test]
fn a_start_that_was_killed_before_it_set_the_mode_does_not_stop_the_next() {
    if !rustix::process::geteuid().is_root() {
        return needs_root("only root's directory is wider than a umask may leave it");
    }
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    std::fs::create_dir(&directory).expect("made");
    set_mode(&directory, 0o700);
    RunRecords::open(&directory).expect("opened");
    assert_eq!(mode(&directory), 0o711);
    // In a used directory, this mode was set on purpose.
    set_mode(&directory, 0o700);
    assert!(matches!(
        RunRecords::open(&directory),
        Err(RecordsError::Unsafe { .. })
    ));
    assert_eq!(mode(&directory), 0o700);
}

/// E-22.
#[test]
fn a_directory_that_is_not_ours_alone_is_refused_and_left_as_it_is() {
    let place = tempfile::tempdir().expect("a directory");
    let real = place.path().join("real");
    std::fs::create_dir(&real).expect("made");
    let link = place.path().join("link");
    symlink(&real, &link).expect("linked");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("written");
    let open_to_all = place.path().join("open");
    std::fs::create_dir(&open_to_all).expect("made");
    set_mode(&open_to_all, 0o777);
    let below_open = open_to_all.join("runner");
    let mut refused = vec![link, file, open_to_all, below_open.clone()];
    if rustix::process::geteuid().is_root() {
        let foreign = place.path().join("foreign");
        std::fs::create_dir(&foreign).expect("made");
        chown(&foreign, Some(ORDINARY_UID), Some(ORDINARY_UID)).expect("given away");
        refused.push(foreign.join("runner"));
        refused.push(foreign);
    } else {
        needs_root("only root can make a directory of somebody else's");
    }
    for path in refused {
        match RunRecords::open(&path) {
            Err(error @ RecordsError::Unsafe { .. }) => {
                let said = error.to_string();
                assert!(said.contains("expected"), "{said}");
            }
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    assert_eq!(std::fs::read_dir(&real).expect("listed").count(), 0);
    assert!(!below_open.exists());
    assert!(matches!(
        RunRecords::open(Path::new("run/runner")),
        Err(RecordsError::Relative { .. })
    ));
}

#[test]
fn a_part_of_the_directory_that_became_a_link_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    RunRecords::open(&directory).expect("opened");
    std::fs::remove_dir(directory.join("runs")).expect("removed");
    symlink("/tmp", directory.join("runs")).expect("linked");
    assert!(matches!(
        RunRecords::open(&directory),
        Err(RecordsError::Unsafe { .. })
    ));
}

#[test]
fn a_run_id_that_is_a_path_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let registry = RunRecords::open(&place.path().join("runner")).expect("opened");
    for id in ["", ".", "..", "a/b", "../x", "A", "a\n", &"a".repeat(65)] {
        assert!(
            matches!(registry.begin(id), Err(RecordsError::RunId { .. })),
            "{id}"
        );
    }
}

#[test]
fn a_live_run_is_left_alone_and_a_finished_one_leaves_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    let mut record = registry.begin("live").expect("begun");
    record
        .record(&temporary(place.path(), "x"))
        .expect("recorded");
    let other = RunRecords::open(&directory).expect("opened by another");
    assert!(collect(&other).is_empty());
    assert!(matches!(
        other.begin("live"),
        Err(RecordsError::Exists { .. })
    ));
    record.finish().expect("finished");
    assert_eq!(records(&directory), 0);
    assert!(collect(&other).is_empty());
}

#[test]
fn a_run_lives_as_long_as_its_init_although_the_supervisor_is_dead() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    let mut record = registry.begin("orphan").expect("begun");
    let entry = temporary(place.path(), "x");
    record.record(&entry).expect("recorded");
    let uid = registry.claim_uid(1_000, 1, 0).expect("claimed");
    for fd in [record.fd(), uid.fd()] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("inheritable");
    }
    let mut init = shell("exec sleep 1000");
    drop((record, uid));
    assert!(collect(&registry).is_empty(), "init holds the claim");
    assert!(registry.claim_uid(1_000, 1, 0).is_err(), "and the uid");
    init.kill().expect("killed");
    init.wait().expect("waited for");
    let collected = collect(&registry);
    assert_eq!(collected.len(), 1);
    assert_eq!(collected[0].removed, [entry]);
    assert_eq!(
        registry.claim_uid(1_000, 1, 0).expect("free again").uid(),
        1_000
    );
    assert_eq!(records(&directory), 0);
}

#[test]
fn leftovers_are_removed_last_made_first_and_forgotten_ones_are_not() {
    let place = tempfile::tempdir().expect("a directory");
    let registry = RunRecords::open(&place.path().join("runner")).expect("opened");
    let mut record = registry.begin("dead").expect("begun");
    let entries = ["a", "b", "c"].map(|name| temporary(place.path(), name));
    record.record_all(&entries).expect("recorded");
    record.forget(&entries[1]).expect("forgotten");
    drop(record);
    let mut seen = Vec::new();
    let collected = registry
        .collect_leftovers(&mut |leftover| {
            assert_eq!(leftover.run_id, "dead");
            seen.push(Entry::Temporary {
                directory: leftover.directory.clone(),
                name: leftover.name.clone(),
            });
            Ok(())
        })
        .expect("listed");
    let expected = [entries[2].clone(), entries[0].clone()];
    assert_eq!(seen, expected);
    assert_eq!(collected[0].removed, expected);
}

#[test]
fn failed_removals_stay_recorded_and_are_retried() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    for id in ["one", "two"] {
        let mut record = registry.begin(id).expect("begun");
        record
            .record(&temporary(place.path(), id))
            .expect("recorded");
    }
    let collected = registry
        .collect_leftovers(&mut |leftover| match leftover.run_id.as_str() {
            "one" => Err("busy".into()),
            _ => Ok(()),
        })
        .expect("listed");
    let failures: usize = collected.iter().map(|run| run.failures.len()).sum();
    assert_eq!((collected.len(), failures), (2, 1));
    assert_eq!(records(&directory), 1);
    let again = collect(&registry);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].run_id, "one");
    assert_eq!(records(&directory), 0);
}

#[test]
fn a_torn_record_is_collected_and_a_forged_one_is_reported_and_kept() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    let write = |id: &str, text: &str| {
        std::fs::write(directory.join("runs").join(id), text).expect("written");
    };
    write("empty", "");
    write(
        "torn",
        "{\"temporary\":{\"directory\":\"/d\",\"name\":\"n\"}}\n{\"cgro",
    );
    write("forged", "{\"remove_all\":\"/\"}\n");
    write("astray", "{\"cgroup\":\"/sys/fs/cgroup/runner-other\"}\n");
    let mut collected = collect(&registry);
    collected.sort_by(|one, other| one.run_id.cmp(&other.run_id));
    let summary: Vec<(&str, usize, usize)> = collected
        .iter()
        .map(|run| (run.run_id.as_str(), run.removed.len(), run.failures.len()))
        .collect();
    assert_eq!(
        summary,
        [
            ("astray", 0, 1),
            ("empty", 0, 0),
            ("forged", 0, 1),
            ("torn", 1, 0)
        ]
    );
    assert_eq!(records(&directory), 2);
}

#[test]
fn a_link_among_the_records_is_not_followed() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    let elsewhere = place.path().join("elsewhere");
    std::fs::write(
        &elsewhere,
        "{\"temporary\":{\"directory\":\"/d\",\"name\":\"n\"}}\n",
    )
    .unwrap();
    symlink(&elsewhere, directory.join("runs/link")).expect("linked");
    let collected = registry
        .collect_leftovers(&mut |_| panic!("it was followed"))
        .expect("listed");
    assert_eq!(collected[0].failures.len(), 1);
    assert!(elsewhere.exists());
}

#[test]
fn a_file_that_the_last_run_s_init_still_claims_is_not_used_again() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    let registry = RunRecords::open(&directory).expect("opened");
    let record = registry.begin("first").expect("begun");
    let of_init = record.fd().try_clone_to_owned().expect("inherited");
    record.finish().expect("finished");
    let next = registry.begin("next").expect("begun");
    drop(of_init);
    assert!(collect(&registry).is_empty(), "the next run lives");
    next.finish().expect("finished");
    assert_eq!(records(&directory), 0);
}

struct Stop<'flag>(&'flag AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_run_that_begins_while_others_collect_is_never_taken_for_dead() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("runner");
    RunRecords::open(&directory).expect("opened");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let registry = RunRecords::open(&directory).expect("opened");
            while !done.load(Ordering::Relaxed) {
                let taken = registry
                    .collect_leftovers(&mut |_| panic!("a live run was collected"))
                    .expect("listed");
                assert!(taken.iter().all(|run| run.failures.is_empty()), "{taken:?}");
            }
        });
        // Also after a panic: the scope waits for the collector.
        let stop = Stop(&done);
        let registry = RunRecords::open(&directory).expect("opened");
        for number in 0..600 {
            let id = format!("run-{number}");
            let mut record = registry.begin(&id).expect("begun");
            record
                .record(&temporary(&directory, "x"))
                .expect("recorded");
            assert!(
                directory.join("runs").join(&id).exists(),
                "{id} lost its record"
            );
            record.finish().expect("finished");
            // Without a spare file a new one is created, which is unclaimed for an instant.
            if number % 8 != 0 {
                std::fs::remove_file(directory.join("runs/.spare-0")).expect("removed");
            }
        }
        drop(stop);
        collector.join().expect("joined");
    });
    assert_eq!(records(&directory), 0);
}

#[test]
fn concurrent_runs_have_distinct_uids_other_than_nobody() {
    let place = tempfile::tempdir().expect("a directory");
    let registry = RunRecords::open(&place.path().join("runner")).expect("opened");
    let mut claims = Vec::new();
    for seed in 0..9 {
        claims.push(registry.claim_uid(65_530, 10, seed).expect("claimed"));
    }
    let mut uids: Vec<u32> = claims.iter().map(|claim| claim.uid()).collect();
    uids.sort_unstable();
    let expected: Vec<u32> = (65_530..65_540).filter(|uid| *uid != 65_534).collect();
    assert_eq!(uids, expected);
    let full = registry.claim_uid(65_530, 10, 7);
    assert!(matches!(full, Err(RecordsError::UidsExhausted { .. })));
    // An overlapping range sees the claims of the other.
    assert_eq!(
        registry.claim_uid(65_535, 6, 3).expect("claimed").uid(),
        65_540
    );
    let given_back = claims.pop().expect("one").uid();
    assert_eq!(
        registry.claim_uid(65_530, 10, 5).expect("claimed").uid(),
        given_back
    );
    for (base, count) in [(0, 10), (1_000, 0), (u32::MAX - 9, 10), (u32::MAX, 1)] {
        let refused = registry.claim_uid(base, count, 0);
        assert!(
            matches!(refused, Err(RecordsError::UidRange { .. })),
            "{base} {count}"
        );
    }
}
