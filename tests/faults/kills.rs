//! Each process of a run is killed before each of its system calls.

use crate::calls::points;
use crate::crew::each;
use crate::scene::{Scene, Stage};
use crate::tracer::{Act, Point, Role};
use support::{skip, tier_includes};

/// Kills `role` before each of its calls. `look` returns whether the call was reached, and what is wrong.
fn kill_everywhere(role: Role, look: impl Fn(&Stage, &Point) -> (bool, Vec<String>) + Sync) {
    if !cfg!(target_arch = "x86_64") {
        return skip("the tracer knows the registers of x86_64 only");
    }
    let stage = Stage::new(0);
    let mut points = points(&stage.undisturbed().trace);
    points.retain(|point| point.role == role);
    let step = if tier_includes("long") { 1 } else { 12 };
    let points: Vec<Point> = points.into_iter().step_by(step).collect();
    let (mut hits, mut wrong) = (0, Vec::new());
    for (point, found) in points
        .iter()
        .zip(each(&points, |point| look(&stage, point)))
    {
        match found {
            Ok((is_hit, found)) => {
                hits += usize::from(is_hit);
                wrong.extend(found.iter().map(|one| format!("{point}: {one}")));
            }
            Err(panic) => wrong.push(format!("{point}: {panic}")),
        }
    }
    println!(
        "faults: kills={hits} of {role:?}, missed={}, wrong={}",
        points.len() - hits,
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // The processes may run in another order, which misses a few.
    assert!(points.len() / 2 < hits, "{hits} of {} kills", points.len());
}

/// E-05, D-20
#[test]
fn a_supervisor_that_is_killed_at_any_of_its_calls_takes_the_body_along_and_the_next_start_cleans_up()
 {
    kill_everywhere(Role::Supervisor, |stage, point| {
        let scene = Scene::new();
        // Invariant 2 checks that no process of the run is alive; the tracer ends when all have ended.
        let played = scene.play(stage, Some((point, Act::Kill)));
        let mut wrong = Vec::new();
        if played.trace.hit && played.done.code != 137 {
            wrong.push(format!(
                "exit code {}: {}",
                played.done.code, played.done.stderr
            ));
        }
        wrong.extend(scene.torn());
        let runs = scene.records();
        scene.start_again();
        scene.assert_nothing_left(&runs);
        wrong.extend(scene.torn());
        (played.trace.hit, wrong)
    });
}

/// E-05
#[test]
fn a_run_with_a_killed_init_fails_with_a_message_and_is_cleaned_up() {
    kill_everywhere(Role::Init, killed_inside);
}

/// E-05
#[test]
fn a_run_with_a_child_killed_before_exec_fails_with_a_message_and_is_cleaned_up() {
    kill_everywhere(Role::Body, killed_inside);
}

/// E-06: who ends a job may signal its processes in any order.
#[test]
fn a_run_whose_children_are_ended_with_it_was_cancelled() {
    for role in [Role::Init, Role::Body] {
        kill_everywhere(role, |stage, point| {
            let scene = Scene::new();
            let played = scene.play(stage, Some((point, Act::End)));
            let done = &played.done;
            let mut wrong = Vec::new();
            // The child is there before the supervisor listens for signals.
            let is_cancelled = ["cancelled", "no report"].contains(&done.outcome());
            if played.trace.hit && !(is_cancelled && done.code == 143) {
                let (outcome, code, said) = (done.outcome(), done.code, &done.stderr);
                wrong.push(format!("{outcome} with exit code {code}: {said}"));
            }
            wrong.extend(scene.torn());
            scene.assert_nothing_left(&[]);
            (played.trace.hit, wrong)
        });
    }
}

fn killed_inside(stage: &Stage, point: &Point) -> (bool, Vec<String>) {
    let scene = Scene::new();
    let played = scene.play(stage, Some((point, Act::Kill)));
    let done = &played.done;
    let mut wrong = Vec::new();
    if !played.trace.hit {
        return (false, wrong);
    }
    println!(
        "{point}: {} {}: {}",
        done.outcome(),
        done.code,
        done.stderr.trim()
    );
    let said = done
        .stderr
        .lines()
        .any(|line| line.starts_with("runner: failed: "));
    if (done.outcome(), done.code) != ("failed", 125) || !said {
        let (outcome, code, said) = (done.outcome(), done.code, &done.stderr);
        wrong.push(format!("{outcome} with exit code {code}: {said}"));
    }
    wrong.extend(scene.torn());
    scene.assert_nothing_left(&[done.report["run_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned()]);
    (true, wrong)
}
