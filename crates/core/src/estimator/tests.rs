use super::*;
use crate::backlog::WORK_UNIT_NS;
use proptest::prelude::*;

const A: ClassId = ClassId(0);
const MS: u64 = 1_000_000;

fn slo(p50_ms: u64, p90_ms: u64) -> Slo {
    let ms = Nanos::from_millis;
    Slo::new([(Percentile::P50, ms(p50_ms)), (Percentile::P90, ms(p90_ms))]).unwrap()
}

/// Everything is warm and learnt: `n` completions of `ms` each.
fn warm(estimator: &Estimator, class: ClassId, n: u32, ms: u64) {
    (0..n).for_each(|_| estimator.completed(class, Wait::default(), Nanos::from_millis(ms)));
}

proptest! {
    /// Eq. 1-4 and Algorithm 1 as the paper writes them, in floating point, from the same means and percentiles; xi is a turn.
    #[test]
    fn a_decision_is_algorithm_1(
        times in prop::collection::vec(prop::collection::vec(1u64..60, 1..60), 3),
        queued in prop::collection::vec(0usize..200, 3),
        slots in 1u32..120,
        class in 0u16..3,
    ) {
        let estimator = Estimator::new(vec![slo(18, 50), slo(10, 90), slo(30, 400)], slots, Nanos::ZERO);
        for (c, times) in times.iter().enumerate() {
            times.iter().for_each(|&ms| estimator.completed(ClassId(c as u16), Wait::default(), Nanos::from_millis(ms)));
            (0..queued[c]).for_each(|_| estimator.enqueue(ClassId(c as u16)));
        }
        estimator.tick(INTERVAL);
        let report = estimator.report();
        let work: f64 = report.iter().map(|r| r.queued as f64 * r.mean.0 as f64).sum();
        let (n, total) = times.iter().flatten().fold((0.0, 0.0), |(n, sum), &ms| (n + 1.0, sum + ms as f64 * 1e6));
        let turn = total / n;
        let class = ClassId(class);
        let meets = |wait: f64| {
            estimator.targets(class).all(|(_, point, limit)| wait + point.0 as f64 <= limit.0 as f64)
        };
        // An empty queue keeps nobody out whose own time does not.
        let accept = meets((work + turn) / f64::from(slots)) || (work == 0.0 && meets(0.0));
        // The turn is kept in whole nanoseconds: a sum this near to its limit may fall to either side.
        let at_limit = meets((work + turn - 2.0) / f64::from(slots)) != meets((work + turn + 2.0) / f64::from(slots));
        prop_assume!(!at_limit);
        prop_assert_eq!(estimator.waiting(class).is_within(), accept);
    }
}

#[test]
fn a_class_never_seen_borrows_from_all_and_is_held_to_default() {
    let estimator = Estimator::new(vec![slo(1, 2), slo(1, 2), slo(30, 400)], 1, Nanos::ZERO);
    warm(&estimator, ClassId(1), 200, 20);
    estimator.tick(INTERVAL);
    assert!(estimator.waiting(A).is_within(), "20 ms are within default's 30 ms");
    assert!(!estimator.waiting(ClassId(1)).is_within(), "20 ms are not within its own 1 ms");
    warm(&estimator, A, 1, 20);
    estimator.tick(INTERVAL + INTERVAL);
    assert!(!estimator.waiting(A).is_within(), "once seen it is held to its own");
}

#[test]
fn a_wait_that_was_longer_than_expected_counts_and_an_accident_does_not() {
    let estimator = Estimator::new(vec![slo(18, 50)], 1, Nanos::ZERO);
    warm(&estimator, A, 100, 5);
    let ms = Nanos::from_millis;
    let p50_after = |wait, at: u64| {
        (0..100_000).for_each(|_| estimator.completed(A, wait, ms(5)));
        estimator.tick(Nanos::from_secs(at));
        estimator.targets(A).next().unwrap().1
    };
    let near = |found: Nanos, ms: u64| assert!(found.0.abs_diff(ms * MS) < MS / 2, "{found:?}, not {ms} ms");
    near(p50_after(Wait { expected: ms(80), actual: ms(86) }, 1), 11);
    near(p50_after(Wait { expected: ms(80), actual: ms(77) }, 2), 2);
    near(p50_after(Wait { expected: ms(80), actual: ms(60) }, 3), 0);
    near(p50_after(Wait { expected: ms(8), actual: ms(1_008) }, 4), 7);
    near(p50_after(Wait::from(ms(300)), 5), 5);
    near(estimator.mean(A), 5);
}

#[test]
fn a_slower_server_tightens_the_classes_that_were_not_let_in_too() {
    const B: ClassId = ClassId(1);
    let estimator = Estimator::new(vec![slo(18, 50), slo(18, 50)], 1, Nanos::ZERO);
    let ms = Nanos::from_millis;
    let waited = |class, n, actual| {
        (0..n).for_each(|_| estimator.completed(class, Wait { expected: ms(80), actual: ms(actual) }, ms(5)));
    };
    let surprise = |class| estimator.targets(class).next().unwrap().1.0 as f64 / MS as f64 - 5.0;
    (0..100).for_each(|_| estimator.completed(A, Wait::default(), ms(5)));
    for second in 1..=30 {
        waited(A, 900, 80);
        waited(B, 100, 90);
        estimator.tick(Nanos::from_secs(second));
    }
    assert!(
        (surprise(A) - 0.0).abs() < 1.0 && (surprise(B) - 10.0).abs() < 1.0,
        "{} {}",
        surprise(A),
        surprise(B)
    );
    waited(A, 900, 100);
    estimator.tick(Nanos::from_secs(31));
    assert!(
        (surprise(A) - 18.0).abs() < 2.0 && (surprise(B) - 28.0).abs() < 2.0,
        "{} {}",
        surprise(A),
        surprise(B)
    );
}

#[test]
fn a_silent_class_keeps_its_shape_and_new_measurements_take_over() {
    let estimator = Estimator::new(vec![slo(18, 50)], 1, Nanos::ZERO);
    let mut now = Nanos::ZERO;
    let mut tick = || {
        now += INTERVAL;
        assert!(estimator.tick(now).0);
    };
    warm(&estimator, A, 1_000, 40);
    (0..300).for_each(|_| tick());
    assert!(estimator.median(A).0.abs_diff(40 * MS) < MS, "{:?}", estimator.median(A));
    assert_eq!(estimator.completed_last_interval(A), 0);
    warm(&estimator, A, 5, 10);
    tick();
    assert!(estimator.median(A).0.abs_diff(10 * MS) < MS, "{:?}", estimator.median(A));
    assert_eq!(estimator.completed_last_interval(A), 5);
}

#[test]
fn a_cold_start_learns_before_the_first_interval_ends() {
    let estimator = Estimator::new(vec![slo(18, 50)], 4, Nanos::ZERO);
    assert!(estimator.is_cold());
    warm(&estimator, A, 1, 30);
    assert!(!estimator.waiting(A).is_within());
    warm(&estimator, A, 99, 3);
    assert!(!estimator.is_cold() && estimator.waiting(A).is_within());
}

#[test]
fn many_slots_stay_cold_until_the_slow_ones_are_done_too() {
    let estimator = Estimator::new(vec![slo(18, 50)], 100, Nanos::ZERO);
    warm(&estimator, A, 999, 3);
    assert!(estimator.is_cold());
    warm(&estimator, A, 1, 40);
    assert!(!estimator.is_cold());
}

#[test]
fn more_slots_allow_more_work_at_once() {
    let estimator = Estimator::new(vec![slo(18, 50)], 2, Nanos::ZERO);
    warm(&estimator, A, 100, 8);
    estimator.tick(INTERVAL);
    let before = estimator.waiting(A).allowed_ns;
    estimator.set_slots(6);
    let turn = 8 * MS as i64;
    assert!((estimator.waiting(A).allowed_ns + turn).abs_diff((before + turn) * 3) <= WORK_UNIT_NS);
}

#[test]
fn without_objectives_nothing_is_too_much() {
    let estimator = Estimator::new(vec![Slo::default()], 1, Nanos::ZERO);
    warm(&estimator, A, 100, 8_000);
    (0..1_000).for_each(|_| estimator.enqueue(A));
    estimator.tick(INTERVAL);
    assert!(estimator.waiting(A).is_within());
}

#[test]
fn a_mean_is_an_objective_like_any_other() {
    let mean = Slo::new([(Statistic::Mean, Nanos::from_millis(31))]).unwrap();
    let estimator = Estimator::new(vec![mean], 2, Nanos::ZERO);
    warm(&estimator, A, 100, 5);
    warm(&estimator, A, 100, 15);
    estimator.tick(INTERVAL);
    // 10 ms on average leave 21 ms for the queue: 42 ms of work at two slots, less a turn, which is 10 ms.
    let mut fits = 0;
    while estimator.waiting(A).is_within() {
        estimator.enqueue(A);
        fits += 1;
    }
    assert_eq!(fits, 4, "of 10 ms each, the last of which may find 32 ms");
}

#[test]
fn the_queue_is_too_long_for_lesser_classes_first() {
    const B: ClassId = ClassId(1);
    const C: ClassId = ClassId(2);
    let estimator =
        Estimator::new(vec![slo(30, 60), slo(30, 60), slo(200, 400)], 10, Nanos::ZERO).ranked(vec![1, 0, 2]);
    let allowed = |class| estimator.waiting(class).allowed_ns;
    warm(&estimator, A, 100, 10);
    estimator.tick(INTERVAL);
    assert!(allowed(C) <= allowed(A) * 3 / 4 + 1, "C gives way to A, which asks");
    let alone = allowed(A);
    warm(&estimator, B, 100, 10);
    estimator.tick(INTERVAL + INTERVAL);
    assert!(allowed(B).abs_diff(alone) < MS, "nobody is above B");
    assert!((allowed(A) as f64 / allowed(B) as f64 - 0.75).abs() < 1e-6);
    assert!((allowed(C) as f64 / allowed(B) as f64 - 0.6).abs() < 1e-6, "however loose its own objective");
}

#[test]
fn who_cannot_be_served_at_all_keeps_nobody_out() {
    let estimator = Estimator::new(vec![slo(1, 2), slo(30, 60)], 10, Nanos::ZERO).ranked(vec![0, 1]);
    warm(&estimator, A, 100, 10);
    warm(&estimator, ClassId(1), 100, 10);
    estimator.tick(INTERVAL);
    assert!(!estimator.waiting(A).is_within() && estimator.waiting(ClassId(1)).is_within());
}
