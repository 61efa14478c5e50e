//! The gate as a host drives it: every grant and every refusal for its reason, under arbitrary sequences.

use plimsoll_admission::{Ask, Gate, GateSpec, Outcome, Slots, build};
use plimsoll_core::config::{Override, Policy, WaitLimit};
use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Percentile, Refusal, Rng, Slo, Verdict};
use proptest::prelude::*;

const FAST: ClassId = ClassId(0);
const SLOW: ClassId = ClassId(1);
const SECOND: Nanos = Nanos::from_secs(1);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn slo(p50_ms: u64, p90_ms: u64) -> Slo {
    Slo::new([(Percentile::P50, ms(p50_ms)), (Percentile::P90, ms(p90_ms))]).unwrap()
}

fn gate_with(policy: &Policy, slots: u32, max_queue: u32) -> Gate {
    let spec = GateSpec {
        slos: vec![slo(18, 50), slo(18, 50), slo(18, 50)],
        ranks: Vec::new(),
        fair_share: vec![],
        slots: Slots::Fixed(slots),
        max_queue,
        start: Nanos::ZERO,
    };
    build::gate(spec, policy, &["fast", "slow", "default"])
}

/// A gate that knows its classes: fast takes 1 ms, slow 15 ms.
fn warm_gate(policy: &Policy, slots: u32, max_queue: u32) -> Gate {
    let gate = gate_with(policy, slots, max_queue);
    let mut rng = seeded(1, 1);
    for (class, took) in [(FAST, 1), (SLOW, 15)] {
        for _ in 0..100 {
            assert!(gate.offer(&Ask::of(class), Nanos::ZERO, &mut rng).is_admit());
            assert!(gate.start(class, Nanos::ZERO, Nanos::ZERO).is_admit());
            gate.finish(class, Nanos::ZERO, ms(took), Outcome::Measured);
        }
    }
    gate.tick(SECOND);
    gate
}

/// Fills the queue with fast requests until one is refused.
fn fill(gate: &Gate, rng: &mut Rng) -> (u32, Refusal) {
    for n in 0.. {
        if let Verdict::Refuse(refusal) = gate.offer(&Ask::of(FAST), SECOND, rng) {
            return (n, refusal);
        }
    }
    unreachable!()
}

#[test]
fn bouncer_admits_up_to_the_objective_and_says_which_one_stopped_it() {
    let gate = warm_gate(&Policy::Bouncer(Override::Never), 10, 800);
    let (n, refusal) = fill(&gate, &mut seeded(1, 1));
    // 17 ms of wait for ten processes are 170 ms of work. A turn is the 8 ms that requests took on average, which leaves room
    // for 162 requests of 1 ms.
    assert!((160..=165).contains(&n), "{n}");
    assert_eq!((refusal.mechanism, refusal.limit), (Mechanism::Bouncer, Limit::Percentile(Percentile::P50)));
    let text = refusal.to_string();
    assert!(
        text.starts_with("bouncer; limit=p50; estimate=18.") && text.ends_with("objective=18ms"),
        "{text}"
    );
    assert_eq!(gate.queued(), n);
}

#[test]
fn a_slow_class_is_refused_first() {
    let gate = warm_gate(&Policy::Bouncer(Override::Never), 10, 800);
    let mut rng = seeded(1, 1);
    (0..60).for_each(|_| assert!(gate.offer(&Ask::of(FAST), SECOND, &mut rng).is_admit()));
    assert!(
        !gate.offer(&Ask::of(SLOW), SECOND, &mut rng).is_admit(),
        "6 ms of wait and 15 ms are above 18 ms"
    );
    assert!(gate.offer(&Ask::of(FAST), SECOND, &mut rng).is_admit());
}

#[test]
fn while_cold_no_more_wait_than_are_served() {
    let gate = gate_with(&Policy::Bouncer(Override::Allowance(1.0)), 10, 800);
    let (n, refusal) = fill(&gate, &mut seeded(1, 1));
    assert_eq!((n, refusal.limit), (10, Limit::ColdStart));
}

#[test]
fn a_class_locked_out_is_probed_and_comes_back() {
    let gate = warm_gate(&Policy::Bouncer(Override::Never), 10, 800);
    let mut rng = seeded(1, 1);
    let serve = |took: u64, rng: &mut Rng| {
        let verdict = gate.offer(&Ask::of(SLOW), SECOND, rng);
        if verdict.is_admit() {
            gate.start(SLOW, Nanos::ZERO, SECOND);
            gate.finish(SLOW, Nanos::ZERO, ms(took), Outcome::Measured);
        }
        verdict
    };
    // One interval of slow answers, as after a stall: its estimate is above its objective at an empty queue.
    (0..500).for_each(|_| _ = serve(900, &mut rng));
    let mut now = SECOND;
    let mut tick = || {
        now += SECOND;
        gate.tick(now);
    };
    tick();
    let first = serve(15, &mut rng);
    assert!(
        matches!(first, Verdict::Refuse(_)),
        "enough completions in that interval: no probe yet, {first:?}"
    );
    let mut waited = 0;
    while serve(15, &mut rng) != Verdict::Admit(Grant::Estimate) {
        tick();
        let probes = (0..50).filter(|_| serve(15, &mut rng) == Verdict::Admit(Grant::Probe)).count();
        assert!(probes <= 5);
        waited += 1;
        assert!(waited < 60, "locked out for ever");
    }
}

#[test]
fn an_allowance_overrides_until_the_queue_is_half_full() {
    let gate = warm_gate(&Policy::Bouncer(Override::Allowance(0.5)), 10, 400);
    let mut rng = seeded(1, 1);
    let mut overridden = 0;
    for _ in 0..5_000 {
        match gate.offer(&Ask::of(FAST), SECOND, &mut rng) {
            Verdict::Admit(Grant::Allowance) => overridden += 1,
            Verdict::Admit(other) => assert_eq!(other, Grant::Estimate),
            Verdict::Refuse(_) => {}
        }
    }
    assert!(overridden > 20, "{overridden}");
    assert_eq!(gate.queued(), 200, "half of max_queue");
}

#[test]
fn the_underserved_are_helped_with_at_most_half_their_refusals() {
    let gate = warm_gate(&Policy::Bouncer(Override::Underserved(1.0)), 10, 800);
    let mut rng = seeded(1, 1);
    (0..100).for_each(|_| _ = gate.offer(&Ask::of(FAST), SECOND, &mut rng));
    let (mut helped, mut now) = (0, SECOND);
    for i in 0..400 {
        if i % 20 == 0 {
            now += ms(10);
            gate.tick(now);
        }
        match gate.offer(&Ask::of(SLOW), now, &mut rng) {
            Verdict::Admit(Grant::Underserved) => {
                helped += 1;
                gate.abandon(SLOW);
            }
            Verdict::Admit(other) => panic!("{other:?}"),
            Verdict::Refuse(_) => {}
        }
    }
    assert!((40..200).contains(&helped), "{helped} of 400");
}

#[test]
fn a_deadline_is_held_against_wait_and_median() {
    let gate = warm_gate(&Policy::None, 10, 800);
    let mut rng = seeded(1, 1);
    let ask = |left_ms| Ask { deadline: Some(SECOND + ms(left_ms)), ..Ask::of(SLOW) };
    assert!(gate.offer(&ask(20), SECOND, &mut rng).is_admit());
    (0..100).for_each(|_| assert!(gate.offer(&Ask::of(FAST), SECOND, &mut rng).is_admit()));
    let Verdict::Refuse(refusal) = gate.offer(&ask(20), SECOND, &mut rng) else { panic!("admitted") };
    assert_eq!((refusal.mechanism, refusal.limit), (Mechanism::Deadline, Limit::Deadline));
    assert!(gate.offer(&ask(40), SECOND, &mut rng).is_admit());
    let past = Ask { deadline: Some(ms(1)), ..Ask::of(FAST) };
    assert!(!gate.offer(&past, SECOND, &mut rng).is_admit());
}

#[test]
fn max_queue_holds_for_every_policy() {
    for policy in policies() {
        let gate = warm_gate(&policy, 10, 60);
        let mut rng = seeded(1, 1);
        (0..500).for_each(|_| _ = gate.offer(&Ask::of(FAST), SECOND, &mut rng));
        assert!(gate.queued() <= 60, "{policy:?} let {} wait", gate.queued());
        assert!(gate.queued() > 0, "{policy:?}");
    }
}

#[test]
fn codel_refuses_what_stood_too_long() {
    let gate = warm_gate(&Policy::Codel, 1, 800);
    let mut rng = seeded(1, 1);
    let mut refused = 0;
    for i in 0..300 {
        let now = SECOND + ms(i);
        assert!(gate.offer(&Ask::of(FAST), now, &mut rng).is_admit());
        match gate.start(FAST, ms(30), now) {
            Verdict::Admit(_) => gate.finish(FAST, ms(30), ms(1), Outcome::Measured),
            Verdict::Refuse(refusal) => {
                assert_eq!(refusal.mechanism, Mechanism::Codel);
                refused += 1;
            }
        }
    }
    assert!((2..20).contains(&refused), "{refused}");
    assert_eq!(gate.queued(), 0);
}

#[test]
fn adaptive_slots_reach_the_estimates() {
    let spec = GateSpec {
        slos: vec![slo(18, 50)],
        ranks: Vec::new(),
        fair_share: vec![],
        slots: Slots::Adaptive { initial: 4, max: 64 },
        max_queue: 800,
        start: Nanos::ZERO,
    };
    let gate = build::gate(spec, &Policy::None, &["default"]);
    assert_eq!((gate.slots(), gate.recommended_slots()), (4, Some(4)));
    let mut rng = seeded(1, 1);
    let mut in_service = 0;
    for step in 0..4_000u64 {
        while in_service < gate.slots() {
            assert!(gate.offer(&Ask::of(FAST), Nanos::ZERO, &mut rng).is_admit());
            gate.start(FAST, Nanos::ZERO, Nanos::ZERO);
            in_service += 1;
        }
        gate.finish(FAST, Nanos::ZERO, ms(5), Outcome::Measured);
        in_service -= 1;
        gate.tick(ms(step));
    }
    assert!(gate.slots() > 8, "never slower, so more: {}", gate.slots());
    assert_eq!(Some(gate.slots()), gate.recommended_slots());
}

#[test]
fn told_slots_hold_until_nobody_tells_and_are_what_it_goes_on_from() {
    let spec = |slots| GateSpec {
        slos: vec![slo(18, 50)],
        ranks: Vec::new(),
        fair_share: vec![],
        slots,
        max_queue: 800,
        start: Nanos::ZERO,
    };
    let gate = build::gate(spec(Slots::Adaptive { initial: 4, max: 64 }), &Policy::None, &["default"]);
    assert!(gate.tell_slots(Some(17)));
    (0..100).for_each(|i| _ = gate.tick(ms(50 * i)));
    assert_eq!((gate.slots(), gate.recommended_slots()), (17, Some(17)));
    assert!(gate.tell_slots(None));
    assert_eq!((gate.slots(), gate.recommended_slots()), (17, Some(17)), "as good a beginning as any");
    let fixed = build::gate(spec(Slots::Fixed(8)), &Policy::None, &["default"]);
    assert!(fixed.tell_slots(Some(17)));
    assert_eq!((fixed.slots(), fixed.recommended_slots()), (8, None));
}

/// Requests that the gate lets in at once, after a hundred that ended so.
fn lets_in_after(policy: &Policy, outcome: Outcome) -> u32 {
    let gate = warm_gate(policy, 10, 800);
    let mut rng = seeded(1, 1);
    for _ in 0..100 {
        assert!(gate.offer(&Ask::of(FAST), SECOND, &mut rng).is_admit());
        assert!(gate.start(FAST, Nanos::ZERO, SECOND).is_admit());
        gate.finish(FAST, Nanos::ZERO, ms(1), outcome);
    }
    fill(&gate, &mut rng).0
}

#[test]
fn aimd_and_vegas_back_off_from_a_server_that_fails() {
    for policy in [Policy::Aimd, Policy::Vegas] {
        let unmeasured = lets_in_after(&policy, Outcome::Unmeasured);
        assert_eq!(lets_in_after(&policy, Outcome::Failed), 1, "{policy:?}");
        assert!(unmeasured >= 10, "{policy:?} backs off from what is not the server's fault: {unmeasured}");
    }
}

/// A server that fails at once is not a quick one.
#[test]
fn failures_do_not_enter_the_estimates() {
    let bouncer = Policy::Bouncer(Override::Never);
    assert_eq!(lets_in_after(&bouncer, Outcome::Failed), lets_in_after(&bouncer, Outcome::Unmeasured));
}

fn policies() -> Vec<Policy> {
    vec![
        Policy::Bouncer(Override::Never),
        Policy::Bouncer(Override::Allowance(0.1)),
        Policy::Bouncer(Override::Underserved(1.0)),
        Policy::MaxQl { limit: 50 },
        Policy::MaxQwt {
            limit: WaitLimit::PerClass(vec![("fast".into(), ms(12)), ("default".into(), ms(5))]),
        },
        Policy::AcceptFraction { max_util: 0.9 },
        Policy::Codel,
        Policy::Aimd,
        Policy::Vegas,
        Policy::Gradient2,
        Policy::None,
    ]
}

proptest! {
    /// Whatever comes in whatever order: the queue's length is what was admitted and has not left, a refusal leaves no
    /// trace, and when everybody has left nothing is left.
    #[test]
    fn accounts_balance(
        which in 0usize..11,
        steps in prop::collection::vec((0u16..3, 0u8..4, 0u64..30), 1..400),
        seed in any::<u64>(),
    ) {
        let gate = gate_with(&policies()[which], 4, 40);
        let mut rng = seeded(seed, 0);
        let (mut waiting, mut serving, mut now) = (Vec::new(), Vec::new(), Nanos::ZERO);
        for (class, what, gap) in steps {
            now += ms(gap);
            gate.tick(now);
            match what {
                0 | 1 => {
                    if gate.offer(&Ask::of(ClassId(class)), now, &mut rng).is_admit() {
                        waiting.push((ClassId(class), now));
                    }
                }
                2 if !waiting.is_empty() => {
                    let (class, since) = waiting.remove(0);
                    if gap % 7 == 0 {
                        gate.abandon(class);
                    } else if gate.start(class, now - since, now).is_admit() {
                        serving.push((class, now - since, now));
                    }
                }
                _ => {
                    if let Some((class, waited, since)) = serving.pop() {
                        gate.finish(class, waited, now - since, Outcome::Measured);
                    }
                }
            }
            prop_assert_eq!(gate.queued() as usize, waiting.len());
            prop_assert!(waiting.len() <= 40);
        }
        for (class, _) in waiting {
            gate.abandon(class);
        }
        prop_assert_eq!(gate.queued(), 0);
        prop_assert!(gate.report().iter().all(|r| r.queued == 0));
        prop_assert_eq!(gate.expected_wait(), Nanos::ZERO);
    }
}

/// Threads that come and go while estimates are renewed: nothing is lost, nothing is left.
#[test]
fn accounts_balance_under_concurrency() {
    let gate = warm_gate(&Policy::Bouncer(Override::Allowance(0.1)), 4, 64);
    std::thread::scope(|scope| {
        for t in 0..3u64 {
            let gate = &gate;
            scope.spawn(move || {
                let mut rng = seeded(t, 0);
                for i in 0..30_000u16 {
                    let class = ClassId(i % 3);
                    if gate.offer(&Ask::of(class), SECOND, &mut rng).is_admit() {
                        gate.start(class, ms(1), SECOND);
                        gate.finish(class, ms(1), Nanos::from_micros(u64::from(i)), Outcome::Measured);
                    }
                }
            });
        }
        (2..200).for_each(|s| {
            gate.tick(Nanos::from_secs(s));
        });
    });
    gate.tick(Nanos::from_secs(1_000));
    assert_eq!((gate.queued(), gate.expected_wait()), (0, Nanos::ZERO));
}

#[test]
fn a_promise_passes_untested_and_only_the_queue_and_the_deadline_refuse_it() {
    let gate = warm_gate(&Policy::Bouncer(Override::Never), 10, 100);
    let mut rng = seeded(3, 0);
    while gate.offer(&Ask::of(SLOW), SECOND, &mut rng).is_admit() {}
    let promised = Ask { promised: true, ..Ask::of(SLOW) };
    let late = Ask { deadline: Some(SECOND + ms(1)), ..promised };
    assert_eq!(mechanism(gate.offer(&late, SECOND, &mut rng)), Mechanism::Deadline);
    while gate.queued() < 100 {
        assert_eq!(gate.offer(&promised, SECOND, &mut rng), Verdict::Admit(Grant::Promise));
    }
    assert_eq!(mechanism(gate.offer(&promised, SECOND, &mut rng)), Mechanism::MaxQueue);
}

fn mechanism(verdict: Verdict) -> Mechanism {
    match verdict {
        Verdict::Refuse(refusal) => refusal.mechanism,
        Verdict::Admit(grant) => panic!("let in: {grant:?}"),
    }
}
