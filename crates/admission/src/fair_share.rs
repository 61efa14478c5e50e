//! Fair share within a class: while a class is being refused, no client may take more of it than its share.
//!
//! Clients are counted by a hash of their key in a fixed number of cells, renewed every second with another
//! hash, so that memory is bounded whatever clients send and two clients that share a cell do so for a second
//! only. The share is max-min fair: the *room* of the class, filled up with what each client asked for, up to the level at
//! which the room is used up. Who asks for less gets it all; who asks for more is held to the level, evenly over the second,
//! since it would else be in everybody's way until its second's worth is used up.
//!
//! The room is a little less than what other mechanisms let in while they refuse. What fair share itself refused says
//! nothing about it: while nobody else refuses there is more room than was thought, so it grows, faster and faster,
//! until it holds all that is asked for and nobody is limited any more.

use plimsoll_core::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use plimsoll_core::{ClassId, Limit, Mechanism, Nanos, Quantity, Refusal, Verdict};

const PERIOD: Nanos = Nanos::from_secs(1);
/// Clients that are told apart within a class. More share cells, which costs fairness and never memory.
const CELLS: usize = 1024;
/// Requests in a second that no client is refused for.
const ALWAYS: u32 = 2;
/// The share of what reaches them that other mechanisms may refuse without its being contention: a burst makes them.
const TOLERATED: f64 = 0.02;
/// How much of what was admitted is given out next: with all of it the queue would stay full, and refuse those who ask
/// for little too.
const FILL: f64 = 0.9;
/// The room after a contended second, of what it was, at least, where fair share held back what might have used more of it.
const SHRINK: f64 = 0.8;
/// How much the room grows in a second without contention; twice as much in each one that follows, up to
/// twofold.
const GROWTH: f64 = 0.01;
/// The share that limits nobody.
const FREE: u32 = u32::MAX;

/// Shares of one pool's classes.
pub struct FairShare {
    classes: Box<[Option<Shares>]>,
    seed: AtomicU64,
    period_began: AtomicU64,
}

struct Shares {
    cells: Box<[Cell]>,
    /// Refusals by other mechanisms in this period.
    refused: AtomicU32,
    /// Whether fair share refused in this period.
    held_back: AtomicBool,
    /// Requests that all clients together may have in this period: an `f64`, infinite while nobody is limited.
    room: AtomicU64,
    /// How much the room grows next, an `f64`.
    growth: AtomicU64,
    /// Requests that one client may have in this period.
    share: AtomicU32,
}

#[derive(Default)]
struct Cell {
    asked: AtomicU32,
    /// What fair share let pass. Not what was admitted at last: who asks all the time would then be there whenever
    /// a place becomes free, and be given it before those who ask now and then.
    passed: AtomicU32,
}

impl FairShare {
    /// `fair` says which classes share fairly.
    pub fn new(fair: &[bool], now: Nanos) -> FairShare {
        let shares = || Shares {
            cells: (0..CELLS).map(|_| Cell::default()).collect(),
            refused: AtomicU32::new(0),
            held_back: AtomicBool::new(false),
            room: AtomicU64::new(f64::INFINITY.to_bits()),
            growth: AtomicU64::new(GROWTH.to_bits()),
            share: AtomicU32::new(FREE),
        };
        FairShare {
            classes: fair.iter().map(|&fair| fair.then(shares)).collect(),
            seed: AtomicU64::new(0),
            period_began: AtomicU64::new(now.0),
        }
    }

    fn cell<'a>(&self, shares: &'a Shares, client: u64) -> &'a Cell {
        let mixed = (client ^ self.seed.load(Relaxed)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &shares.cells[(mixed >> 32) as usize % CELLS]
    }

    /// Whether `client` has had what it may have of `class` by now.
    pub fn refuses(&self, class: ClassId, client: u64, now: Nanos) -> Option<Refusal> {
        let shares = self.classes[class.index()].as_ref()?;
        let share = shares.share.load(Relaxed);
        if share == FREE {
            return None;
        }
        let began = Nanos(self.period_began.load(Relaxed));
        let so_far = now.since(began).as_secs_f64() / PERIOD.as_secs_f64();
        let may_have = ((f64::from(share) * so_far) as u32).max(ALWAYS);
        let had = self.cell(shares, client).passed.load(Relaxed);
        (had >= may_have).then(|| Refusal {
            mechanism: Mechanism::FairShare,
            limit: Limit::ClientShare,
            estimate: Quantity::Count(u64::from(had) + 1),
            objective: Quantity::Count(u64::from(may_have)),
            retry_after: (began + PERIOD).since(now),
        })
    }

    /// Counts the final answer.
    pub fn settled(&self, class: ClassId, client: u64, verdict: &Verdict) {
        let Some(shares) = &self.classes[class.index()] else { return };
        let cell = self.cell(shares, client);
        let refused_by = match verdict {
            Verdict::Admit(_) => None,
            Verdict::Refuse(refusal) => Some(refusal.mechanism),
        };
        match refused_by {
            // That it comes too late is a request's own affair, and would be in an empty pool.
            Some(Mechanism::Deadline) => return,
            Some(Mechanism::FairShare) => shares.held_back.store(true, Relaxed),
            Some(_) => {
                shares.refused.fetch_add(1, Relaxed);
                cell.passed.fetch_add(1, Relaxed);
            }
            None => _ = cell.passed.fetch_add(1, Relaxed),
        }
        cell.asked.fetch_add(1, Relaxed);
    }

    /// Begins a new period if the last one is over; returns when it ends.
    pub fn tick(&self, now: Nanos) -> Nanos {
        let ends = Nanos(self.period_began.load(Relaxed)) + PERIOD;
        if now < ends {
            return ends;
        }
        self.classes.iter().flatten().for_each(Shares::next_period);
        self.seed.fetch_add(0xD1B5_4A32_D192_ED03, Relaxed);
        self.period_began.store(now.0, Relaxed);
        now + PERIOD
    }
}

impl Shares {
    fn next_period(&self) {
        let (mut asked, mut passed) = (Vec::new(), 0);
        for cell in &self.cells {
            asked.push(cell.asked.swap(0, Relaxed));
            passed += cell.passed.swap(0, Relaxed);
        }
        asked.retain(|&asked| asked > 0);
        let refused = self.refused.swap(0, Relaxed);
        let held_back = self.held_back.swap(false, Relaxed);
        let room = if asked.len() > 1 { self.room(passed, refused, held_back) } else { f64::INFINITY };
        let level = level(&mut asked, room);
        // What everybody may have without limiting anybody is no limit: nothing has to be remembered of it.
        let room = if level.is_finite() { room } else { f64::INFINITY };
        self.room.store(room.to_bits(), Relaxed);
        self.share.store(if level.is_finite() { (level as u32).max(ALWAYS) } else { FREE }, Relaxed);
    }

    /// What fits into the class in a second, after one in which so many `passed`, of which others `refused` some.
    fn room(&self, passed: u32, refused: u32, held_back: bool) -> f64 {
        let was = f64::from_bits(self.room.load(Relaxed));
        let growth = f64::from_bits(self.growth.load(Relaxed));
        let contended = f64::from(refused) > TOLERATED * f64::from(passed);
        let next = if contended { GROWTH } else { (2.0 * growth).min(1.0) };
        self.growth.store(next.to_bits(), Relaxed);
        let admitted = f64::from(passed.saturating_sub(refused));
        match (contended, held_back) {
            (true, true) => (FILL * admitted).max(SHRINK * was),
            (true, false) => FILL * admitted,
            (false, true) => was * (1.0 + growth),
            (false, false) => f64::INFINITY,
        }
    }
}

/// How much everybody gets of `room`, except who asks for less: infinite where there is room for all that is `asked`.
fn level(asked: &mut [u32], mut room: f64) -> f64 {
    asked.sort_unstable();
    for (i, &asks) in asked.iter().enumerate() {
        let equal = room / (asked.len() - i) as f64;
        if f64::from(asks) > equal {
            return equal;
        }
        room -= f64::from(asks);
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Grant;

    const CLASS: ClassId = ClassId(0);

    #[test]
    fn the_level_fills_the_room_and_not_more() {
        let level = |asked: &[u32], room| level(&mut asked.to_vec(), room);
        assert_eq!(level(&[1_000, 1, 1, 8], 100.0), 90.0);
        assert_eq!(level(&[1_000, 50, 50, 8], 100.0), 92.0 / 3.0);
        assert_eq!(level(&[5, 5], 8.0), 4.0);
        assert_eq!(level(&[5, 5], 10.0), f64::INFINITY, "room for all");
        assert_eq!(level(&[5, 5], f64::INFINITY), f64::INFINITY);
        assert_eq!(level(&[], 0.0), f64::INFINITY);
    }

    #[test]
    fn without_contention_anybody_may_take_all() {
        let fair = FairShare::new(&[true, false], Nanos::ZERO);
        for i in 0..5_000 {
            let now = Nanos::from_millis(i);
            fair.tick(now);
            for client in [7, 7, 7, 8] {
                assert!(fair.refuses(CLASS, client, now).is_none());
                assert!(fair.refuses(ClassId(1), client, now).is_none());
                fair.settled(CLASS, client, &Verdict::Admit(Grant::Estimate));
            }
        }
    }

    /// A greedy client that is refused says when to come back, and a newcomer gets in at once.
    #[test]
    fn a_share_comes_evenly_and_a_newcomer_gets_in() {
        let fair = FairShare::new(&[true], Nanos::ZERO);
        let refusal = Refusal {
            mechanism: Mechanism::MaxQl,
            limit: Limit::QueueLength,
            estimate: Quantity::Count(2),
            objective: Quantity::Count(1),
            retry_after: Nanos::ZERO,
        };
        for i in 0..1_000u64 {
            let verdict =
                if i % 10 == 0 { Verdict::Admit(Grant::Estimate) } else { Verdict::Refuse(refusal) };
            fair.settled(CLASS, i % 50 / 49, &verdict);
        }
        // 90 are to be had and the other client asked for 20, which leaves 70.
        fair.tick(PERIOD);
        let mut had = Vec::new();
        for ms in 0..1_000 {
            let now = PERIOD + Nanos::from_millis(ms);
            match fair.refuses(CLASS, 0, now) {
                None => {
                    fair.settled(CLASS, 0, &Verdict::Admit(Grant::Estimate));
                    had.push(ms);
                }
                Some(refusal) => {
                    assert_eq!(refusal.retry_after, Nanos::from_millis(1_000 - ms));
                    fair.settled(CLASS, 0, &Verdict::Refuse(refusal));
                }
            }
            assert!(fair.refuses(CLASS, 2, now).is_none(), "a newcomer");
        }
        let early = had.iter().filter(|&&ms| ms < 500).count();
        assert!((68..=70).contains(&had.len()) && (33..=36).contains(&early), "{had:?}");
    }
}
