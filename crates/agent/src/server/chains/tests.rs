//! Chains as operators know them.

use super::*;
use crate::postgres::modes;

const TABLE: Object = Object::Relation(1, 100);

struct Locks(Vec<Lock>);

impl Locks {
    fn add(mut self, tag: &str, object: Object, pid: Pid, mode: &str, since: Option<i64>) -> Locks {
        let granted = since.is_none();
        let (tag, mode) = (tag.to_owned(), modes::mode(mode));
        self.0.push(Lock { tag, object, pid, mode, granted, since: since.map(Stamp) });
        self
    }

    fn table(self, pid: Pid, mode: &str, since: Option<i64>) -> Locks {
        self.add("t", TABLE, pid, mode, since)
    }

    fn blame(&self) -> Vec<(Pid, Pid, bool, Vec<Pid>)> {
        let blames = blame(&self.0, None, |pid| Some(Stamp(pid)));
        blames.into_iter().map(|b| (b.victim, b.culprit, b.queues.is_some(), b.chain)).collect()
    }
}

#[test]
fn an_alter_table_behind_a_long_select_is_to_blame_for_those_behind_it() {
    let locks = Locks(Vec::new())
        .table(1, "AccessShareLock", None)
        .table(2, "AccessExclusiveLock", Some(10))
        .table(3, "AccessShareLock", Some(20))
        .table(4, "RowExclusiveLock", Some(30));
    // The queue holds up 3 and 4; the ALTER itself waits for the SELECT.
    assert_eq!(
        locks.blame(),
        [(2, 1, false, vec![2, 1]), (3, 2, true, vec![3, 2, 1]), (4, 2, true, vec![4, 2, 1])]
    );
}

#[test]
fn what_is_replayed_on_a_standby_is_not_to_blame_for_those_behind_it() {
    // 2 replays an ALTER TABLE of the primary.
    let locks = Locks(Vec::new())
        .table(1, "AccessShareLock", None)
        .table(2, "AccessExclusiveLock", Some(10))
        .table(3, "AccessShareLock", Some(20));
    let blames = blame(&locks.0, Some(2), |_| None);
    assert!(blames.iter().all(|b| b.culprit == 1 && b.object == TABLE && b.queues.is_none()), "{blames:?}");
    assert_eq!(blames[1].chain, [3, 2, 1]);
}

#[test]
fn a_second_alter_does_not_take_the_blame_from_the_first() {
    let locks = Locks(Vec::new())
        .table(1, "AccessShareLock", None)
        .table(2, "AccessExclusiveLock", Some(10))
        .table(3, "AccessExclusiveLock", Some(15))
        .table(4, "AccessShareLock", Some(20));
    assert_eq!(locks.blame()[2], (4, 2, true, vec![4, 2, 1]));
}

#[test]
fn rows_are_followed_to_the_transaction_that_has_them() {
    // 1 has updated the row; 2 waits for 1 to end and has the place at the row, 3 and 4 queue for that place.
    let rows = Object::Rows(1, 100);
    let locks = Locks(Vec::new())
        .add("x1", Object::Transaction, 1, "ExclusiveLock", None)
        .add("x1", Object::Transaction, 2, "ShareLock", Some(10))
        .add("r", rows, 2, "ExclusiveLock", None)
        .add("r", rows, 3, "ExclusiveLock", Some(20))
        .add("r", rows, 4, "ExclusiveLock", Some(30));
    let blames = blame(&locks.0, None, |_| None);
    assert!(blames.iter().all(|b| b.culprit == 1 && b.object == rows && b.queues.is_none()), "{blames:?}");
    assert_eq!(blames.iter().map(|b| b.victim).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(blames[2].chain, [4, 2, 1]);
}

#[test]
fn who_waits_itself_is_no_culprit() {
    // 3 waits for a row of 2, which waits for a table of 1.
    let locks = Locks(Vec::new())
        .table(1, "AccessExclusiveLock", None)
        .table(2, "RowExclusiveLock", Some(10))
        .add("x2", Object::Transaction, 2, "ExclusiveLock", None)
        .add("x2", Object::Transaction, 3, "ShareLock", Some(20));
    assert_eq!(locks.blame(), [(2, 1, false, vec![2, 1]), (3, 1, false, vec![3, 2, 1])]);
}

#[test]
fn of_those_that_share_it_the_oldest_is_followed() {
    let locks = Locks(Vec::new()).table(7, "AccessShareLock", None).table(5, "AccessShareLock", None).table(
        9,
        "AccessExclusiveLock",
        Some(10),
    );
    assert_eq!(locks.blame(), [(9, 5, false, vec![9, 5])]);
}

#[test]
fn a_circle_is_left_to_the_database() {
    let locks = Locks(Vec::new())
        .add("a", Object::Transaction, 1, "ExclusiveLock", None)
        .add("a", Object::Transaction, 2, "ShareLock", Some(10))
        .add("b", Object::Transaction, 2, "ExclusiveLock", None)
        .add("b", Object::Transaction, 1, "ShareLock", Some(20));
    assert_eq!(locks.blame(), []);
}

#[test]
fn who_has_just_got_it_waits_for_nobody() {
    assert_eq!(Locks(Vec::new()).table(1, "AccessShareLock", Some(10)).blame(), []);
    // Modes that do not conflict do not count, granted or not.
    let locks = Locks(Vec::new()).table(1, "AccessShareLock", None).table(2, "RowExclusiveLock", Some(10));
    assert_eq!(locks.blame(), []);
}

proptest::proptest! {
    /// Whatever the table holds, nobody waits for itself, chains end, and a culprit that does not queue does not wait.
    #[test]
    fn whatever_the_table_holds_it_is_told_apart(
        rows in proptest::collection::vec((0u8..4, 1i64..12, 0usize..8, proptest::option::of(0i64..50)), 0..60)
    ) {
        const MODES: [&str; 8] = ["AccessShareLock", "RowShareLock", "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock",
            "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"];
        let mut waiting = HashSet::new();
        let mut locks = Locks(Vec::new());
        for (tag, pid, mode, since) in rows {
            // A process waits for one thing at a time.
            if since.is_none() || waiting.insert(pid) {
                locks = locks.add(&tag.to_string(), TABLE, pid, MODES[mode], since);
            }
        }
        for b in blame(&locks.0, None, |_| None) {
            assert_ne!(b.victim, b.culprit);
            assert_eq!(b.chain[0], b.victim);
            assert!(b.queues.is_some() || !waiting.contains(&b.culprit));
            assert_eq!(waiting.contains(&b.culprit), b.queues.is_some());
            assert!(!waiting.contains(b.chain.last().unwrap()));
        }
    }
}
