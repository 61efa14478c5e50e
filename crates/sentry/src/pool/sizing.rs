//! How many slots a pool has: what its servers' workers, its share of them, the gate's own finding and what others still hold make
//! of it.

use std::sync::atomic::Ordering::Relaxed;

use plimsoll_core::config::Workers;
use plimsoll_core::{ClassId, Nanos};

use super::{ADAPTIVE_MOST, ADAPTIVE_START, Pool, sheepdog};
use crate::clock;
use crate::share::{Holding, Share};

/// What the number of slots follows from. The lock also orders changes of that number.
pub struct Sizing {
    share: Holding,
    /// The servers, and between how many sentries they are divided, that the gate's own number of slots is for.
    found_for: (u32, u32),
    /// The slots that the gate was told to have.
    told: Option<u32>,
}

impl Sizing {
    /// Of a pool with so many servers, which has all of them.
    pub fn new(servers: usize) -> Sizing {
        let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
        Sizing { share: Holding::new(Share::ALL), found_for: (servers, 1), told: None }
    }
}

impl Pool {
    /// Has only this share of the servers' workers from now on; what it had before and others may still have is left alone
    /// for a moment. Everything of a pool that is divided between sentries is divided here.
    pub fn set_share(&self, share: Share) {
        let now = clock::now();
        {
            let mut sizing = self.sizing.lock();
            if !sizing.share.tell(share, now) {
                return;
            }
            self.servers.hold(sizing.share.used());
        }
        self.divide_promises(share, now);
        self.resize(now);
    }

    /// As [`Pool::set_share`], for a pool that serves nobody yet.
    pub fn begin_with_share(&self, share: Share) {
        let now = clock::now();
        self.sizing.lock().share = Holding::new(share);
        self.servers.hold(Some(share));
        self.divide_promises(share, now);
        self.resize(now);
    }

    /// Each sentry keeps an equal part of what the classes were promised.
    fn divide_promises(&self, share: Share, now: Nanos) {
        let Some(police) = &self.police else { return };
        for (i, class) in self.definition.classes.iter().enumerate() {
            police.promise(ClassId(i as u16), class.promised_per_s / f64::from(share.of()), now);
        }
    }

    /// Leaves `n` slots unused because somebody else still holds them.
    pub fn withhold(&self, n: u32) {
        if self.withheld.swap(n, Relaxed) != n {
            self.resize(clock::now());
        }
    }

    /// Slots that are left unused because somebody else still holds them.
    pub fn withheld(&self) -> u32 {
        self.withheld.load(Relaxed)
    }

    /// Takes what others have given up by now, and lets the gate's own number of slots follow the servers.
    pub(super) fn settle(&self, now: Nanos) {
        self.servers.forget_finished();
        let mut sizing = self.sizing.lock();
        if sizing.share.settle(now) {
            self.servers.hold(sizing.share.used());
        }
        let (before, divided) = sizing.found_for;
        let of = sizing.share.told().of();
        // What is divided among more is divided at once, what is divided among fewer when it has settled.
        let of = if sizing.share.is_settled() { of } else { of.max(divided) };
        let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        if servers > 0 && (servers, of) != sizing.found_for {
            let (from, to) = (before.saturating_mul(of), servers.saturating_mul(divided));
            if self.gate.scale_slots(from, to, ADAPTIVE_MOST.saturating_mul(servers)) {
                sizing.found_for = (servers, of);
            }
        }
    }

    /// Has the gate take what follows from how the servers' workers fare, or find the slots itself where nobody says.
    pub(super) fn herd(&self, now: Nanos) {
        if self.config.workers != Workers::Adaptive {
            return;
        }
        let servers = self.servers.len();
        let most = ADAPTIVE_MOST.saturating_mul(u32::try_from(servers).unwrap_or(u32::MAX));
        let (size, full) = (self.slots.size(), !self.slots.is_idle());
        let told = self.flock.tick(sheepdog::Slots { size, full, most, servers }, now);
        let mut sizing = self.sizing.lock();
        if told != sizing.told && self.gate.tell_slots(told) {
            sizing.told = told;
        }
    }

    /// A request gives its slot back.
    pub fn release(&self) {
        // The slots of servers that have left end with their requests.
        if self.servers.in_flight_on_leaving() != self.leaving.load(Relaxed) {
            self.resize(clock::coarse());
        }
        self.slots.release();
    }

    /// Opens as many slots as there are workers: those of servers that are up, as many of them as are in use, less those withheld,
    /// and those that requests on servers that have left still hold.
    pub fn resize(&self, now: Nanos) {
        let _one = self.sizing.lock();
        let all = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let target = match (self.config.workers, self.gate.recommended_slots()) {
            (Workers::Fixed(_), _) => self.servers.workers(now),
            (Workers::Adaptive, _) if all == 0 => 0,
            // Found for the servers that were up when it was found; it will adapt to those that are.
            (Workers::Adaptive, Some(slots)) => slots.max(1),
            (Workers::Adaptive, None) => ADAPTIVE_START.saturating_mul(all),
        };
        let leaving = self.servers.in_flight_on_leaving();
        self.leaving.store(leaving, Relaxed);
        let target = self.ease.of(target).saturating_sub(self.withheld.load(Relaxed)).saturating_add(leaving);
        if target != self.slots.size() {
            self.slots.resize(target);
            // Nobody waits for ever, even where all slots are withheld for now.
            self.gate.set_slots(target.max(1));
        }
    }
}
