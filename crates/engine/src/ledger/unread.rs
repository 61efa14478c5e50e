//! Requests that have come to a process that stands still, and that it has not read: pure.
//!
//! A JVM that collects garbage begins no task, whoever comes meanwhile, and when it goes on all of them are new. That they are late is known
//! while it stands still: as many have come as usual, one as long after the other. Those that end next are those that have come first.

use plimsoll_core::Nanos;

/// It stands still where that is what it did for at least this part of the time between two looks.
const MOSTLY: f64 = 0.75;
/// Whoever has come is read by so long after it went on.
const READ_BY: Nanos = Nanos::from_millis(500);
/// Over how long the rate of requests is averaged.
const RATE_S: f64 = 2.0;
/// Whoever has come is counted one by one; more than these need not be, to know that requests are late.
const MOST: f64 = 256.0;

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub struct Unread {
    /// Requests that end a second, and so come, on average.
    rate_per_s: f64,
    /// For how long nothing has been added to that, since nothing could end.
    missing_ns: u64,
    /// Since when it stands still, and how many have come since then.
    since: Option<Nanos>,
    since_then: usize,
    /// When it last did.
    stood: Nanos,
    /// The requests that have come while it did and have not ended: a number that no other has, and when it came.
    pub came: Vec<(u64, Nanos)>,
    /// The next number.
    next: u64,
    /// For how long those together had waited that have ended since the last look, in ns.
    pub waited_ns: u64,
}

impl Unread {
    /// Takes in a look: for how long the process stood still since the last one, and how many requests have ended.
    pub fn look(&mut self, now: Nanos, elapsed_ns: u64, stood_ns: u64, ended: u64) {
        self.waited_ns = 0;
        if elapsed_ns > 0 && stood_ns as f64 >= MOSTLY * elapsed_ns as f64 {
            self.missing_ns = self.missing_ns.saturating_add(elapsed_ns);
            let since = *self.since.get_or_insert(now.since(Nanos(stood_ns)));
            self.stood = now;
            let all = (self.rate_per_s * now.since(since).as_secs_f64()).min(MOST) as usize;
            while self.since_then < all && self.came.len() < MOST as usize {
                let after = Nanos::from_secs_f64((self.since_then as f64 + 0.5) / self.rate_per_s);
                self.came.push((self.next, since + after));
                (self.next, self.since_then) = (self.next + 1, self.since_then + 1);
            }
            return;
        }
        let seconds = (elapsed_ns + std::mem::take(&mut self.missing_ns)) as f64 / 1e9;
        if seconds > 0.0 {
            self.rate_per_s += (ended as f64 / seconds - self.rate_per_s) * (1.0 - (-seconds / RATE_S).exp());
        }
        (self.since, self.since_then) = (None, 0);
        let all = if now.since(self.stood) > READ_BY { u64::MAX } else { ended };
        let ended = (self.came.len() as u64).min(all) as usize;
        self.waited_ns = self.came.drain(..ended).map(|(_, at)| now.since(at).0).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 20_000_000;

    /// A hundred requests a second until `look` 500, when it begins to stand still.
    fn stands_still() -> Unread {
        let mut unread = Unread::default();
        for look in 1..=500 {
            unread.look(Nanos(look * LOOK), LOOK, LOOK / 100, 2);
            assert_eq!(unread.came, []);
        }
        unread
    }

    #[test]
    fn as_many_have_come_as_usual_while_it_stands_still() {
        let mut unread = stands_still();
        for look in 501..=550 {
            unread.look(Nanos(look * LOOK), LOOK, LOOK, 0);
        }
        assert!((98..=100).contains(&unread.came.len()), "one second: {unread:?}");
        let from = Nanos(500 * LOOK);
        let at: Vec<Nanos> = unread.came.iter().map(|&(_, at)| at).collect();
        assert!(at.is_sorted() && at[0] > from && at[at.len() - 1] <= Nanos(550 * LOOK), "{at:?}");
        // It goes on; those who came first end first, and it stands still once more, for a moment.
        unread.look(Nanos(551 * LOOK), LOOK, 0, 30);
        assert!((68..=70).contains(&unread.came.len()) && unread.came[0].0 == 30, "{unread:?}");
        assert!((20.0..30.0).contains(&(unread.waited_ns as f64 / 1e9)), "0.7 to 1 s each: {unread:?}");
        unread.look(Nanos(552 * LOOK), LOOK, LOOK, 0);
        assert!(unread.came.len() >= 70 && unread.came.is_sorted(), "{unread:?}");
        unread.look(Nanos(553 * LOOK), LOOK, 0, 100);
        assert_eq!((unread.came.len(), unread.since), (0, None));
        let (rate, next) = (unread.rate_per_s, unread.next);
        (554..=600).for_each(|look| unread.look(Nanos(look * LOOK), LOOK, 0, 2));
        assert!(unread.waited_ns == 0 && (50.0..200.0).contains(&rate) && unread.rate_per_s < 150.0);
        (601..=610).for_each(|look| unread.look(Nanos(look * LOOK), LOOK, LOOK, 0));
        assert_eq!(unread.came[0].0, next, "another number");
    }

    #[test]
    fn short_pauses_and_a_source_that_nobody_asks_are_nothing() {
        let mut unread = stands_still();
        unread.look(Nanos(501 * LOOK), LOOK, LOOK / 2, 1);
        assert_eq!(unread.came, []);
        let mut idle = Unread::default();
        (1..100).for_each(|look| idle.look(Nanos(look * LOOK), LOOK, LOOK, 0));
        idle.look(Nanos(100 * LOOK), 0, 0, 0);
        assert_eq!((idle.came.len(), idle.waited_ns), (0, 0));
    }

    #[test]
    fn whoever_is_not_seen_to_end_has_been_read_all_the_same() {
        let mut unread = stands_still();
        (501..=525).for_each(|look| unread.look(Nanos(look * LOOK), LOOK, LOOK, 0));
        (526..=550).for_each(|look| unread.look(Nanos(look * LOOK), LOOK, 0, 0));
        assert!(!unread.came.is_empty());
        unread.look(Nanos(551 * LOOK), LOOK, 0, 0);
        assert_eq!(unread.came, []);
    }

    #[test]
    fn however_many_come_they_are_bounded() {
        let mut unread = Unread { rate_per_s: 1e6, ..Unread::default() };
        (1..1_000).for_each(|look| unread.look(Nanos(look * LOOK), LOOK, LOOK, 0));
        assert_eq!(unread.came.len(), MOST as usize);
    }
}
