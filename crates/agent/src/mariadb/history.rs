//! Whether reading has become dear because old versions of rows are not purged: pure.
//!
//! As long as a transaction may still need them, whoever reads goes past all versions that were written since it began, page by page. How many
//! pages a statement needs is usual of a server; and one that is idle reads none of them itself, so that more of them are not its own.

use super::poll::Status;

/// Fewer undo logs than this burden nobody.
const LONG: u64 = 100;
/// Pages that a statement needs, as a multiple of the usual, from which on it is a burden: as with all that is held.
const DEAR: f64 = 8.0;
/// Looks over which what is usual is averaged.
const LOOKS: f64 = 64.0;

/// What statements need.
#[derive(Debug, Default)]
pub struct History {
    /// Statements and pages that were counted at the last look.
    last: Option<(u64, u64)>,
    /// Pages a statement.
    usual: Option<f64>,
}

impl History {
    /// Takes in a look: whether there is a long history, and statements need many more pages than they do without.
    pub fn look(&mut self, status: &Status) -> bool {
        let Some((asked, pages)) = self.last.replace((status.questions, status.pages)) else { return false };
        let statements = status.questions.saturating_sub(asked).max(1) as f64;
        let pages = status.pages.saturating_sub(pages) as f64 / statements;
        if status.history >= LONG {
            return self.usual.is_some_and(|usual| pages > DEAR * usual.max(1.0));
        }
        let usual = self.usual.get_or_insert(pages);
        *usual += (pages - *usual) / LOOKS;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::stamp::Stamp;

    fn status(questions: u64, pages: u64, history: u64) -> Status {
        Status { at: Stamp(0), questions, row_waits: 0, pages, history }
    }

    #[test]
    fn it_is_a_burden_where_statements_need_more_pages_than_they_did() {
        let mut history = History::default();
        assert!((1..100).all(|look| !history.look(&status(40 * look, 400 * look, 9))));
        // A long one that nobody has to read is none, nor is a scan while there is none.
        assert!(!history.look(&status(4_000, 40_000, 5_000)));
        assert!(history.look(&status(4_040, 60_000, 5_000)));
        assert!(!history.look(&status(4_080, 80_000, 9)));
        // Nobody gets anything done any more.
        assert!(history.look(&status(4_080, 90_000, 5_000)));
        // One that was there from the beginning tells nothing.
        let mut unknown = History::default();
        assert!((1..100).all(|look| !unknown.look(&status(40 * look, 40_000 * look, 5_000))));
    }
}
