//! Beside others on one CPU.
#![allow(clippy::disallowed_methods)] // The truth is measured apart from what is judged.

mod common;

use std::collections::VecDeque;
use std::time::Instant;

use common::{HOG, Running, hog, on_one_cpu, pause, ran_s, wait_for, without_rights, yields};
use plimsoll_cpufutures::{Policy, weights};
use plimsoll_empathy::levers::scheduling::Scheduling;

/// How long the job and the others ran, in seconds, until the others had run so long. Others may run on this machine.
fn until(others_s: f64, job: i32, others: &[Running]) -> (f64, f64) {
    let both = || (ran_s(job), others.iter().map(|other| ran_s(other.pid())).sum::<f64>());
    let before = both();
    wait_for("the others to run", || {
        let after = both();
        let ran = (after.0 - before.0, after.1 - before.1);
        (ran.1 >= others_s).then_some(ran)
    })
}

#[test]
fn an_idle_only_job_leaves_others_what_they_want_and_takes_the_rest() {
    for rights in [true, false] {
        let mut command = yields(&["--idle-only", "--quiet", "--", "sh", "-c", HOG]);
        if !rights {
            command = without_rights(command);
        }
        on_one_cpu(&mut command);
        let job = Running::start(&mut command);
        let hogs = job.find("while").pid;
        let victims = [hog()];
        pause(500);
        let (ours, theirs) = until(1.0, hogs, &victims);
        // The kernel's least weight is 3. Beside a victim that is nice itself that is not so little.
        let nice = Scheduling::of(victims[0].pid()).unwrap().nice as i8;
        let weight = f64::from(weights::of_thread(Policy::Normal, nice));
        let least = 0.95 * weight / (weight + 3.0);
        assert!(
            theirs > least * (ours + theirs),
            "the job {ours} s, the others {theirs} s; rights: {rights}"
        );
        drop(victims);
        let before = ran_s(hogs);
        wait_for("the job to run again", || (ran_s(hogs) > before + 0.2).then_some(()));
    }
}

#[test]
fn a_slowdown_is_limited_from_both_sides() {
    let limit = 5.0;
    let mut command = yields(&["--max-slowdown", "5", "--quiet", "--", "sh", "-c", HOG]);
    on_one_cpu(&mut command);
    let job = Running::start(&mut command);
    let hogs = job.find("while").pid;
    // Nine equals would be nine times slower each, and it begins as more than an equal where the others are nice.
    let _victims: Vec<Running> = (0..8).map(|_| hog()).collect();
    // What is promised is held over ten seconds: never above the limit, and at most a fifth below while others wait. It wants all of a
    // CPU, so what it is slowed by is the time over what it got of it, whoever else takes part of that. Every ten seconds from some
    // time on will do: the search takes a while, and other tests come and go on this CPU.
    let origin = Instant::now();
    let mut looks: VecDeque<(f64, f64)> = VecDeque::new();
    wait_for("the limit to be kept over ten seconds", || {
        pause(100);
        looks.push_back((origin.elapsed().as_secs_f64(), ran_s(hogs)));
        let (now, ran) = *looks.back()?;
        while looks.get(1).is_some_and(|(at, _)| now - at >= 10.0) {
            looks.pop_front();
        }
        let (from, before) = looks[0];
        let slowdown = (now - from) / (ran - before);
        eprintln!("{slowdown:.2}x over {:.1} s", now - from);
        (now - from >= 10.0 && (0.8 * limit..=limit).contains(&slowdown)).then_some(())
    });
}
