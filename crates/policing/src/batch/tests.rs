use super::*;
use proptest::prelude::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn load(queue_ms: u64, in_service: f64, servers: u32) -> Load {
    Load { queue_delay: MS(queue_ms), in_service, servers, idle: false }
}

fn at_once(target_ms: u64) -> impl Fn(usize) -> Terms {
    move |_| Terms { target: MS(target_ms), delay: Nanos::ZERO, above: Nanos::ZERO, surplus: Nanos::MAX }
}

proptest! {
    /// The test of Eq. 4, in whole numbers, one request after the other.
    #[test]
    fn room_is_the_most_that_eq_4_lets_in(
        queue_ms in 0u64..500, in_service in 0u32..20, servers in 1u32..40, size_us in 1u64..400_000,
        target_ms in 1u64..2_000, delay_ms in 0u64..100, admitted in 0u64..200,
    ) {
        let load = load(queue_ms, f64::from(in_service), servers);
        let terms = Terms { target: MS(target_ms), delay: MS(delay_ms), above: Nanos::ZERO, surplus: Nanos::MAX };
        let fits = |k: u64| {
            let each = u64::from(in_service) + (admitted + k).div_ceil(u64::from(servers));
            queue_ms * 1_000 + each * size_us <= (target_ms * 1_000).saturating_sub(delay_ms * 1_000)
        };
        let room = load.room(Nanos::from_micros(size_us), terms, admitted);
        prop_assert!(room == 0 || fits(room), "{room} do not fit");
        prop_assert!(room > 1_000_000 || !fits(room + 1), "more than {room} fit");
    }

    /// Against a checker that sorts: nobody is let in while a more important or, in its class, a smaller one is sent away, and
    /// everybody hears exactly once.
    #[test]
    fn important_ones_first_then_small_ones_and_nobody_is_forgotten(
        requests in prop::collection::vec((0usize..4, 1u64..300), 0..200),
        servers in 1u32..30,
        target_ms in 1u64..2_000,
    ) {
        let mut batch = Batch::new(4, 1_000);
        for (i, &(rank, size_ms)) in requests.iter().enumerate() {
            prop_assert!(batch.push(rank, MS(size_ms), Nanos::ZERO, Nanos::ZERO, i).is_none());
        }
        let mut answers = vec![None; requests.len()];
        batch.process(Nanos::ZERO, &load(0, 0.0, servers), at_once(target_ms), |i, rank, answer| {
            assert_eq!(rank, requests[i].0);
            assert!(answers[i].replace(answer).is_none(), "{i} heard twice");
            true
        });
        prop_assert_eq!(batch.waiting(), 0);
        prop_assert_eq!(batch.due(), Nanos::MAX);
        let place = |&i: &usize| (requests[i].0, bucket_of(MS(requests[i].1)), i);
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..requests.len()).partition(|&i| answers[i].unwrap().is_ok());
        // Who is too big for an empty pool is sent away whatever there is room for.
        let could = |&i: &usize| middle_of(bucket_of(MS(requests[i].1))) <= MS(target_ms);
        let worst_in = inside.iter().map(place).max();
        let best_out = outside.iter().filter(|i| could(i)).map(place).min();
        let in_order = worst_in.is_none() || best_out.is_none() || worst_in < best_out;
        prop_assert!(in_order, "{:?} {:?}", worst_in, best_out);
    }
}

#[test]
fn a_class_waits_for_its_instant_unless_a_more_important_one_does_not_fit() {
    let mut batch = Batch::new(3, 10);
    let terms = |rank: usize| Terms {
        target: MS(100),
        delay: MS([0, 20, 40][rank]),
        above: Nanos::ZERO,
        surplus: Nanos::MAX,
    };
    let push = |batch: &mut Batch<u32>, rank, at_ms, id| {
        assert_eq!(batch.push(rank, MS(10), terms(rank).delay, MS(at_ms), id), None);
    };
    let process = |batch: &mut Batch<u32>, at_ms, load: Load| {
        let mut heard = Vec::new();
        batch.process(MS(at_ms), &load, terms, |id, _, answer| {
            heard.push((id, answer.is_ok()));
            true
        });
        heard
    };
    push(&mut batch, 2, 0, 1);
    push(&mut batch, 1, 5, 2);
    assert_eq!(batch.due(), MS(25));
    assert_eq!(process(&mut batch, 24, load(0, 0.0, 4)), []);
    assert_eq!(process(&mut batch, 25, load(0, 0.0, 4)), [(2, true)]);
    assert_eq!(batch.due(), MS(40));
    push(&mut batch, 0, 30, 3);
    assert_eq!(
        process(&mut batch, 30, load(95, 0.0, 4)),
        [(3, false), (1, false)],
        "untested, and before its time"
    );
    assert_eq!(batch.due(), Nanos::MAX);
}

#[test]
fn who_is_more_important_than_those_that_are_due_goes_before_them() {
    let mut batch = Batch::new(2, 10);
    let terms = |rank: usize| Terms {
        target: MS(100),
        delay: MS([20, 60][rank]),
        above: Nanos::ZERO,
        surplus: Nanos::MAX,
    };
    assert_eq!(batch.push(1, MS(30), MS(60), MS(0), 1), None);
    assert_eq!(batch.push(0, MS(30), MS(20), MS(50), 2), None);
    let mut heard = Vec::new();
    batch.process(MS(60), &load(0, 0.0, 1), terms, |id, _, answer| {
        heard.push((id, answer.is_ok()));
        true
    });
    assert_eq!(heard, [(2, true), (1, false)], "room for one within 40 ms");
}

#[test]
fn nobody_waits_for_its_instant_while_a_server_has_nothing_to_do() {
    let mut batch = Batch::new(2, 10);
    assert_eq!(batch.push(1, MS(30), MS(100), MS(0), 1), None);
    let idle = Load { idle: true, ..load(0, 0.0, 4) };
    let mut heard = 0;
    batch.process(MS(1), &idle, at_once(100), |_, _, answer| {
        heard += usize::from(answer.is_ok());
        true
    });
    assert_eq!(heard, 1);
}

#[test]
fn one_that_is_too_big_for_an_empty_pool_keeps_nobody_else_out() {
    let mut batch = Batch::new(2, 10);
    assert_eq!(batch.push(0, MS(600), MS(0), MS(0), 1), None);
    assert_eq!(batch.push(1, MS(1), MS(0), MS(0), 2), None);
    let mut heard = Vec::new();
    batch.process(MS(0), &load(10, 0.0, 4), at_once(500), |id, _, answer| {
        heard.push((id, answer.is_ok()));
        true
    });
    assert_eq!(heard, [(2, true), (1, false)], "who is let in hears first");
}

#[test]
fn who_has_left_takes_no_room() {
    let mut batch = Batch::new(1, 10);
    (0..4).for_each(|id| assert_eq!(batch.push(0, MS(10), Nanos::ZERO, Nanos::ZERO, id), None));
    let mut heard = Vec::new();
    batch.process(Nanos::ZERO, &load(0, 0.0, 1), at_once(22), |id, _, answer| {
        heard.push((id, answer.is_ok()));
        id != 0
    });
    assert_eq!(heard, [(0, true), (1, true), (2, true), (3, false)]);
}

#[test]
fn of_more_than_may_wait_the_least_important_and_biggest_come_back() {
    let mut batch = Batch::new(2, 2);
    let mut push = |rank, ms, id| batch.push(rank, MS(ms), Nanos::ZERO, Nanos::ZERO, id);
    assert_eq!((push(1, 1, 1), push(1, 9, 2)), (None, None));
    assert_eq!((push(0, 5, 3), push(0, 5, 4), push(0, 9, 5)), (Some((1, 2)), Some((1, 1)), Some((0, 5))));
    assert_eq!(batch.waiting(), 2);
}

#[test]
fn a_refusal_says_what_was_expected_of_the_first_that_did_not_fit() {
    let mut batch = Batch::new(2, 10);
    (0..2).for_each(|rank| assert_eq!(batch.push(rank, MS(100), Nanos::ZERO, Nanos::ZERO, rank), None));
    let mut misfits = Vec::new();
    let busy = load(30, 1.0, 2);
    batch.process(Nanos::ZERO, &busy, at_once(200), |_, _, answer| {
        misfits.push(answer.unwrap_err());
        true
    });
    let size = middle_of(bucket_of(MS(100)));
    let misfit = Misfit { estimate: MS(30) + Nanos(size.0 * 2), objective: MS(200) };
    assert_eq!(misfits, [misfit, misfit]);
}
