//! What is written down: what each task did with each resource, as a ledger keeps it, and what happened to each resource since
//! the last look.

use plimsoll_cancellation::{Kind, Resource};
use plimsoll_core::Nanos;

/// What one task did with one resource.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Which resource.
    pub resource: u32,
    /// Units that it holds.
    pub held: u64,
    /// Units that it has taken.
    pub units: f64,
    /// Since when it holds some.
    since: Nanos,
    /// How long it held some, in ns, of the holds that ended.
    hold_ns: u64,
    /// Since when it waits.
    waiting_since: Option<Nanos>,
    /// What `recent` is measured from.
    mark: u64,
}

impl Account {
    /// Of a task that has not used it yet.
    pub fn new(resource: u32) -> Account {
        let none = Nanos::ZERO;
        Account { resource, held: 0, units: 0.0, since: none, hold_ns: 0, waiting_since: None, mark: 0 }
    }

    /// For how long it has been holding some.
    pub fn held_ns(&self, now: Nanos) -> u64 {
        if self.held > 0 { now.since(self.since).0 } else { 0 }
    }

    /// For how long it has been waiting.
    pub fn waiting_ns(&self, now: Nanos) -> u64 {
        self.waiting_since.map_or(0, |since| now.since(since).0)
    }

    /// What it took since it began: of what is held for a time, that time in ns.
    pub fn used(&self, kind: Kind, now: Nanos) -> u64 {
        if kind.is_held() { self.hold_ns + self.held_ns(now) } else { self.units as u64 }
    }

    /// What of that it took since this was last asked.
    pub fn recent(&mut self, kind: Kind, now: Nanos) -> u64 {
        let used = self.used(kind, now);
        used - std::mem::replace(&mut self.mark, used)
    }
}

/// What happened to a resource since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// What a controller is shown.
    pub sum: Resource,
    /// When somebody last looked.
    looked: Nanos,
}

impl Tally {
    /// Nothing yet.
    pub fn new(kind: Kind, capacity: u64) -> Tally {
        Tally { sum: Resource::quiet(kind, capacity), looked: Nanos::ZERO }
    }

    /// A wait begins, for so many units.
    pub fn wait(&mut self, account: &mut Account, units: u64, now: Nanos) {
        self.sum.slows += units;
        account.waiting_since = Some(now);
    }

    /// A wait ends, if there is one.
    pub fn waited(&mut self, account: &mut Account, now: Nanos) {
        if let Some(since) = account.waiting_since.take() {
            self.sum.delay_ns += now.since(since.max(self.looked)).0;
        }
    }

    /// Units are taken.
    pub fn get(&mut self, account: &mut Account, units: u64, now: Nanos) {
        self.waited(account, now);
        self.sum.gets += units;
        account.units += units as f64;
        if account.held == 0 {
            account.since = now;
        }
        account.held += units;
    }

    /// All units are given back.
    pub fn free(&mut self, account: &mut Account, now: Nanos) {
        if account.held > 0 {
            self.sum.use_ns += now.since(account.since.max(self.looked)).0;
            self.sum.ended += 1;
            self.sum.ended_ns += account.held_ns(now);
            account.hold_ns += account.held_ns(now);
            account.held = 0;
        }
    }

    /// What is still going on counts up to now.
    pub fn going_on(&mut self, account: &Account, now: Nanos) {
        if let Some(since) = account.waiting_since {
            self.sum.delay_ns += now.since(since.max(self.looked)).0;
        }
        if account.held > 0 {
            self.sum.use_ns += now.since(account.since.max(self.looked)).0;
        }
    }

    /// What happened since the last look; this is the next one.
    pub fn take(&mut self, now: Nanos) -> Resource {
        self.looked = now;
        let quiet = Resource::quiet(self.sum.kind, self.sum.capacity);
        std::mem::replace(&mut self.sum, quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// A wait from 10 to 25 ms and a hold from there to 50 ms, looked at at 20, 40 and 60 ms.
    #[test]
    fn what_goes_on_across_looks_is_counted_once() {
        let (mut tally, mut account) = (Tally::new(Kind::Lock, 1), Account::new(0));
        let look = |tally: &mut Tally, account: &mut Account, at: Nanos| {
            tally.going_on(account, at);
            let recent = account.recent(Kind::Lock, at);
            let sum = tally.take(at);
            (sum.delay_ns / 1_000_000, sum.use_ns / 1_000_000, recent / 1_000_000)
        };
        tally.wait(&mut account, 1, MS(10));
        assert_eq!(look(&mut tally, &mut account, MS(20)), (10, 0, 0));
        tally.get(&mut account, 1, MS(25));
        assert_eq!((account.held_ns(MS(40)), account.waiting_ns(MS(40))), (MS(15).0, 0));
        assert_eq!(look(&mut tally, &mut account, MS(40)), (5, 15, 15));
        tally.free(&mut account, MS(50));
        assert_eq!((tally.sum.ended, tally.sum.ended_ns), (1, MS(25).0));
        assert_eq!(look(&mut tally, &mut account, MS(60)), (0, 10, 10));
    }
}
