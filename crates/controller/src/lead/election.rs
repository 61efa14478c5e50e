//! One controller's part in the election of a leader: what to ask the store that all of them share, when, and until when it may act
//! on what was answered. No sockets, no clock: `now` is this host's own, and nobody else's is ever looked at.
//!
//! ```text
//!            nobody has the key: claim it, with a lease              renewed in time: goes on
//!  follows ------------------------------------------------> leads ------------------------.
//!     ^   somebody has: look again                             |  ^                        |
//!     '--------------------------------------------------------'  '------------------------'
//!        the key is gone or another's, or the lease may have run out: acts no more
//! ```
//!
//! **Why two never act at once.** The store gives the key to one at a time, with a lease that it takes back a time-to-live after it was
//! last renewed, by its own clock. It renewed it after it was asked to. So a leader counts from when it *asked*, by its own clock, and
//! only up to [`SAFE`] of that time: however late the answer comes, and though either clock runs a tenth fast or slow, it has ended
//! before anybody else can begin. It needs no message to end. Whoever is stopped between a look at its clock and what it does next is
//! caught by the revision instead, which sentries hold against it.

use plimsoll_core::Nanos;

/// The part of a lease that a leader makes use of: two clocks that are wrong by a tenth in opposite directions are 0.9 / 1.1 = 0.82 apart.
pub const SAFE: f64 = 0.8;
/// Requests to renew in one lease: with four, two may be lost in a row.
const RENEWALS: u64 = 4;
/// From one look at who leads to the next.
const LOOK: Nanos = Nanos::from_millis(250);
/// After a failure.
const AGAIN: Nanos = Nanos::from_millis(100);

/// What to ask the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Does anybody lead?
    Look,
    /// A lease, and the key with it unless somebody has that.
    Claim,
    /// That this lease lasts on, and whether the key is still with it.
    Renew {
        /// Its number.
        lease: i64,
    },
}

/// What the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has the key.
    Nobody,
    /// Somebody else has.
    Somebody,
    /// We have.
    Ours {
        /// The lease that it is ours by.
        lease: i64,
        /// Higher than that of everybody who has had it before.
        revision: u64,
        /// So long it is ours from when the store answered.
        ttl: Nanos,
    },
}

/// A leader's hold on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lease that it is by.
    pub lease: i64,
    /// Higher than that of everybody who has had it before.
    pub revision: u64,
    /// When it ends, unless it is renewed.
    pub until: Nanos,
}

/// One controller's part. It asks one thing at a time.
#[derive(Clone, Debug)]
pub struct Election {
    ttl: Nanos,
    safe: f64,
    hold: Option<Hold>,
    next: Ask,
    at: Nanos,
}

impl Election {
    /// With leases of so long.
    pub fn new(ttl: Nanos) -> Election {
        Election { ttl, safe: SAFE, hold: None, next: Ask::Look, at: Nanos::ZERO }
    }

    /// By what it leads, if it does now.
    pub fn leads(&self, now: Nanos) -> Option<Hold> {
        self.hold.filter(|hold| now < hold.until)
    }

    /// What to ask next, and when.
    pub fn next(&mut self, now: Nanos) -> (Nanos, Ask) {
        if self.hold.is_some() && self.leads(now).is_none() {
            self.follow(Ask::Look, now);
        }
        (self.at, self.next)
    }

    /// How long to wait for the answer. What is to be renewed is asked for again before it ends, and not waited for when it has.
    pub fn patience(&self, ask: Ask, now: Nanos) -> Nanos {
        match (ask, self.hold) {
            (Ask::Renew { .. }, Some(hold)) => hold.until.since(now).min(Nanos(self.ttl.0 / RENEWALS)),
            _ => Nanos(self.ttl.0 / 2),
        }
    }

    /// The answer, where there was one within [`patience`](Election::patience), to what was asked at `asked`.
    pub fn heard(&mut self, asked: Nanos, answer: Option<Answer>, now: Nanos) {
        match (self.leads(now), answer) {
            (None, Some(Answer::Nobody)) => self.follow(Ask::Claim, now),
            (_, Some(Answer::Nobody | Answer::Somebody)) => self.follow(Ask::Look, now + LOOK),
            // Of what was held and has lapsed, nothing is believed: whoever acted on it has ended.
            (None, Some(Answer::Ours { .. })) if self.hold.is_some() => self.follow(Ask::Look, now),
            (_, Some(Answer::Ours { lease, revision, ttl })) => {
                let until = asked + Nanos((ttl.0 as f64 * self.safe) as u64);
                self.hold = Some(Hold { lease, revision, until });
                self.next = Ask::Renew { lease };
                self.at = asked + Nanos(ttl.0 / RENEWALS);
            }
            (Some(hold), None) => self.at = hold.until.min(now + AGAIN),
            // What a claim has come to is not known. Perhaps it was granted: nobody renews that, and it ends.
            (None, None) => self.follow(Ask::Look, now + AGAIN),
        }
    }

    fn follow(&mut self, next: Ask, at: Nanos) {
        self.hold = None;
        self.next = next;
        self.at = at;
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;
    const TTL: Nanos = Nanos::from_secs(2);

    fn ours(revision: u64) -> Option<Answer> {
        Some(Answer::Ours { lease: 7, revision, ttl: TTL })
    }

    /// One that has asked for the key at one second, and was answered 300 ms later.
    fn leader() -> Election {
        let mut election = Election::new(TTL);
        assert_eq!(election.next(MS(900)), (Nanos::ZERO, Ask::Look));
        election.heard(MS(900), Some(Answer::Nobody), MS(1_000));
        assert_eq!(election.next(MS(1_000)), (MS(1_000), Ask::Claim));
        election.heard(MS(1_000), ours(5), MS(1_300));
        election
    }

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for_and_ends_early() {
        let mut election = leader();
        assert_eq!(election.leads(MS(1_300)), Some(Hold { lease: 7, revision: 5, until: MS(2_600) }));
        assert_eq!(election.next(MS(1_300)), (MS(1_500), Ask::Renew { lease: 7 }));
        assert_eq!(election.leads(MS(2_599)).map(|hold| hold.revision), Some(5));
        assert_eq!(election.leads(MS(2_600)), None);
        assert_eq!(election.next(MS(2_600)), (MS(2_600), Ask::Look), "from the beginning");
    }

    #[test]
    fn a_renewal_prolongs_it_and_a_failure_does_not() {
        let mut election = leader();
        election.heard(MS(1_500), None, MS(2_000));
        assert_eq!(election.next(MS(2_000)), (MS(2_100), Ask::Renew { lease: 7 }));
        assert_eq!(election.leads(MS(2_000)).map(|hold| hold.until), Some(MS(2_600)));
        election.heard(MS(2_100), ours(5), MS(2_500));
        assert_eq!(election.leads(MS(3_699)).map(|hold| hold.until), Some(MS(3_700)));
    }

    #[test]
    fn who_was_told_too_late_or_that_another_leads_acts_no_more() {
        let mut late = leader();
        late.heard(MS(2_200), ours(5), MS(2_700));
        assert_eq!(late.leads(MS(2_700)), None, "it had lapsed");
        for answer in [Answer::Nobody, Answer::Somebody] {
            let mut election = leader();
            election.heard(MS(1_500), Some(answer), MS(1_600));
            assert_eq!(election.leads(MS(1_600)), None, "{answer:?}");
        }
        let mut follower = Election::new(TTL);
        follower.heard(MS(1_000), None, MS(1_500));
        assert_eq!((follower.leads(MS(1_500)), follower.next(MS(1_500))), (None, (MS(1_600), Ask::Look)));
    }
}
