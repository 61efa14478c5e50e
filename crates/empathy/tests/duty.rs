//! Where only stopping is left. By itself: beside the other tests' hogs it would have less than it is due, and nothing could give it more.
#![allow(clippy::disallowed_methods)] // The truth is measured apart from what is judged.

mod common;

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::{HOG, Running, hog, is_root, on_one_cpu, pause, ran_s, wait_for, without_rights, yields};

#[test]
fn a_slowdown_is_limited_by_stopping_alone() {
    if !is_root() {
        eprintln!("not tested: needs root, to do without rights");
        return;
    }
    let limit = 6.0;
    // It runs already and shares its session, so that there is no share to set.
    let mut job = Command::new("sh");
    job.args(["-c", HOG]);
    on_one_cpu(&mut job);
    let job = Running::start(&mut without_rights(job));
    let _beside = hog();
    let pid = job.pid().to_string();
    let mut yielding = without_rights(yields(&["--max-slowdown", "6", "--quiet", "--pid", &pid]));
    let _yielding = Running::start(yielding.stderr(Stdio::null()));
    let origin = Instant::now();
    let look = || (origin.elapsed().as_secs_f64(), ran_s(job.pid()));
    let slowdown = |(from, before): (f64, f64), (to, after): (f64, f64)| (to - from) / (after - before);
    let mut looks: VecDeque<(f64, f64)> = VecDeque::new();
    wait_for("the limit to be kept over ten seconds, and not by far", || {
        pause(100);
        looks.push_back(look());
        let now = *looks.back()?;
        while looks.get(1).is_some_and(|(at, _)| now.0 - at >= 10.0) {
            looks.pop_front();
        }
        let first = looks[0];
        (now.0 - first.0 >= 10.0 && (0.6 * limit..=limit).contains(&slowdown(first, now))).then_some(())
    });
    // And from then on. A pause must not pass for time in which it wants nothing, or it would be stopped ever more.
    let before = look();
    pause(10_000);
    let later = slowdown(before, look());
    assert!((0.5 * limit..=1.5 * limit).contains(&later), "{later:.1}x");
}
