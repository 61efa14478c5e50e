//! Who keeps InnoDB from purging what was deleted, and whether that costs anything: pure.
//!
//! A deleted entry of an index stays until it is purged, and nothing is that the oldest snapshot may still see; whoever reads there goes past all
//! of them. For how long the server does not say. But it counts the pages that are looked at and the rows that are found: a row is a few
//! pages away, and one behind thousands of deleted entries thousands.

use std::collections::HashMap;

use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

use super::poll::Transaction;

/// Pages that a row takes, however deep its indexes are and however many of them it changes.
const PAGES_A_ROW: u64 = 32;
/// Less says nothing of what it is like.
const PAGES: u64 = 1_000;
/// Transactions that may wait to be purged at any time.
const BEHIND: u64 = 100;
const SECOND: i64 = 1_000_000;

/// What the server has counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Pages that were looked at.
    pub pages: u64,
    /// Rows that were found, tried or changed.
    pub rows: u64,
    /// Transactions that are not purged yet.
    pub history: u64,
}

/// Remembers what was counted.
#[derive(Debug, Default)]
pub struct Undo {
    last: Option<Counts>,
    /// Of the last few looks.
    pages: u64,
    rows: u64,
    since: Option<Stamp>,
}

impl Undo {
    /// Takes in a look: since when statements have gone past what is not purged, if they do.
    pub fn look(&mut self, at: Stamp, now: Counts) -> Option<Stamp> {
        let last = self.last.replace(now).unwrap_or(now);
        self.pages = self.pages / 2 + now.pages.saturating_sub(last.pages);
        self.rows = self.rows / 2 + now.rows.saturating_sub(last.rows);
        let far = self.pages >= PAGES && self.pages > PAGES_A_ROW.saturating_mul(self.rows);
        self.since = (far && now.history >= BEHIND).then(|| self.since.unwrap_or(at));
        self.since
    }
}

/// Of those in a transaction, by connection, who keeps the most from being purged: the oldest, if it was there before anybody suffered.
/// Transactions are told to the second in which they began; one that runs a statement may itself be one that suffers, so it has to be older than
/// that second.
pub fn holder(
    since: Stamp,
    transactions: &HashMap<Pid, Transaction>,
    runs: impl Fn(Pid) -> bool,
) -> Option<Pid> {
    let (&oldest, transaction) = transactions.iter().min_by_key(|&(&id, it)| (it.began, id))?;
    let latest = transaction.began.0.saturating_add(if runs(oldest) { SECOND } else { 0 });
    (latest <= since.0).then_some(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pages: u64, rows: u64, history: u64) -> Counts {
        Counts { pages, rows, history }
    }

    #[test]
    fn who_looks_at_many_pages_for_a_row_goes_past_what_is_deleted() {
        let mut undo = Undo::default();
        assert_eq!(
            undo.look(Stamp(0), counts(9_000_000, 5, 2_000)),
            None,
            "what was before counts for nothing"
        );
        // A scan: many pages, and many rows on each of them.
        assert_eq!(undo.look(Stamp(100), counts(9_050_000, 4_000_005, 2_000)), None);
        let mut undo = Undo::default();
        undo.look(Stamp(0), counts(0, 0, 2_000));
        assert_eq!(undo.look(Stamp(100), counts(900, 1, 2_000)), None, "too few to say anything");
        assert_eq!(undo.look(Stamp(200), counts(90_000, 100, 2_000)), Some(Stamp(200)));
        assert_eq!(undo.look(Stamp(300), counts(180_000, 200, 2_000)), Some(Stamp(200)), "since then");
        assert_eq!(undo.look(Stamp(400), counts(270_000, 300, 20)), None, "all is purged");
    }

    #[test]
    fn it_is_the_oldest_and_never_one_that_suffers() {
        let transaction = |s: i64| Transaction { id: 1, began: Stamp(s * SECOND), writes: true };
        let transactions = HashMap::from([(7, transaction(5)), (8, transaction(6)), (9, transaction(9))]);
        let of = |since: i64, runs: bool| holder(Stamp(since), &transactions, |_| runs);
        assert_eq!(of(5_500_000, false), Some(7));
        assert_eq!(of(5_500_000, true), None, "it may have come after others were late");
        assert_eq!(of(6_000_000, true), Some(7));
        assert_eq!(of(4_900_000, false), None);
        assert_eq!(holder(Stamp(5), &HashMap::new(), |_| false), None);
    }
}
