//! How many sentries (Cataclysm, section 4.2): one more when one of them stays busy, one fewer when the others could do its work
//! with ease. Which one goes is the host's business.

use plimsoll_core::Nanos;

/// The share of its CPU above which a sentry is busy: the paper's (its section 6.4).
const BUSY: f64 = 0.8;
/// How busy each may be after one has gone. Half of what calls for one more, so that what is returned is not asked for again.
const EASY: f64 = 0.4;

/// What to do about the number of sentries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Start one more.
    Add,
    /// Return one.
    Return,
}

/// Watches how busy the sentries are.
#[derive(Debug)]
pub struct SentryWatch {
    busy_for: Nanos,
    busy_since: Option<Nanos>,
    easy_since: Option<Nanos>,
}

impl SentryWatch {
    /// Asks for one more when a sentry has been busy for so long (the paper: 30 s, its section 6.4), and for one fewer when the
    /// others would have been at ease for twice as long.
    pub fn new(busy_for: Nanos) -> SentryWatch {
        SentryWatch { busy_for, busy_since: None, easy_since: None }
    }

    /// What to do now that each sentry uses so much of its CPU, in 0..1. After an answer it begins anew.
    pub fn observe(&mut self, at: Nanos, busy: &[f64]) -> Option<Change> {
        let others = busy.len().saturating_sub(1);
        let is_busy = busy.iter().any(|&share| share > BUSY);
        let is_easy = others > 0 && busy.iter().sum::<f64>() / (others as f64) < EASY;
        let lasted = |since: &mut Option<Nanos>, holds: bool, long_enough: Nanos| {
            if !holds {
                *since = None;
            }
            holds && at.since(*since.get_or_insert(at)) >= long_enough
        };
        let add = lasted(&mut self.busy_since, is_busy, self.busy_for);
        let give_back = lasted(&mut self.easy_since, is_easy, Nanos(self.busy_for.0.saturating_mul(2)));
        let change = if add {
            Some(Change::Add)
        } else if give_back {
            Some(Change::Return)
        } else {
            None
        };
        if change.is_some() {
            *self = SentryWatch::new(self.busy_for);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said in each of so many seconds, at this use of each.
    fn changes(watch: &mut SentryWatch, from_s: u64, to_s: u64, busy: &[f64]) -> Vec<(u64, Change)> {
        (from_s..to_s).filter_map(|s| Some((s, watch.observe(Nanos::from_secs(s), busy)?))).collect()
    }

    #[test]
    fn one_more_after_half_a_minute_and_not_for_a_blip() {
        let mut watch = SentryWatch::new(Nanos::from_secs(30));
        assert_eq!(changes(&mut watch, 0, 29, &[0.9]), []);
        assert_eq!(changes(&mut watch, 29, 30, &[0.5]), []);
        assert_eq!(changes(&mut watch, 30, 61, &[0.9]), [(60, Change::Add)]);
        assert_eq!(changes(&mut watch, 61, 91, &[0.9, 0.1]), []);
        assert_eq!(changes(&mut watch, 91, 92, &[0.9, 0.1]), [(91, Change::Add)]);
    }

    #[test]
    fn one_fewer_when_the_others_would_be_at_ease_for_a_minute() {
        let mut watch = SentryWatch::new(Nanos::from_secs(30));
        assert_eq!(changes(&mut watch, 0, 300, &[0.45, 0.4]), [], "one alone would have 0.85");
        assert_eq!(changes(&mut watch, 300, 361, &[0.2, 0.15]), [(360, Change::Return)]);
        assert_eq!(changes(&mut watch, 361, 900, &[0.35]), [], "the last one stays");
    }
}
