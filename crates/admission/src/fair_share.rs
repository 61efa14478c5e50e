//! Fair share within a class: while a class is being refused, no client may take more of it than its share.
//!
//! Clients are counted by a hash of their key in a fixed number of cells, renewed every second with another
//! hash, so that memory is bounded whatever clients send and two clients that share a cell do so for a second
//! only. A client's share is what the class let in during the last second, divided by the clients that asked, with
//! some headroom; and always a little, so that a newcomer gets in at once.

use plimsoll_core::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Limit, Mechanism, Nanos, Quantity, Refusal};

const PERIOD: Nanos = Nanos::from_secs(1);
/// Clients that are told apart within a class. More share cells, which costs fairness and never memory.
const CELLS: usize = 1024;
/// What a client may take beyond an equal share: others rarely all use theirs.
const HEADROOM: f64 = 1.25;
/// Admissions in a second that no client is refused for.
const ALWAYS: u32 = 2;

/// Shares of one pool's classes.
pub struct FairShare {
    classes: Box<[Option<Shares>]>,
    seed: AtomicU64,
    period_ends: AtomicU64,
}

struct Shares {
    cells: Box<[Cell]>,
    /// Whether the class was refused in this period, and in the last one.
    refused_now: AtomicBool,
    contended: AtomicBool,
    /// Admissions a client may have in this period.
    share: AtomicU32,
}

#[derive(Default)]
struct Cell {
    asked: AtomicU32,
    admitted: AtomicU32,
}

impl FairShare {
    /// `fair` says which classes share fairly.
    pub fn new(fair: &[bool], now: Nanos) -> FairShare {
        let shares = || Shares {
            cells: (0..CELLS).map(|_| Cell::default()).collect(),
            refused_now: AtomicBool::new(false),
            contended: AtomicBool::new(false),
            share: AtomicU32::new(u32::MAX),
        };
        FairShare {
            classes: fair.iter().map(|&fair| fair.then(shares)).collect(),
            seed: AtomicU64::new(0),
            period_ends: AtomicU64::new((now + PERIOD).0),
        }
    }

    fn cell<'a>(&self, shares: &'a Shares, client: u64) -> &'a Cell {
        let mixed = (client ^ self.seed.load(Relaxed)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &shares.cells[(mixed >> 32) as usize % CELLS]
    }

    /// Whether `client` has had its share of `class`.
    pub fn refuses(&self, class: ClassId, client: u64, now: Nanos) -> Option<Refusal> {
        let shares = self.classes[class.index()].as_ref()?;
        let cell = self.cell(shares, client);
        cell.asked.fetch_add(1, Relaxed);
        if !shares.contended.load(Relaxed) {
            return None;
        }
        let (had, share) = (cell.admitted.load(Relaxed), shares.share.load(Relaxed));
        (had >= share).then(|| Refusal {
            mechanism: Mechanism::FairShare,
            limit: Limit::ClientShare,
            estimate: Quantity::Count(u64::from(had) + 1),
            objective: Quantity::Count(u64::from(share)),
            retry_after: Nanos(self.period_ends.load(Relaxed)).since(now),
        })
    }

    /// Counts the final answer.
    pub fn settled(&self, class: ClassId, client: u64, admitted: bool) {
        if let Some(shares) = &self.classes[class.index()] {
            if admitted {
                self.cell(shares, client).admitted.fetch_add(1, Relaxed);
            } else {
                shares.refused_now.store(true, Relaxed);
            }
        }
    }

    /// Begins a new period if the last one is over; returns when it ends.
    pub fn tick(&self, now: Nanos) -> Nanos {
        let ends = Nanos(self.period_ends.load(Relaxed));
        if now < ends {
            return ends;
        }
        for shares in self.classes.iter().flatten() {
            let (mut clients, mut admitted) = (0u32, 0u32);
            for cell in &shares.cells {
                clients += u32::from(cell.asked.swap(0, Relaxed) > 0);
                admitted += cell.admitted.swap(0, Relaxed);
            }
            let equal = f64::from(admitted) / f64::from(clients.max(1));
            shares.share.store(((equal * HEADROOM) as u32).max(ALWAYS), Relaxed);
            shares.contended.store(shares.refused_now.swap(false, Relaxed) && clients > 1, Relaxed);
        }
        self.seed.fetch_add(0xD1B5_4A32_D192_ED03, Relaxed);
        self.period_ends.store((now + PERIOD).0, Relaxed);
        now + PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: ClassId = ClassId(0);

    /// One greedy client asks ten times as often as nine others; the class has room for a quarter of it all.
    #[test]
    fn a_greedy_client_is_held_to_its_share() {
        let fair = FairShare::new(&[true], Nanos::ZERO);
        let mut admitted = [0u32; 10];
        for second in 0..20u64 {
            let mut room = 50;
            for i in 0..190u64 {
                let client = if i % 19 < 10 { 0 } else { i % 19 - 9 };
                let now = Nanos::from_secs(second) + Nanos::from_millis(i * 5);
                let ok = fair.refuses(CLASS, client, now).is_none() && room > 0;
                room -= u32::from(ok);
                fair.settled(CLASS, client, ok);
                if second >= 5 {
                    admitted[client as usize] += u32::from(ok);
                }
            }
            fair.tick(Nanos::from_secs(second + 1));
        }
        let least = *admitted[1..].iter().min().unwrap();
        assert!(admitted[0] <= 2 * least, "{admitted:?}");
        assert!(admitted.iter().sum::<u32>() >= 15 * 40, "capacity is not thrown away: {admitted:?}");
    }

    #[test]
    fn without_contention_anybody_may_take_all() {
        let fair = FairShare::new(&[true, false], Nanos::ZERO);
        for i in 0..5_000 {
            let now = Nanos::from_millis(i);
            fair.tick(now);
            assert!(fair.refuses(CLASS, 7, now).is_none() && fair.refuses(ClassId(1), 7, now).is_none());
            fair.settled(CLASS, 7, true);
        }
    }
}
