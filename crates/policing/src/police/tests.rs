use super::*;
use plimsoll_core::rng::seeded;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const GOLD: ClassId = ClassId(2);
const SILVER: ClassId = ClassId(0);
const BRONZE: ClassId = ClassId(1);

fn class(priority: u32, revenue: f64, promised_per_s: f64) -> ClassSpec {
    ClassSpec { priority, revenue, promised_per_s, target: MS(1_000) }
}

/// Gold by priority, silver before bronze by revenue; bronze was promised a hundred a second.
fn police(choice: Choice) -> Police {
    let classes = [class(2, 5.0, 0.0), class(2, 1.0, 100.0), class(1, 1.0, 0.0)];
    Police::new(&classes, None, choice, Nanos::ZERO)
}

fn busy(queue_ms: u64) -> Load {
    Load { queue_delay: MS(queue_ms), in_service: 0.0, servers: 4, idle: false }
}

fn scene(load: Load, sentry_busy: f64) -> Scene<'static> {
    Scene { load, mean: &|_| MS(100), sentry_busy }
}

#[test]
fn a_promise_is_kept_before_anything_else_is_asked() {
    let (police, mut rng) = (police(Choice::Auto), seeded(1, 0));
    let mut offer = |class, ms| police.offer(class, MS(100), &busy(5_000), MS(ms), &mut rng);
    let kept = |answer| answer == Answer::Now(Verdict::Admit(Grant::Promise));
    assert_eq!((0..1_000).filter(|_| kept(offer(BRONZE, 0))).count(), 100, "a second's worth");
    assert!(matches!(offer(GOLD, 0), Answer::Now(Verdict::Refuse(_))));
}

#[test]
fn whoever_finds_an_idle_server_passes() {
    let (police, mut rng) = (police(Choice::Always(Policer::Threshold)), seeded(1, 0));
    police.threshold.set(&[Demand { per_s: 1e9, service_s: 1.0 }; 3], 1.0);
    let idle = Load { idle: true, ..busy(0) };
    let mut offer = |load| police.offer(SILVER, MS(100), &load, Nanos::ZERO, &mut rng);
    assert_eq!(offer(idle), Answer::Now(Verdict::Admit(Grant::Estimate)));
    assert!(matches!(offer(busy(0)), Answer::Now(Verdict::Refuse(_))));
}

#[test]
fn a_refusal_says_what_was_expected_and_what_is_owed() {
    let (police, mut rng) = (police(Choice::Auto), seeded(1, 0));
    let refusal = |answer| match answer {
        Answer::Now(Verdict::Refuse(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let answer = police.offer(GOLD, MS(100), &busy(950), Nanos::ZERO, &mut rng);
    assert_eq!(refusal(answer), "policing; limit=mean; estimate=1.05s; objective=1s");
    let police = self::police(Choice::Always(Policer::Threshold));
    police.threshold.set(&[Demand::default(), Demand { per_s: 100.0, service_s: 0.1 }], 0.0);
    let answer = police.offer(SILVER, MS(100), &busy(10), Nanos::ZERO, &mut rng);
    assert_eq!(refusal(answer), "policing; limit=fraction; estimate=1.000; objective=0.000");
}

/// Requests of all classes for six seconds; behind a long queue one in three of those that wait is let in.
fn delays_after(police: &Police, load: Load, from_ms: u64) -> Vec<Nanos> {
    let mut rng = seeded(1, 0);
    let misfit = Misfit { estimate: MS(2_000), objective: MS(1_000) };
    for ms in from_ms..from_ms + 6_000 {
        for class in [GOLD, SILVER, BRONZE] {
            if let Answer::Waits { .. } = police.offer(class, MS(100), &load, MS(ms), &mut rng) {
                police.processed(if load.queue_delay < MS(500) || ms % 3 == 0 {
                    Ok(())
                } else {
                    Err(misfit)
                });
            }
        }
        police.tick(&scene(load, 0.1), MS(ms + 1));
    }
    (0..3).map(|rank| police.terms(rank).delay).collect()
}

#[test]
fn lesser_classes_wait_longer_once_there_is_no_room_and_not_before() {
    let police = police(Choice::Always(Policer::Batch));
    assert_eq!(delays_after(&police, busy(300), 0), [Nanos::ZERO; 3]);
    // All are refused at first, and then all but those that waited for their turn.
    let delays = delays_after(&police, busy(950), 6_000);
    assert!(delays[0] == Nanos::ZERO && delays[1] > Nanos::ZERO, "{delays:?}");
    assert!(delays[2].0.abs_diff(2 * delays[1].0) <= 2 && delays[2] <= MS(250), "{delays:?}");
    // And when the crowd has gone, nobody waits any more.
    assert_eq!(delays_after(&police, busy(0), 12_000), [Nanos::ZERO; 3]);
}

#[test]
fn the_threshold_follows_what_arrives_and_leaves_out_what_was_promised() {
    let (police, mut rng) = (police(Choice::Always(Policer::Threshold)), seeded(1, 0));
    // Of 40 servers gold takes 20 and bronze, by its promise, 10; a tenth works off the queue; silver wants 40 and finds 6.
    let full = Load { servers: 40, ..busy(100) };
    for ms in 0..4_000u64 {
        let mut offer = |class| _ = police.offer(class, MS(100), &full, MS(ms), &mut rng);
        if ms % 5 == 0 {
            offer(GOLD);
        }
        if ms % 5 < 2 {
            offer(SILVER);
        }
        offer(BRONZE);
        police.tick(&scene(full, 0.9), MS(ms + 1));
    }
    let shares = [0, 1, 2].map(|rank| police.threshold.share(rank));
    assert_eq!((shares[0], shares[2]), (1.0, 0.0));
    assert!((shares[1] - 0.15).abs() < 0.03, "{shares:?}");
}

#[test]
fn a_ladder_owes_less_at_higher_rates_and_does_not_flicker_at_the_edge() {
    let ladder = Ladder::new(vec![(1_000.0, MS(200))], MS(500)).unwrap();
    let police = Police::new(&[class(1, 1.0, 0.0)], Some(ladder), Choice::Auto, Nanos::ZERO);
    assert_eq!(police.terms(0).target, MS(200));
    let mut rng = seeded(1, 0);
    let mut owed_after = |per_s: u64, from_ms: u64| {
        for ms in from_ms..from_ms + 5_000 {
            let n = per_s * (ms + 1) / 1_000 - per_s * ms / 1_000;
            (0..n).for_each(|_| _ = police.offer(ClassId(0), MS(1), &busy(10), MS(ms), &mut rng));
            police.tick(&scene(busy(10), 0.1), MS(ms + 1));
        }
        police.terms(0).target
    };
    let owed = [(1_050, 0), (950, 5_000), (500, 10_000)].map(|(per_s, from_ms)| owed_after(per_s, from_ms));
    assert_eq!(owed, [MS(500), MS(500), MS(200)]);
}

#[test]
fn a_busy_sentry_changes_to_the_threshold() {
    let police = police(Choice::Auto);
    let policer_after = |busy_share, ms| {
        police.tick(&scene(busy(10), busy_share), MS(ms));
        police.policer()
    };
    assert_eq!((policer_after(0.7, 600), policer_after(0.9, 1_200)), (Policer::Batch, Policer::Threshold));
}
