//! When statements and transactions of a session began: pure.
//!
//! The server says for how long a session has been doing what it does, in microseconds, but counted from when it is asked; and of a transaction
//! when it began, but to the second. So what was computed at the first look at a statement stays, and a transaction counts as having begun
//! as late as it can have: a young one must not pass for an old one.

use std::collections::{HashMap, HashSet};

use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

use super::poll::{Row, Transaction};

/// Sessions that are remembered at most, between two looks at all of them.
const MOST: usize = 10_000;
/// A second of the server's.
const SECOND: i64 = 1_000_000;

/// What is known of a session.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    query_id: u64,
    active: bool,
    query: Option<Stamp>,
    changed: Stamp,
    /// And when it began, at the latest.
    transaction: Option<(Transaction, Stamp)>,
    older: bool,
}

impl Life {
    /// The number of its statement, or its last one.
    pub fn query_id(&self) -> u64 {
        self.query_id
    }

    /// Whether it runs a statement.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Its transaction.
    pub fn transaction(&self) -> Option<Transaction> {
        self.transaction.map(|(transaction, _)| transaction)
    }

    /// When its statement began, or its last one, if that was seen.
    pub fn query(&self) -> Option<Stamp> {
        self.query
    }

    /// When it last went from running to idle or back.
    pub fn changed(&self) -> Stamp {
        self.changed
    }

    /// When its transaction began, at the latest.
    pub fn began(&self) -> Option<Stamp> {
        self.transaction.map(|(_, began)| began)
    }

    /// Whether its transaction began before its statement did, and so goes on when that is cancelled.
    pub fn is_older_than_its_statement(&self) -> bool {
        self.older
    }
}

/// The sessions of a server.
#[derive(Debug, Default)]
pub struct Lives(HashMap<Pid, Life>);

impl Lives {
    /// Takes in what a look at `at` shows of a session.
    pub fn look(&mut self, row: &Row, at: Stamp, transaction: Option<&Transaction>) -> Life {
        let since = Stamp(at.0.saturating_sub(row.since_us));
        let known = self.0.get(&row.id).copied();
        let (query, changed) = match known {
            Some(known) if known.query_id == row.query && known.active == row.active => {
                (known.query, known.changed)
            }
            // It has ended since.
            Some(known) if known.query_id == row.query && known.active => (known.query, since),
            _ => (row.active.then_some(since), since),
        };
        let mut life =
            Life { query_id: row.query, active: row.active, query, changed, transaction: None, older: false };
        if let Some(now) = transaction {
            let before = known.and_then(|known| known.transaction).filter(|(before, _)| before.is(now));
            let latest = Stamp(now.began.0.saturating_add(SECOND)).min(changed);
            life.transaction = Some((*now, before.map_or(latest, |(_, latest)| latest)));
            life.older = now.began.0.saturating_add(SECOND) <= changed.0
                || before.is_some() && known.is_some_and(|known| known.query_id != row.query || known.older);
        }
        self.0.insert(row.id, life);
        life
    }

    /// Forgets those that are not among `rows`, which are all where `full`. Otherwise sessions that do nothing stay, unless they are too many.
    pub fn keep(&mut self, rows: &[Row], full: bool) {
        if full || self.0.len() > MOST {
            let there: HashSet<Pid> = rows.iter().map(|row| row.id).collect();
            self.0.retain(|id, _| there.contains(id));
        }
    }

    /// A session.
    pub fn of(&self, id: Pid) -> Option<Life> {
        self.0.get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(query: u64, active: bool, since_us: i64) -> Row {
        Row { id: 1, active, since_us, query, ..Row::default() }
    }

    #[test]
    fn a_statement_began_when_it_was_first_seen_to_have_begun() {
        let mut lives = Lives::default();
        let at = |ms: i64| Stamp(1_000 * ms);
        let first = lives.look(&row(7, true, 20_000), at(1_000), None);
        assert_eq!(first.query(), Some(at(980)));
        // Told a little differently at the next look.
        let again = lives.look(&row(7, true, 70_003), at(1_050), None);
        assert_eq!((again.query(), again.changed()), (Some(at(980)), at(980)));
        let ended = lives.look(&row(7, false, 10_000), at(1_100), None);
        assert_eq!((ended.query(), ended.changed()), (Some(at(980)), at(1_090)));
        // One came and went unseen: nobody knows for how long it ran.
        let unseen = lives.look(&row(9, false, 5_000), at(1_150), None);
        assert_eq!((unseen.query(), unseen.changed()), (None, at(1_145)));
    }

    #[test]
    fn a_transaction_counts_as_young_as_it_can_be() {
        let mut lives = Lives::default();
        let second = Stamp(5 * SECOND);
        let transaction = |began| Transaction { id: 3, began, writes: false };
        // It began within the fifth second, and the statement at 5.9 s, whose first it may be.
        let first = lives.look(&row(7, true, 100_000), Stamp(6 * SECOND), Some(&transaction(second)));
        assert_eq!((first.began(), first.is_older_than_its_statement()), (Some(Stamp(5_900_000)), false));
        // Another statement of it: cancelling that one leaves it as it is.
        let second_one = lives.look(&row(8, true, 0), Stamp(7 * SECOND), Some(&transaction(second)));
        assert_eq!(
            (second_one.began(), second_one.is_older_than_its_statement()),
            (Some(Stamp(5_900_000)), true)
        );
        // One that is seen late is known to be older by its second.
        let mut lives = Lives::default();
        let late = lives.look(&row(8, true, 0), Stamp(9 * SECOND), Some(&transaction(second)));
        assert_eq!((late.began(), late.is_older_than_its_statement()), (Some(Stamp(6 * SECOND)), true));
        assert_eq!(lives.of(1).unwrap().transaction().map(|transaction| transaction.id), Some(3));
        lives.keep(&[], true);
        assert!(lives.of(1).is_none());
    }

    #[test]
    fn transactions_without_a_number_are_told_apart_by_when_they_began() {
        let mut lives = Lives::default();
        let mut seen = |query, at: i64, id, began: i64| {
            let transaction = Transaction { id, began: Stamp(began * SECOND), writes: false };
            lives.look(&row(query, true, 0), Stamp(at * SECOND), Some(&transaction)).began()
        };
        let first = seen(7, 5, 0, 5);
        assert_eq!(seen(8, 9, 0, 5), first, "it goes on");
        assert_eq!(seen(9, 10, 4, 5), first, "and has locked something");
        let second = seen(10, 12, 0, 12);
        assert!(second > first);
        assert_eq!(seen(11, 20, 0, 12), second);
    }
}
