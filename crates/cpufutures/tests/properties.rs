//! What holds of the futures of any host, whatever its counters say.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Allocations, CpuSet, Futures, Group, Host, Policy, Settings, TaskId, TaskSample};
use proptest::prelude::*;

const PERIOD: Nanos = Nanos::from_millis(100);
const MS: u64 = 1_000_000;

fn id(at: usize) -> TaskId {
    TaskId { pid: 1 + at as u32 / 2, tid: at as u32, started: 0 }
}

fn sample(at: usize, run_ns: u64, wait_ns: u64) -> TaskSample {
    TaskSample { id: id(at), run_ns, wait_ns, born: None, policy: Policy::Normal, nice: 0, group: 0, cpus: 0 }
}

/// Threads that run and wait so many ms in every 100, from `from` to `to` in periods.
fn feed(futures: &mut Futures, host: &Host, from: u64, to: u64, rates: &[(u64, u64)]) {
    for step in from..=to {
        let samples: Vec<TaskSample> = rates
            .iter()
            .enumerate()
            .map(|(at, &(run, wait))| sample(at, 5 * MS + step * run * MS, step * wait * MS))
            .collect();
        futures.sample(Nanos(PERIOD.0 * step), host, &samples);
    }
}

fn of(futures: &Futures, at: usize) -> Allocations {
    futures.of(&id(at)).expect("a thread that lives")
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 0.01 * expected.abs().max(1.0)
}

#[test]
fn the_four_allocations_of_a_steady_load() {
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &Host::plain(1), 0, 20, &[(60, 40), (20, 20), (20, 80), (0, 0)]);
    let hog = of(&futures, 0);
    assert!(close(hog.actual_ms_per_s, 600.0) && close(hog.desired_ms_per_s, 1_000.0), "{hog:?}");
    assert!(close(hog.waited_ms_per_s, 400.0) && close(hog.predicted_ms_per_s, 600.0), "{hog:?}");
    let half = of(&futures, 1);
    assert!(close(half.desired_ms_per_s, 250.0) && close(half.predicted_ms_per_s, 200.0), "{half:?}");
    assert!(half.potential_ms_per_s > half.predicted_ms_per_s, "{half:?}");
    let asleep = of(&futures, 3);
    assert!(asleep.desired_ms_per_s == 0.0 && asleep.slowdown() == 1.0, "{asleep:?}");
    assert!(asleep.potential_ms_per_s > 200.0 && asleep.potential_ms_per_s < 500.0, "{asleep:?}");
}

#[test]
fn who_shares_a_cpu_with_whom_after_a_change_is_taken_to_last_by_half() {
    // Of three that want two CPUs all the time, the third comes after two seconds, and has to share one with the second.
    let (mut futures, host) = (Futures::new(Settings::default()), Host::plain(2));
    let all = |step: u64| {
        let since = step.saturating_sub(20);
        let shared = (step.min(20) * 100 + since * 50) * MS;
        let ran = [(step * 100 * MS, 0), (shared, since * 50 * MS), (since * 50 * MS, since * 50 * MS)];
        let there = if step < 20 { 2 } else { 3 };
        (0..there).map(|at| sample(at, ran[at].0, ran[at].1)).collect::<Vec<_>>()
    };
    for step in 0..=23 {
        futures.sample(Nanos(PERIOD.0 * step), &host, &all(step));
    }
    let [alone, second, third] = [0, 1, 2].map(|at| of(&futures, at).predicted_ms_per_s);
    // What the scheduler is for is two thirds of a CPU for each; measured are a whole one and two halves.
    let all = [alone, second, third];
    assert!((700.0..900.0).contains(&alone), "{all:?}");
    assert!((600.0..700.0).contains(&second) && (450.0..650.0).contains(&third), "{all:?}");
}

#[test]
fn late_and_missed_samples_jumps_and_counters_that_go_back_do_no_lasting_harm() {
    let host = Host::plain(2);
    let mut futures = Futures::new(Settings::default());
    let mut at = |ms: u64, run_ms: u64, wait_ms: u64| {
        futures.sample(Nanos::from_millis(ms), &host, &[sample(0, run_ms * MS, wait_ms * MS)]);
        of(&futures, 0)
    };
    at(0, 10_000, 5_000);
    let mut last = Allocations::default();
    // Twice as late every now and then.
    let (mut ms, mut run) = (0, 10_000);
    for step in 0..40 {
        ms += if step % 7 == 0 { 1_000 } else { 100 };
        run = 10_000 + ms / 2;
        last = at(ms, run, 5_000);
        if step > 0 {
            assert!((last.actual_ms_per_s - 500.0).abs() < 5.0, "at {ms}: {last:?}");
        }
    }
    assert!(close(last.desired_ms_per_s, 500.0));
    // The host sleeps for an hour, and its clock knows.
    ms += 3_600_000;
    last = at(ms, run, 5_000);
    assert!((last.actual_ms_per_s - 500.0).abs() < 5.0, "{last:?}");
    // The clock goes back, and time goes on.
    ms -= 1_000_000;
    at(ms, run, 5_000);
    for _ in 0..15 {
        (ms, run) = (ms + 100, run + 50);
        last = at(ms, run, 5_000);
    }
    assert!(close(last.actual_ms_per_s, 500.0), "{last:?}");
    // The counters go back to nothing, and jump ahead.
    for (run, wait) in [(0, 0), (u64::MAX / MS, 0), (5, u64::MAX / MS), (0, 0)] {
        ms += 100;
        last = at(ms, run, wait);
        assert!(last.actual_ms_per_s <= 1_000.0 && last.waited_ms_per_s <= 1_000.0, "{last:?}");
    }
    for step in 1..=30 {
        last = at(ms + 100 * step, 50 * step, 0);
    }
    assert!(close(last.actual_ms_per_s, 500.0) && close(last.desired_ms_per_s, 500.0), "{last:?}");
}

#[test]
fn readings_half_a_minute_apart_tell_of_that_half_minute() {
    let mut futures = Futures::new(Settings::default());
    for step in 0..5 {
        let done = 30_000 * MS * step;
        let samples = [sample(0, done / 2, done / 2), sample(2, done / 5, done / 5), sample(4, 7 * MS, 0)];
        futures.sample(Nanos::from_secs(30 * step), &Host::plain(1), &samples);
    }
    let hog = of(&futures, 0);
    assert!(close(hog.actual_ms_per_s, 500.0) && close(hog.desired_ms_per_s, 1_000.0), "{hog:?}");
    let some = of(&futures, 2);
    assert!(close(some.actual_ms_per_s, 200.0) && close(some.desired_ms_per_s, 250.0), "{some:?}");
    assert_eq!(of(&futures, 4).desired_ms_per_s, 0.0);
}

#[test]
fn a_new_thread_is_judged_by_its_life_and_a_dead_one_is_gone() {
    let host = Host::plain(1);
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &host, 0, 20, &[(100, 0)]);
    feed(&mut futures, &host, 21, 24, &[(50, 50)]);
    let now = |step: u64| Nanos(PERIOD.0 * step);
    let both = |step: u64| {
        [
            sample(0, 5 * MS + 2_000 * MS + step * 50 * MS, step * 50 * MS),
            sample(7, step * 50 * MS, step * 50 * MS),
        ]
    };
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &host, 0, 20, &[(100, 0)]);
    for step in 1..=3 {
        futures.sample(now(20 + step), &host, &both(step));
    }
    let (old, new) = (of(&futures, 0), of(&futures, 7));
    assert!(close(new.actual_ms_per_s, 500.0) && close(new.desired_ms_per_s, 1_000.0), "{new:?}");
    assert!(close(old.actual_ms_per_s, 850.0), "{old:?}");
    assert!((old.predicted_ms_per_s - 500.0).abs() < 30.0, "{old:?}");
    assert!((new.predicted_ms_per_s - 500.0).abs() < 30.0, "{new:?}");
    futures.sample(now(24), &host, &both(4)[..1]);
    assert!(futures.of(&id(7)).is_none() && futures.len() == 1 && futures.iter().count() == 1);
    assert!(of(&futures, 0).predicted_ms_per_s > 700.0, "what is left is its own: {:?}", of(&futures, 0));
}

/// Before, one that had slept since it was born was said to want up to a tenth more than it does.
#[test]
fn whose_birth_is_known_is_judged_by_all_its_life() {
    let host = Host::plain(1);
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &host, 0, 20, &[(20, 0)]);
    let mut at = |ms: u64, born_ms: u64, run_ms: f64, wait_ms: f64| {
        let known = sample(0, 5 * MS + 20 * MS * (ms / 100), 0);
        let born = Some(Nanos::from_millis(born_ms));
        let (run_ns, wait_ns) = ((run_ms * MS as f64) as u64, (wait_ms * MS as f64) as u64);
        let new = |at| TaskSample { born, ..sample(at, run_ns, wait_ns) };
        futures.sample(Nanos::from_millis(ms), &host, &[known, new(7)]);
        of(&futures, 7)
    };
    // It runs for 15 ms in a hundred, waits for 50, and sleeps for 35.
    for ms in (2_100..=3_300).step_by(100) {
        let age = ms as f64 - 2_010.0;
        let new = at(ms, 2_010, 0.15 * age, 0.5 * age);
        assert!(close(new.desired_ms_per_s, 300.0), "at {ms}: {new:?}");
    }
}

#[test]
fn one_that_is_seen_late_is_judged_from_then_on() {
    let host = Host::plain(1);
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &host, 0, 20, &[(20, 0)]);
    for step in 21..=23_u64 {
        let known = sample(0, 5 * MS + 20 * MS * step, 0);
        // It had slept for nearly all of its life, and computes from the first sample on that shows it.
        let late = TaskSample { born: Some(Nanos::ZERO), ..sample(7, MS + 100 * MS * (step - 21), 0) };
        futures.sample(Nanos(PERIOD.0 * step), &host, &[known, late]);
    }
    assert!(close(of(&futures, 7).actual_ms_per_s, 1_000.0), "{:?}", of(&futures, 7));
}

#[test]
fn a_nice_value_counts_at_once() {
    let mut futures = Futures::new(Settings::default());
    feed(&mut futures, &Host::plain(1), 0, 20, &[(50, 50), (50, 50)]);
    assert!(futures.reweigh(&id(0), Policy::Normal, -10));
    let (first, second) = (of(&futures, 0), of(&futures, 1));
    assert!((first.predicted_ms_per_s - 903.0).abs() < 20.0, "{first:?}");
    assert!((second.predicted_ms_per_s - 97.0).abs() < 20.0, "{second:?}");
    assert!(close(first.actual_ms_per_s, 500.0));
    assert!(futures.reweigh(&id(0), Policy::Idle, 0));
    assert!(of(&futures, 0).predicted_ms_per_s < 10.0);
    assert!(futures.reweigh(&id(0), Policy::RealTime, 0));
    assert!(of(&futures, 1).predicted_ms_per_s < 80.0, "{:?}", of(&futures, 1));
    assert!(!futures.reweigh(&id(5), Policy::Normal, 0));
}

#[test]
fn a_nice_value_that_samples_do_not_have_yet_counts_on() {
    let mut futures = Futures::new(Settings::default());
    let host = Host::plain(1);
    feed(&mut futures, &host, 0, 20, &[(50, 50), (50, 50)]);
    assert!(futures.reweigh(&id(0), Policy::Normal, 5));
    for step in 1..=15 {
        let (first, second) = ((20 * 50 + step * 25) * MS, (20 * 50 + step * 75) * MS);
        let samples = [sample(0, 5 * MS + first, second), sample(1, 5 * MS + second, first)];
        futures.sample(Nanos(PERIOD.0 * (20 + step)), &host, &samples);
        let found = of(&futures, 0);
        assert!((found.predicted_ms_per_s - 250.0).abs() < 15.0, "{step}: {found:?}");
    }
}

#[test]
fn a_fixed_amount_of_work_a_second_is_told_from_one_that_shrinks() {
    let host = Host::plain(1);
    let run = |work: fn(u64) -> u64| {
        let mut futures = Futures::new(Settings::default());
        let (mut ran, mut waited) = (0, 0);
        for step in 0..120 {
            // The load of others changes every other second.
            let wait = if step / 20 % 2 == 0 { 10 } else { 60 };
            (ran, waited) = (ran + work(wait), waited + wait);
            futures.sample(Nanos(PERIOD.0 * step), &host, &[sample(0, ran * MS, waited * MS)]);
        }
        of(&futures, 0).low_confidence
    };
    assert!(run(|_| 20), "as much whatever it waits");
    assert!(!run(|wait| (100 - wait) * 3 / 10), "a part of what it need not wait");
    assert!(!run(|wait| 100 - wait), "all");
}

#[test]
fn who_ran_meanwhile_took_it() {
    let mut host = Host::plain(2);
    host.sets.extend([CpuSet::from_iter([0]), CpuSet::from_iter([1])]);
    let mut futures = Futures::new(Settings::default());
    let rates = [(20, 60, 1), (60, 30, 1), (20, 70, 1), (90, 0, 2), (10, 0, 0)];
    for step in 0..=20 {
        let samples: Vec<TaskSample> = rates
            .iter()
            .enumerate()
            .map(|(at, &(run, wait, cpus))| TaskSample {
                cpus,
                ..sample(at, step * run * MS, step * wait * MS)
            })
            .collect();
        futures.sample(Nanos(PERIOD.0 * step), &host, &samples);
    }
    let takers = futures.takers(&id(0), 10);
    let found: Vec<u32> = takers.iter().map(|taker| taker.id.tid).collect();
    assert_eq!(found, [1, 2, 4], "{takers:?}");
    assert!(close(takers.iter().map(|taker| taker.ms_per_s).sum(), 600.0), "{takers:?}");
    assert!(close(takers[0].ms_per_s, 600.0 * 60.0 / 85.0), "{takers:?}");
    assert_eq!(futures.takers(&id(0), 1).len(), 1);
    assert!(futures.takers(&id(3), 5).is_empty() && futures.takers(&id(9), 5).is_empty());
}

#[test]
fn no_more_threads_than_may_be() {
    let mut futures = Futures::new(Settings { max_tasks: 10 });
    for step in 0..5 {
        feed(&mut futures, &Host::plain(1), step, step, &[(1, 0); 25]);
        assert_eq!((futures.len(), futures.left_out()), (10, 15));
    }
    // Others every time: as many dead ones are remembered, no more.
    for step in 5..50 {
        let samples: Vec<TaskSample> = (0..25).map(|at| sample(100 * step + at, MS, 0)).collect();
        futures.sample(Nanos(PERIOD.0 * step as u64), &Host::plain(1), &samples);
        assert_eq!((futures.len(), futures.left_out()), (10, 15));
    }
}

fn groups() -> Vec<Group> {
    let group = |parent, weight, quota_cpus| Group { parent, weight, idle: weight == 7, quota_cpus };
    vec![Group::ROOT, group(0, 1024, None), group(1, 2048, Some(0.7)), group(0, 7, None), group(9, 0, None)]
}

proptest! {
    /// Being told of those alone that are not as they were, or ended, is being told of all.
    #[test]
    fn news_tell_as_much_as_all(
        steps in prop::collection::vec(
            (
                prop_oneof![9 => 50u64..400, 1 => Just(0u64), 1 => Just(13_000u64)],
                prop::collection::vec((0usize..12, 0u64..200, 0u64..200, 0i8..3, any::<bool>()), 0..4),
            ),
            1..120
        )
    ) {
        let host = Host::plain(2);
        let (mut by_all, mut by_news) = (Futures::new(Settings::default()), Futures::new(Settings::default()));
        let mut now = Nanos::ZERO;
        let mut alive: Vec<TaskSample> = Vec::new();
        let mut born = 0;
        for (gap, told) in steps {
            now += Nanos::from_millis(gap);
            let before = alive.clone();
            for (at, run, wait, nice, ends) in told {
                match alive.iter().position(|task| task.id.tid == at as u32) {
                    Some(place) if ends => drop(alive.remove(place)),
                    Some(place) => {
                        let task = &mut alive[place];
                        (task.run_ns, task.wait_ns) = (task.run_ns + run * MS, task.wait_ns + wait * MS);
                        task.nice = nice;
                    }
                    None => {
                        born += 1;
                        let mut new = sample(at, run * MS, wait * MS);
                        new.id.started = born;
                        alive.push(new);
                    }
                }
            }
            by_all.sample(now, &host, &alive);
            let changed: Vec<TaskSample> =
                alive.iter().filter(|task| !before.contains(task)).copied().collect();
            let lives = |task: &TaskSample| alive.iter().any(|other| other.id == task.id);
            let gone: Vec<TaskId> =
                before.iter().filter(|task| !lives(task)).map(|task| task.id).collect();
            by_news.sample_news(now, &host, &changed, &gone);
            prop_assert_eq!(by_all.len(), by_news.len());
            for task in &alive {
                let (all, news) = (by_all.of(&task.id).unwrap(), by_news.of(&task.id).unwrap());
                let of = |a: Allocations| [a.actual_ms_per_s, a.desired_ms_per_s, a.predicted_ms_per_s, a.potential_ms_per_s, a.waited_ms_per_s];
                for (all, news) in of(all).into_iter().zip(of(news)) {
                    prop_assert!((all - news).abs() < 1e-3, "{:?}: {} and {}", task, all, news);
                }
                prop_assert_eq!(all.low_confidence, news.low_confidence);
            }
        }
    }

    /// Whatever the counters and the terms are.
    #[test]
    fn bounds_hold_whatever_is_sampled(
        steps in prop::collection::vec(
            (0u64..400, prop::collection::vec((0usize..12, 0u64..200, 0u64..200, -25i8..25, 0u32..7, 0u32..5, 0u8..4), 0..12)),
            1..30
        )
    ) {
        let mut host = Host::plain(3);
        host.groups = groups();
        host.sets.extend([CpuSet::from_iter([0]), CpuSet::from_iter([1, 2]), CpuSet::from_iter([77])]);
        let mut futures = Futures::new(Settings::default());
        let mut now = Nanos::ZERO;
        let mut counters = [(0u64, 0u64); 12];
        for (gap, tasks) in steps {
            now += Nanos::from_millis(gap);
            let samples: Vec<TaskSample> = tasks
                .iter()
                .map(|&(at, run, wait, nice, group, cpus, policy)| {
                    let counter = &mut counters[at];
                    (counter.0, counter.1) = (counter.0.wrapping_add(run * MS), counter.1.wrapping_add(wait * MS));
                    let policy = [Policy::Normal, Policy::Batch, Policy::Idle, Policy::RealTime][usize::from(policy)];
                    TaskSample { policy, nice, group, cpus, ..sample(at, counter.0, counter.1) }
                })
                .collect();
            futures.sample(now, &host, &samples);
            let mut total = 0.0;
            for (id, found) in futures.iter() {
                let Allocations { desired_ms_per_s, actual_ms_per_s, predicted_ms_per_s, potential_ms_per_s, waited_ms_per_s, .. } = found;
                for rate in [desired_ms_per_s, actual_ms_per_s, predicted_ms_per_s, potential_ms_per_s, waited_ms_per_s] {
                    prop_assert!((0.0..=1_000.0 + 1e-6).contains(&rate), "{found:?}");
                }
                prop_assert!(actual_ms_per_s + waited_ms_per_s <= 1_000.0 + 1e-6, "{found:?}");
                prop_assert!(actual_ms_per_s <= desired_ms_per_s + 1e-6, "{found:?}");
                prop_assert!(predicted_ms_per_s <= desired_ms_per_s + 1e-6, "{found:?}");
                prop_assert!(predicted_ms_per_s <= potential_ms_per_s + 1e-6, "{found:?}");
                total += predicted_ms_per_s;
                let takers: f64 = futures.takers(&id, usize::MAX).iter().map(|taker| taker.ms_per_s).sum();
                prop_assert!(takers == 0.0 || (takers - waited_ms_per_s).abs() < 1e-3, "{takers} {found:?}");
            }
            prop_assert!(total <= 3_000.0 + 1e-6, "{total}");
        }
    }

    /// A steady load goes on as it is, whatever the model thinks of it.
    #[test]
    fn what_is_steady_is_predicted_exactly(
        rates in prop::collection::vec((0u64..60, 0u64..40, -20i8..20, 0u32..5, 0u32..3), 1..12)
    ) {
        let mut host = Host::plain(12);
        host.groups = groups();
        host.sets.extend([CpuSet::from_iter([0]), CpuSet::from_iter([1, 2])]);
        let mut futures = Futures::new(Settings::default());
        for step in 0..25 {
            let samples: Vec<TaskSample> = rates
                .iter()
                .enumerate()
                .map(|(at, &(run, wait, nice, group, cpus))| TaskSample {
                    nice,
                    group,
                    cpus,
                    ..sample(at, step * run * MS, step * wait * MS)
                })
                .collect();
            futures.sample(Nanos(PERIOD.0 * step), &host, &samples);
        }
        for (_, found) in futures.iter() {
            prop_assert!(close(found.predicted_ms_per_s, found.actual_ms_per_s), "{found:?}");
        }
    }
}
