//! The log of single decisions: a bounded sample of what was let in and of what was refused, with the reasons.
//!
//! Each class keeps its refusals apart from its admissions, so that no flood, of whatever kind and class, pushes the
//! rest out. A share of all decisions is kept, and the first of every second besides, so that what is rare can be
//! seen as well. Keeping one takes a lock only if it is free; else the sample is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use plimsoll_core::config::Config;
use plimsoll_core::{ClassId, Nanos, Verdict};

/// One of a class's decisions is kept after this pause, whatever the share says.
const AT_LEAST_EVERY: Nanos = Nanos::from_secs(1);

/// Kept of one class and side at least, however many classes share what the config allows.
const MIN_KEPT: usize = 4;

/// Where a request was when it was decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// About to enter the fleet.
    Entry,
    /// About to enter the queue.
    Gate,
    /// In the queue, or about to leave it.
    Queue,
}

/// What was decided about one request.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// When, on the sentry's [clock](crate::clock::now).
    pub at: Nanos,
    /// Where the request was.
    pub stage: Stage,
    /// What the policy said.
    pub verdict: Verdict,
    /// Whether that was acted upon; a policy in shadow mode only says it.
    pub enforced: bool,
    /// Requests that waited in the pool's queue.
    pub queued: u32,
}

/// The log of all classes. A reload makes a new one, which continues those of the classes that stay.
#[derive(Debug)]
pub struct Decisions {
    /// By [`ClassId`].
    classes: Vec<Arc<ClassLog>>,
    /// A decision is kept if a hash of its time is below this.
    threshold: u64,
}

/// The log of one class.
#[derive(Debug)]
pub struct ClassLog {
    /// The class's name.
    pub class: String,
    /// The name of its pool.
    pub pool: String,
    admitted: Ring,
    refused: Ring,
}

#[derive(Debug)]
struct Ring {
    kept: Mutex<Kept>,
    /// When one is to be kept whatever the share says.
    due_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    decisions: VecDeque<Decision>,
    capacity: usize,
}

impl Decisions {
    /// The log that this config asks for; `previous` is that of the config before it.
    pub fn new(config: &Config, previous: Option<&Decisions>) -> Decisions {
        let keep = config.sentry.decisions.keep as usize;
        let share = keep / (2 * config.classes.len().max(1));
        let capacity = if keep == 0 { 0 } else { share.max(MIN_KEPT) };
        let log_of = |class: &plimsoll_core::config::Class| {
            let pool = &config.pools[class.pool].name;
            let same = |log: &&Arc<ClassLog>| log.class == class.name && log.pool == *pool;
            let known = previous.and_then(|p| p.classes.iter().find(same)).cloned();
            let log = known.unwrap_or_else(|| Arc::new(ClassLog::new(&class.name, pool)));
            log.admitted.resize(capacity);
            log.refused.resize(capacity);
            log
        };
        Decisions {
            classes: config.classes.iter().map(log_of).collect(),
            // Saturates: a share of 1 keeps all but one in 2^64.
            threshold: (config.sentry.decisions.sample * 2_f64.powi(64)) as u64,
        }
    }

    /// Offers a decision to the log. Cheap enough for every request: a hash and a load, unless it is kept.
    pub fn push(&self, class: ClassId, decision: &Decision) {
        let Some(log) = self.classes.get(class.index()) else { return };
        let ring = if decision.verdict.is_admit() { &log.admitted } else { &log.refused };
        // The time is hashed rather than a generator drawn from: the policies' randomness stays theirs alone.
        if spread(decision.at.0) < self.threshold || decision.at.0 >= ring.due_ns.load(Ordering::Relaxed) {
            ring.keep(decision);
        }
    }

    /// The newest decisions of the classes that fit, newest first, at most `most`.
    pub fn newest(
        &self,
        most: usize,
        fits: impl Fn(&ClassLog, &Decision) -> bool,
    ) -> Vec<(&ClassLog, Decision)> {
        let mut found: Vec<_> = self
            .classes
            .iter()
            .flat_map(|log| log.kept().into_iter().map(move |decision| (&**log, decision)))
            .filter(|(log, decision)| fits(log, decision))
            .collect();
        found.sort_by_key(|(_, decision)| std::cmp::Reverse(decision.at));
        found.truncate(most);
        found
    }
}

impl ClassLog {
    fn new(class: &str, pool: &str) -> ClassLog {
        let (admitted, refused) = (Ring::new(), Ring::new());
        ClassLog { class: class.to_owned(), pool: pool.to_owned(), admitted, refused }
    }

    fn kept(&self) -> Vec<Decision> {
        [&self.admitted, &self.refused]
            .iter()
            .flat_map(|ring| ring.kept.lock().decisions.iter().copied().collect::<Vec<_>>())
            .collect()
    }
}

impl Ring {
    fn new() -> Ring {
        Ring { kept: Mutex::default(), due_ns: AtomicU64::new(0) }
    }

    fn resize(&self, capacity: usize) {
        let mut kept = self.kept.lock();
        let surplus = kept.decisions.len().saturating_sub(capacity);
        kept.decisions.drain(..surplus);
        let room = capacity - kept.decisions.len();
        kept.decisions.reserve_exact(room);
        kept.capacity = capacity;
    }

    #[cold]
    fn keep(&self, decision: &Decision) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        self.due_ns.store((decision.at + AT_LEAST_EVERY).0, Ordering::Relaxed);
        if kept.decisions.len() == kept.capacity {
            kept.decisions.pop_front();
        }
        if kept.capacity > 0 {
            kept.decisions.push_back(*decision);
        }
    }
}

/// The finaliser of SplitMix64: neighbouring times land far apart.
fn spread(time: u64) -> u64 {
    let z = (time ^ (time >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Grant, Limit, Mechanism, Quantity, Refusal};

    use super::*;

    const DEFAULT: ClassId = ClassId(1);

    fn config(decisions: &str) -> Config {
        let text = format!(
            "[sentry]\ndecisions = {decisions}\n[pool.shop]\nservers = [\"127.0.0.1:1\"]\n\
             [class.browse]\nmatch = [{{ path = \"/a\" }}]\n[class.default]\n"
        );
        plimsoll_core::config::parse(&text, "test").unwrap().0
    }

    fn admitted(at: Nanos) -> Decision {
        Decision {
            at,
            stage: Stage::Gate,
            verdict: Verdict::Admit(Grant::Estimate),
            enforced: true,
            queued: 0,
        }
    }

    fn refused(at: Nanos) -> Decision {
        let refusal = Refusal {
            mechanism: Mechanism::MaxQueue,
            limit: Limit::QueueLength,
            estimate: Quantity::Count(801),
            objective: Quantity::Count(800),
            retry_after: Nanos::ZERO,
        };
        Decision { verdict: Verdict::Refuse(refusal), ..admitted(at) }
    }

    #[test]
    fn a_flood_of_refusals_leaves_the_admissions_and_other_classes_alone() {
        let log = Decisions::new(&config("{ keep = 100, sample = 1.0 }"), None);
        for i in 0..10 {
            log.push(DEFAULT, &admitted(Nanos(i)));
            log.push(ClassId(0), &refused(Nanos(i)));
        }
        for i in 10..100_000 {
            log.push(DEFAULT, &refused(Nanos(i)));
        }
        let count = |class: &str, admit: bool| {
            log.newest(1_000, |l, d| l.class == class && d.verdict.is_admit() == admit).len()
        };
        assert_eq!((count("default", true), count("default", false), count("browse", false)), (10, 25, 10));
        let newest = log.newest(3, |_, _| true);
        assert_eq!(newest.iter().map(|(_, d)| d.at.0).collect::<Vec<_>>(), [99_999, 99_998, 99_997]);
        assert_eq!(newest[0].0.pool, "shop");
    }

    #[test]
    fn a_share_is_kept_and_what_is_rare_besides() {
        let log = Decisions::new(&config("{ keep = 100000, sample = 0.01 }"), None);
        for i in 0..100_000 {
            log.push(DEFAULT, &admitted(Nanos::from_micros(i)));
        }
        let kept = log.newest(usize::MAX, |_, _| true).len();
        assert!((800..1_200).contains(&kept), "{kept} of 100000");

        let log = Decisions::new(&config("{ keep = 1000, sample = 0.0 }"), None);
        for i in 0..10 {
            log.push(DEFAULT, &refused(Nanos::from_millis(400 * i)));
        }
        assert_eq!(log.newest(usize::MAX, |_, _| true).len(), 4, "at 0, 1.2, 2.4 and 3.6 s");
        let log = Decisions::new(&config("{ keep = 0, sample = 1.0 }"), None);
        log.push(DEFAULT, &refused(Nanos(1)));
        assert_eq!(log.newest(usize::MAX, |_, _| true).len(), 0);
    }

    #[test]
    fn a_reload_continues_the_log() {
        let two = config("{ keep = 16, sample = 1.0 }");
        let before = Decisions::new(&two, None);
        for i in 0..4 {
            before.push(DEFAULT, &admitted(Nanos(i)));
        }
        let mut one = two.clone();
        one.classes.remove(0);
        let after = Decisions::new(&one, Some(&before));
        before.push(DEFAULT, &admitted(Nanos(4)));
        let times =
            |log: &Decisions| log.newest(9, |_, _| true).iter().map(|(_, d)| d.at.0).collect::<Vec<_>>();
        assert_eq!(times(&after), [4, 3, 2, 1, 0], "and has what comes to the old one late");
        assert_eq!(times(&Decisions::new(&two, Some(&after))), [4, 3, 2, 1], "the oldest go first");
    }
}
