//! The parent's decisions, with a time that is made up.

use super::*;

const SECOND: Nanos = Nanos::from_secs(1);
const DRAIN: Nanos = Nanos::from_secs(30);

/// A parent whose worker 1 in seat 0 serves since the origin.
fn serving() -> Lifecycle {
    let mut parent = Lifecycle::new(DRAIN);
    assert_eq!(parent.start(), [Order::Spawn { seat: 0 }]);
    parent.spawned(1, 0, Nanos::ZERO);
    assert_eq!(parent.ready(1, Nanos::ZERO), []);
    parent
}

#[test]
fn a_dead_worker_is_replaced_at_once() {
    let mut parent = serving();
    assert_eq!(parent.exited(1, false, SECOND), [Order::Spawn { seat: 0 }]);
}

#[test]
fn instant_deaths_are_restarted_ever_more_slowly_and_recover() {
    let mut parent = serving();
    let (mut now, mut pauses) = (SECOND, Vec::new());
    assert_eq!(parent.exited(1, false, now), [Order::Spawn { seat: 0 }]);
    for pid in 2..14 {
        parent.spawned(pid, 0, now);
        let died = now;
        if parent.exited(pid, false, now).is_empty() {
            now = parent.next_tick().unwrap();
            assert_eq!(parent.tick(now), [Order::Spawn { seat: 0 }]);
        }
        pauses.push(now.since(died).0 / 1_000_000);
    }
    assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    parent.spawned(20, 0, now);
    parent.ready(20, now);
    assert_eq!(
        parent.exited(20, false, now + SECOND),
        [Order::Spawn { seat: 0 }],
        "a good life clears the count"
    );
}

#[test]
fn what_never_worked_is_given_up() {
    let mut parent = Lifecycle::new(DRAIN);
    parent.start();
    for pid in 1..4 {
        parent.spawned(pid, 0, Nanos::ZERO);
        assert_eq!(parent.exited(pid, false, Nanos::ZERO), [Order::Spawn { seat: 0 }]);
    }
    parent.spawned(4, 0, Nanos::ZERO);
    assert_eq!(parent.exited(4, false, Nanos::ZERO), [Order::CloseSockets, Order::Exit { clean: false }]);
}

/// Through the trial and the exec, as far as the start of worker 2.
fn upgrading() -> Lifecycle {
    let mut parent = serving();
    assert_eq!(parent.requested(Request::Upgrade, SECOND), [Order::Trial]);
    parent.trial_started(99, SECOND);
    assert_eq!(parent.exited(99, true, SECOND), [Order::Exec]);
    let mut parent = Lifecycle::resumed(parent.workers().to_vec(), DRAIN, Nanos::ZERO);
    assert_eq!(parent.start(), [Order::Spawn { seat: 1 }]);
    parent.spawned(2, 1, Nanos::ZERO);
    parent
}

#[test]
fn the_old_worker_drains_once_the_new_one_is_ready() {
    let mut parent = upgrading();
    assert_eq!(parent.ready(2, SECOND), [Order::Drain(1)]);
    assert_eq!(parent.exited(1, false, SECOND + SECOND), []);
    assert_eq!(parent.workers().len(), 1);
    assert_eq!(parent.requested(Request::Reload, SECOND), [Order::Reload(2)]);
}

#[test]
fn an_upgrade_that_does_not_start_changes_nothing() {
    let mut parent = upgrading();
    assert_eq!(parent.exited(2, false, SECOND), [], "worker 1 still serves");
    assert_eq!(parent.workers()[0].phase, Phase::Serving);

    let mut parent = upgrading();
    assert_eq!(parent.next_tick(), Some(START_LIMIT), "a worker that hangs is not waited for longer");
    assert_eq!(parent.tick(START_LIMIT), [Order::Kill(2)]);
    assert_eq!(parent.exited(2, false, START_LIMIT), []);

    let mut parent = serving();
    parent.requested(Request::Upgrade, SECOND);
    parent.trial_started(99, SECOND);
    assert_eq!(parent.next_tick(), Some(SECOND + START_LIMIT), "a binary that hangs is ended");
    assert_eq!(parent.tick(SECOND + START_LIMIT), [Order::Kill(99)]);
    assert_eq!((parent.next_tick(), parent.upgrade_obstacle().is_some()), (None, true));
    assert_eq!(parent.exited(99, false, SECOND), []);
    assert_eq!(parent.upgrade_obstacle(), None, "the next one may try again");
}

#[test]
fn a_worker_that_dies_during_its_upgrade_is_replaced_by_the_new_one() {
    let mut parent = upgrading();
    assert_eq!(parent.exited(1, false, SECOND), [], "worker 2 is on its way");
    assert_eq!(parent.exited(2, false, SECOND), [Order::Spawn { seat: 0 }]);
}

#[test]
fn upgrades_do_not_pile_up() {
    let mut parent = serving();
    parent.requested(Request::Upgrade, SECOND);
    parent.trial_started(99, SECOND);
    assert_eq!(parent.requested(Request::Upgrade, SECOND), []);
    let mut parent = upgrading();
    assert_eq!(parent.requested(Request::Upgrade, SECOND), []);
    for pid in 2..10 {
        parent.ready(pid, SECOND);
        let Some(Order::Spawn { seat }) = parent.start().first().copied() else { break };
        parent.spawned(pid + 1, seat, SECOND);
    }
    assert_eq!(parent.workers().len(), SEATS);
    assert_eq!(parent.upgrade_obstacle(), Some("too many workers are still draining"));
}

#[test]
fn stopping_drains_and_a_second_signal_ends_at_once() {
    let mut parent = serving();
    assert_eq!(parent.requested(Request::Stop, SECOND), [Order::CloseSockets, Order::Drain(1)]);
    assert_eq!(parent.requested(Request::Reload, SECOND), []);
    assert_eq!(parent.exited(1, false, SECOND), [Order::Exit { clean: true }]);

    let mut parent = serving();
    parent.requested(Request::Stop, SECOND);
    assert_eq!(parent.requested(Request::Stop, SECOND), [Order::Kill(1), Order::Exit { clean: false }]);
}

#[test]
fn stopping_later_serves_until_then() {
    let mut parent = serving();
    parent.stop_later(SECOND);
    assert_eq!(
        (parent.next_tick(), parent.upgrade_obstacle()),
        (Some(SECOND), Some("the sentry is stopping"))
    );
    assert_eq!(parent.requested(Request::Reload, Nanos::ZERO), []);
    assert_eq!(parent.exited(1, false, Nanos::ZERO), [Order::Spawn { seat: 0 }], "somebody has to accept");
    parent.spawned(2, 0, Nanos::ZERO);
    parent.ready(2, Nanos::ZERO);
    assert_eq!(parent.tick(SECOND), [Order::CloseSockets, Order::Drain(2)]);
    assert_eq!(parent.next_tick(), Some(SECOND + DRAIN));
    assert_eq!(parent.exited(2, true, SECOND), [Order::Exit { clean: true }]);

    let mut parent = serving();
    parent.stop_later(SECOND);
    assert_eq!(parent.requested(Request::Stop, Nanos::ZERO), [Order::Kill(1), Order::Exit { clean: false }]);
}

#[test]
fn a_worker_that_will_not_drain_is_killed() {
    let mut parent = serving();
    parent.requested(Request::Stop, SECOND);
    assert_eq!(parent.next_tick(), Some(SECOND + DRAIN));
    assert_eq!(parent.tick(SECOND + DRAIN), [Order::Kill(1)]);
    assert_eq!(parent.next_tick(), None, "once");
    assert_eq!(parent.exited(1, false, SECOND + DRAIN), [Order::Exit { clean: true }]);
}
