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

fn scene(load: Load, sentry_busy: f64) -> Scene {
    Scene { load, sentry_busy }
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
    police.threshold.set([1e9; BUCKETS], 1.0);
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
    assert_eq!(refusal(answer), "policing; limit=mean; estimate=1.4s; objective=1s");
    let police = self::police(Choice::Always(Policer::Threshold));
    police.threshold.set([10.0], 0.0);
    let answer = police.offer(SILVER, MS(100), &busy(10), Nanos::ZERO, &mut rng);
    assert_eq!(refusal(answer), "policing; limit=fraction; estimate=1.000; objective=0.000");
}

#[test]
fn who_is_crowded_out_is_told_of_the_queue_and_never_of_less_than_is_owed() {
    let police = police(Choice::Auto);
    let told = |queue_ms| match police.processed(Err(police.crowded_out(2, &busy(queue_ms)))) {
        Verdict::Refuse(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(10), "policing; limit=mean; estimate=1s; objective=1s");
    assert_eq!(told(1_500), "policing; limit=mean; estimate=2s; objective=1s");
}

/// Requests of all classes for six seconds, to servers that could do them; behind a long queue one in three of those that wait is let in.
fn delays_after(police: &Police, load: Load, from_ms: u64) -> Vec<Nanos> {
    let load = Load { servers: 1_000, ..load };
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
    let shares = [0, 1, 2].map(|rank| police.threshold.share(kind(rank, MS(100))));
    assert_eq!((shares[0], shares[2]), (1.0, 0.0));
    assert!((shares[1] - 0.15).abs() < 0.03, "{shares:?}");
}

#[test]
fn a_ladder_owes_less_at_higher_rates_and_does_not_flicker_at_the_edge() {
    let ladder = Ladder::new(vec![(1_000.0, MS(200))], MS(500)).unwrap();
    let police = Police::new(&[class(1, 1.0, 0.0)], Some(ladder), Choice::Auto, Nanos::ZERO);
    assert_eq!(police.owed(0), MS(200));
    let mut rng = seeded(1, 0);
    let mut owed_after = |per_s: u64, from_ms: u64| {
        for ms in from_ms..from_ms + 5_000 {
            let n = per_s * (ms + 1) / 1_000 - per_s * ms / 1_000;
            (0..n).for_each(|_| _ = police.offer(ClassId(0), MS(1), &busy(10), MS(ms), &mut rng));
            police.tick(&scene(busy(10), 0.1), MS(ms + 1));
        }
        police.owed(0)
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

#[test]
fn classes_that_are_alike_are_of_one_rank() {
    let (alike, looser) = (class(5, 1.0, 0.0), ClassSpec { target: MS(2_000), ..class(5, 1.0, 0.0) });
    let classes = [alike, class(1, 1.0, 0.0), looser, ClassSpec { promised_per_s: 3.0, ..alike }];
    let police = Police::new(&classes, None, Choice::Auto, Nanos::ZERO);
    assert_eq!(*police.ranks, [1, 0, 2, 1]);
    assert_eq!([0, 1, 2].map(|rank| police.owed(rank)), [MS(1_000), MS(1_000), MS(2_000)]);
}

#[test]
fn the_first_who_finds_no_room_makes_lesser_classes_wait_at_once() {
    let (police, mut rng) = (police(Choice::Auto), seeded(1, 0));
    let mut offer = |class, size, load: &Load| police.offer(class, size, load, MS(1), &mut rng);
    // Who is too big for an empty pool says nothing about room.
    assert!(matches!(offer(SILVER, MS(800), &busy(0)), Answer::Now(Verdict::Refuse(_))));
    assert_eq!(offer(SILVER, MS(100), &busy(0)), Answer::Now(Verdict::Admit(Grant::Estimate)));
    assert!(matches!(offer(SILVER, MS(100), &busy(950)), Answer::Now(Verdict::Refuse(_))));
    assert_eq!(offer(SILVER, MS(100), &busy(0)), Answer::Waits { rank: 1, delay: MS(125) });
    assert_eq!(offer(GOLD, MS(100), &busy(0)), Answer::Now(Verdict::Admit(Grant::Estimate)));
    // Not for longer than it takes to find out that it was nothing.
    (1..12).for_each(|i| _ = police.tick(&scene(busy(0), 0.1), MS(600 * i)));
    assert_eq!(police.terms(1).delay, Nanos::ZERO);
}

#[test]
fn fixed_delays_stay_as_they_are() {
    let delays = [Nanos::ZERO, MS(50)];
    let police = police(Choice::Always(Policer::Batch)).with_fixed_delays(&delays);
    assert_eq!(delays_after(&police, busy(950), 0), [Nanos::ZERO, MS(50), MS(50)]);
    assert_eq!(delays_after(&police, busy(0), 6_000), [Nanos::ZERO, MS(50), MS(50)]);
}

/// The two counters are read one after the other while requests go on: more can have found no room than have asked.
#[test]
fn never_more_than_all_are_taken_to_have_found_no_room() {
    let police = police(Choice::Always(Policer::Batch));
    for tick in 1..6 {
        police.counted.asked.store(2, Relaxed);
        police.counted.misfits.store(3, Relaxed);
        police.tick(&scene(busy(950), 0.1), MS(500 * tick));
        let refused = police.learning.try_lock().unwrap().refused;
        assert!(refused > 0.0 && refused <= 1.0, "{refused}");
    }
}

/// As many classes as a config may have, of which half were promised nothing, and whatever the pool may say of itself.
#[test]
fn numbers_stay_numbers_with_most_classes_and_any_pool() {
    let class = |i: u32| ClassSpec {
        priority: 1 + i % 200,
        revenue: f64::from(i % 7),
        promised_per_s: [0.0, 2.0][i as usize % 2],
        target: [MS(1_000), Nanos::MAX, Nanos::ZERO][i as usize % 3],
    };
    let classes: Vec<ClassSpec> = (0..plimsoll_core::MAX_CLASSES as u32).map(class).collect();
    let loads = [
        busy(300),
        busy(0),
        Load { servers: 0, ..busy(300) },
        Load { servers: u32::MAX, in_service: f64::NAN, ..busy(1) },
        Load { queue_delay: Nanos::MAX, in_service: f64::INFINITY, ..busy(1) },
    ];
    for choice in [Choice::Always(Policer::Batch), Choice::Always(Policer::Threshold), Choice::Auto] {
        let (police, mut rng) = (Police::new(&classes, None, choice, Nanos::ZERO), seeded(1, 0));
        let mut batch = crate::batch::Batch::new(classes.len(), 10_000);
        let (mut offered, mut answered) = (0, 0);
        for i in 0..60u64 {
            let (load, now) = (loads[i as usize % 5], MS(600 * i));
            for class in 0..classes.len() {
                let size = [MS(1), Nanos::ZERO, Nanos::MAX][class % 3];
                offered += 1;
                match police.offer(ClassId(class as u16), size, &load, now, &mut rng) {
                    Answer::Waits { rank, delay } => {
                        assert!(batch.push(rank, size, delay, now, ()).is_none());
                    }
                    Answer::Now(_) => answered += 1,
                }
            }
            while batch.due() <= now {
                batch.process(
                    now,
                    &load,
                    |rank| police.terms(rank),
                    |(), _, outcome| {
                        police.processed(outcome);
                        answered += 1;
                        true
                    },
                );
            }
            police.tick(&scene(load, [0.1, f64::NAN][i as usize % 2]), now);
            let delays: Vec<Nanos> = (0..classes.len()).map(|rank| police.terms(rank).delay).collect();
            assert!(delays.is_sorted() && delays[0] == Nanos::ZERO && delays[255] <= Nanos::from_secs(1));
            let mut shares = (0..classes.len() * BUCKETS).map(|kind| police.threshold.share(kind));
            assert!(shares.all(|share| (0.0..=1.0).contains(&share)));
        }
        assert_eq!(answered + batch.waiting(), offered);
    }
}

/// Many threads offer, one of them ticks, and each has a batch: everybody is answered once.
#[test]
fn threads_that_share_it_answer_everybody() {
    let police = police(Choice::Auto);
    let full = busy(950);
    let each = 20_000u64;
    let answered: u64 = std::thread::scope(|scope| {
        let thread = |id: u64| {
            let (police, full) = (&police, &full);
            move || {
                let (mut rng, mut batch) = (seeded(1, id), crate::batch::Batch::new(3, 1_000));
                let mut answered = 0;
                for i in 0..each {
                    let now = Nanos::from_micros(200 * i);
                    let class = [GOLD, SILVER, BRONZE][i as usize % 3];
                    match police.offer(class, MS(100), full, now, &mut rng) {
                        Answer::Waits { rank, delay } => {
                            answered += u64::from(batch.push(rank, MS(100), delay, now, ()).is_some());
                        }
                        Answer::Now(_) => answered += 1,
                    }
                    let at = if i + 1 < each { now } else { now + Nanos::from_secs(9) };
                    while batch.due() <= at {
                        batch.process(
                            at,
                            full,
                            |rank| police.terms(rank),
                            |(), _, outcome| {
                                police.processed(outcome);
                                answered += 1;
                                true
                            },
                        );
                    }
                    police.tick(&scene(*full, if i % 3 == 0 { 0.9 } else { 0.5 }), now);
                }
                answered
            }
        };
        let threads: Vec<_> = (0..4).map(|id| scope.spawn(thread(id))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(answered, 4 * each);
}

#[test]
fn small_ones_of_lesser_classes_leave_room_for_big_ones_above_them() {
    let police = police(Choice::Always(Policer::Batch)).with_fixed_delays(&[Nanos::ZERO]);
    let mut rng = seeded(1, 0);
    let judged = |queue_ms, ms| police.judge(2, MS(ms), &busy(queue_ms)).is_admit();
    assert!(judged(700, 20), "three quarters of a second are owed, and nobody else was seen");
    police.offer(GOLD, MS(200), &busy(10), MS(1), &mut rng);
    police.tick(&scene(busy(10), 0.1), MS(600));
    assert_eq!([0, 1, 2].map(|rank| police.terms(rank).above), [Nanos::ZERO, MS(200), MS(200)]);
    // With 550 ms waiting gold finds the 200 ms that it needs, and so it does behind whoever is let in here.
    assert!(judged(540, 20) && !judged(560, 20) && judged(540, 150) && !judged(560, 150));
    // A giant is left half of what is owed at most, and is forgotten when no more come.
    police.offer(GOLD, MS(5_000), &busy(10), MS(700), &mut rng);
    police.tick(&scene(busy(10), 0.1), MS(1_200));
    assert_eq!(police.terms(2).above, MS(375));
    (3..200).for_each(|i| _ = police.tick(&scene(busy(10), 0.1), MS(600 * i)));
    assert!(police.terms(2).above < MS(1) && judged(700, 20));
}

#[test]
fn until_something_is_known_nobody_waits() {
    let (police, mut rng) = (police(Choice::Auto), seeded(1, 0));
    let mut offer = |class, load: &Load| police.offer(class, Nanos::ZERO, load, MS(1), &mut rng);
    let refused = |answer| match answer {
        Answer::Now(Verdict::Refuse(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(offer(SILVER, &Load { idle: true, ..busy(0) }), Answer::Now(Verdict::Admit(Grant::Estimate)));
    assert_eq!(refused(offer(GOLD, &busy(0))), "policing; limit=cold-start; estimate=1; objective=0");
    assert_eq!(offer(BRONZE, &busy(0)), Answer::Now(Verdict::Admit(Grant::Promise)));
}

/// Of what a crowd of small and big silver requests asks for, all small ones and some of the big ones fit.
#[test]
fn what_arrives_beyond_what_fits_leaves_room_to_what_comes_before_it() {
    for policer in [Policer::Batch, Policer::Threshold] {
        let police = police(Choice::Always(policer)).with_fixed_delays(&[Nanos::ZERO]);
        let mut rng = seeded(1, 0);
        let mut offer =
            |ms, size, queue_ms| police.offer(SILVER, MS(size), &busy(queue_ms), MS(ms), &mut rng);
        // Four servers: 250 small ones a second keep two and a half busy, 125 big ones twelve and a half.
        for ms in 0..4_000 {
            if ms % 4 == 0 {
                offer(ms, 10, 100);
            }
            if ms % 8 == 0 {
                offer(ms, 100, 100);
            }
            police.tick(&scene(busy(100), 0.1), MS(ms + 1));
        }
        let [small, big] = [10, 100].map(|ms| police.threshold.share(kind(1, MS(ms))));
        assert!(small == 1.0 && (0.07..0.13).contains(&big), "{small} {big}");
        assert!(police.terms(1).surplus > MS(10) && police.terms(1).surplus <= MS(100));
        assert_eq!([0, 2].map(|rank| police.terms(rank).surplus), [Nanos::MAX, Nanos::ZERO]);
        // Three quarters of a second are owed: a small one may find nearly all of it, the others half.
        let judged = |rank, size, queue_ms| police.judge(rank, MS(size), &busy(queue_ms)).is_admit();
        assert!(judged(1, 10, 730) && !judged(1, 10, 745));
        for (rank, size) in [(1, 100), (2, 10)] {
            let limit = 375 - size;
            assert!(judged(rank, size, limit) && !judged(rank, size, limit + 1));
        }
    }
}

/// Requests take a quarter more, or a fifth less, than they are taken to. Only the queue can tell.
#[test]
fn a_threshold_fills_the_servers_though_sizes_are_wrong() {
    for wrong in [1.25, 0.8] {
        let police = police(Choice::Always(Policer::Threshold)).with_fixed_delays(&[Nanos::ZERO]);
        let (mut rng, mut queue_s, mut busy_s) = (seeded(1, 0), 0.0f64, 0.0);
        for tick in 1..=400u64 {
            let load = Load { queue_delay: Nanos::from_secs_f64(queue_s), ..busy(0) };
            // In half a second 80 of 100 ms each: four times what four servers do.
            for _ in 0..80 {
                police.offer(SILVER, MS(100), &load, MS(500 * tick), &mut rng);
            }
            police.tick(&scene(load, 0.9), MS(500 * tick));
            // In seconds of each server.
            let comes_s = 80.0 * 0.1 * wrong * police.threshold.share(kind(1, MS(100))) / 4.0;
            let done_s = (queue_s + comes_s).min(0.5);
            queue_s += comes_s - done_s;
            if tick > 200 {
                busy_s += done_s;
            }
            assert!(queue_s < 0.75, "{queue_s} after {tick} ticks, {wrong}");
        }
        assert!(busy_s > 0.98 * 100.0, "{busy_s} of 100 s busy, {wrong}");
        assert!((0.01..0.2).contains(&queue_s), "{queue_s} in the end, {wrong}");
    }
}

/// There is one queue. Who would bear more of it leaves what those above can bear, while they come and have a use for it.
#[test]
fn a_lesser_class_that_is_owed_less_does_not_fill_the_queue() {
    let of = |priority, target| ClassSpec { target, ..class(priority, 1.0, 0.0) };
    let classes = [of(3, Nanos::MAX), of(2, MS(3_000)), of(1, MS(1_000))];
    let police = Police::new(&classes, None, Choice::Always(Policer::Batch), Nanos::ZERO)
        .with_fixed_delays(&[Nanos::ZERO]);
    let targets = || [0, 1, 2].map(|rank| police.terms(rank).target);
    let aim = |ms: u64| MS(ms * 3 / 4);
    let (loose, none) = (aim(3_000), Nanos((u64::MAX as f64 * AIM) as u64));
    assert_eq!(targets(), [aim(1_000), loose, none], "nobody came");
    let mut rng = seeded(1, 0);
    let mut come = |size: u64, from_ms: u64| {
        for ms in from_ms..from_ms + 1_000 {
            police.offer(ClassId(2), MS(size), &busy(10), MS(ms), &mut rng);
            police.tick(&scene(busy(10), 0.1), MS(ms + 1));
        }
        targets()
    };
    assert_eq!(come(100, 0), [aim(1_000); 3]);
    // Nothing that takes 900 ms is served within 750.
    assert_eq!(come(900, 10_000), [aim(1_000), loose, none]);
    assert_eq!(come(100, 20_000), [aim(1_000); 3]);
    (0..40).for_each(|i| _ = police.tick(&scene(busy(10), 0.1), MS(30_000 + 500 * i)));
    assert_eq!(targets(), [aim(1_000), loose, none], "no more come");
}
