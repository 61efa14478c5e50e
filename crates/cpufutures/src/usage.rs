//! What one thread did: its counters as they were at the times of the [timeline](crate::timeline), and what follows from them.

use plimsoll_core::Nanos;

use crate::census::Reading;
use crate::timeline::{PLACES, Timeline};

/// The window of all that is told about a thread,
pub(crate) const WINDOW: Nanos = Nanos::from_secs(1);
/// of which so much will do, because sampling times jitter.
pub(crate) const ALMOST_WINDOW: Nanos = Nanos::from_millis(950);
/// A thread about which less than this is known was waiting too long to tell what it wants.
const LITTLE_KNOWN: Nanos = Nanos::from_millis(250);

/// A thread that has neither run nor waited for so long, longer than its window, wants nothing, and there is nothing to be found out about it.
const STILL: Nanos = Nanos::from_secs(2);
/// A counter may have grown by so much more than time has passed, because a sample takes time,
const SLACK: Nanos = Nanos::from_millis(50);
/// or by so much, as who sleeps may not be looked at each time.
const UNSEEN: Nanos = Nanos::from_millis(250);

/// Time run and waited, in ns; a difference may be negative by a little where the reader had guessed too much.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    pub run: f64,
    pub wait: f64,
    /// In which that was, the thread's whole life if that is shorter.
    pub span: f64,
}

impl Spent {
    /// Time in which it did what it wanted: it ran, or had nothing to run.
    pub fn free(&self) -> f64 {
        (self.span - self.wait).max(0.0)
    }

    /// What it ran as a fraction of the time.
    pub fn ran(&self) -> f64 {
        if self.span > 0.0 { (self.run / self.span).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// What it waited as a fraction of the time; with what it ran, no more than all.
    pub fn waited(&self) -> f64 {
        if self.span > 0.0 { (self.wait / self.span).clamp(0.0, 1.0 - self.ran()) } else { 0.0 }
    }

    /// The fraction of a CPU that it would use if it never waited (Eq. 1); all of one if it did nothing but wait.
    pub fn demand(&self) -> f64 {
        if self.run + self.wait <= 0.0 {
            0.0
        } else if self.run >= self.free() {
            1.0
        } else {
            (self.run / self.free()).max(0.0)
        }
    }
}

/// The counters in one place, in microseconds modulo 2^32: their differences are right over more than half an hour.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    run_us: u32,
    wait_us: u32,
}

/// The counters of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// As they were read last.
    read: [u64; 2],
    /// What of them counts, in ns: not what came before the first sample, nor what cannot be.
    run_ns: i64,
    wait_ns: i64,
    born: Nanos,
    /// When they began to be what they are now.
    changed_at: Nanos,
    /// As they were in the places of the timeline that were filled before then. Most threads do nothing most of the time: apart from
    /// the rest, so that these are not in the way where all threads are looked at.
    places: Box<[Counted; PLACES]>,
}

impl Usage {
    /// A thread that is seen for the first time, and is so old where that is known. If it is older than the sample `elapsed` before, or
    /// cannot have done all that since, its window begins now; else it began since then.
    pub fn new(sample: &Reading, age: Option<Nanos>, timeline: &Timeline, elapsed: Nanos) -> Usage {
        let done = sample.run_ns.saturating_add(sample.wait_ns);
        // Where it is not known: on average half a period.
        let age = age.unwrap_or(Nanos(elapsed.0 / 2));
        let (run_ns, wait_ns, age) = if elapsed > Nanos::ZERO && age.0.max(done) <= (elapsed + SLACK).0 {
            (sample.run_ns as i64, sample.wait_ns as i64, Nanos(age.0.max(done)))
        } else {
            (0, 0, Nanos::ZERO)
        };
        Usage {
            read: [sample.run_ns, sample.wait_ns],
            run_ns,
            wait_ns,
            born: timeline.now().since(age),
            changed_at: timeline.now(),
            places: Box::new([Counted::default(); PLACES]),
        }
    }

    /// Takes the counters as they are now; after a gap in sampling (`elapsed` zero) they only begin anew.
    pub fn read(&mut self, sample: &Reading, timeline: &Timeline, elapsed: Nanos) {
        let read = [sample.run_ns, sample.wait_ns];
        if read == self.read {
            return;
        }
        let grown = |now: u64, before: u64| {
            let most = (elapsed.0.saturating_mul(2)).saturating_add(UNSEEN.0).min(i64::MAX as u64) as i64;
            let grown = now.wrapping_sub(before) as i64;
            // A reader may have guessed too much of a wait, and takes it back; more is no counter that goes back but another one.
            if elapsed == Nanos::ZERO || grown < -most { 0 } else { grown.min(most) }
        };
        let (ran, waited) = (grown(read[0], self.read[0]), grown(read[1], self.read[1]));
        self.read = read;
        if (ran, waited) == (0, 0) {
            return;
        }
        let counted = self.counted();
        timeline.filled_since(self.changed_at).for_each(|place| self.places[place] = counted);
        self.run_ns += ran;
        self.wait_ns += waited;
        self.changed_at = timeline.now();
    }

    fn counted(&self) -> Counted {
        Counted { run_us: (self.run_ns / 1_000) as u32, wait_us: (self.wait_ns / 1_000) as u32 }
    }

    /// Whether it has done nothing for so long that there is nothing more to find out: it wants nothing.
    pub fn is_still(&self, timeline: &Timeline) -> bool {
        timeline.now().since(self.changed_at) >= STILL
    }

    pub fn born(&self) -> Nanos {
        self.born
    }

    /// What was done since `place`, which was filled `at`. Places from before its birth are as at birth.
    pub fn since(&self, timeline: &Timeline, place: usize, at: Nanos) -> Spent {
        let now = self.counted();
        let then = match at {
            at if at < self.born => Counted::default(),
            at if at >= self.changed_at => now,
            _ => self.places[place],
        };
        let grown = |now: u32, then: u32| f64::from(now.wrapping_sub(then) as i32) * 1e3;
        Spent {
            run: grown(now.run_us, then.run_us),
            wait: grown(now.wait_us, then.wait_us),
            span: timeline.now().since(at.max(self.born)).0 as f64,
        }
    }

    /// What it did and wanted over the last second, and how little is known of that: the window, the demand as a fraction of a CPU
    /// (Eq. 1), and whether too little is known.
    ///
    /// What is known of a thread is what it does when it need not wait. An idle machine shows that for a whole second in every
    /// second; where a thread waits much, this looks back until it has seen it for as long, at most 100 s. (The paper
    /// looks 100 s back once a thread waits for more than 900 ms/s.)
    pub fn wanted(&self, timeline: &Timeline) -> (Spent, f64, bool) {
        let mut window = None;
        let mut found = Spent::default();
        for mark in timeline.back(ALMOST_WINDOW) {
            found = self.since(timeline, mark.place, mark.at);
            window.get_or_insert(found);
            if found.free() >= ALMOST_WINDOW.0 as f64 || mark.at <= self.born {
                break;
            }
        }
        // So early that no place is a second old: all there is.
        let window = window.unwrap_or_else(|| self.since_birth(timeline));
        if found.span == 0.0 {
            found = window;
        }
        let little = found.waited() > 0.0 && found.free() < (LITTLE_KNOWN.0 as f64).min(found.span / 2.0);
        (window, found.demand().max(window.ran()), little)
    }

    /// Whether it seems to do the same work in every second however much it waits: then it does not want more because it waits
    /// more, as Eq. 1 has it (section 4.2). Told by the last ten seconds, if it waited differently in them.
    pub fn has_fixed_work(&self, timeline: &Timeline) -> bool {
        let (mut later, mut seconds) = (Spent::default(), [(0.0, 0.0); 10]);
        let mut count = 0;
        for mark in timeline.seconds().filter(|mark| mark.at >= self.born && mark.at < timeline.now()) {
            let until_now = self.since(timeline, mark.place, mark.at);
            let Spent { run, wait, span } = until_now;
            let second = Spent { run: run - later.run, wait: wait - later.wait, span: span - later.span };
            seconds[count] = (second.ran(), second.waited());
            (later, count) = (until_now, count + 1);
        }
        let seconds = &seconds[..count];
        let waits = || seconds.iter().map(|second| second.1);
        let (least, most) = (waits().fold(1.0, f64::min), waits().fold(0.0, f64::max));
        if count < 5 || most - least < 0.1 {
            return false;
        }
        let mean = seconds.iter().map(|second| second.0).sum::<f64>() / count as f64;
        let sum =
            |f: fn(f64, f64) -> f64| seconds.iter().map(|&(ran, waited)| f(ran, 1.0 - waited)).sum::<f64>();
        // What it would want if it wanted a part of the time in which it need not wait.
        let demand = sum(|ran, free| ran * free) / sum(|_, free| free * free).max(f64::MIN_POSITIVE);
        let error = |expected: &dyn Fn(f64) -> f64| {
            seconds.iter().map(|&(ran, waited)| (ran - expected(waited)).powi(2)).sum::<f64>()
        };
        mean > 0.0 && 4.0 * error(&|_| mean) < error(&|waited| demand * (1.0 - waited))
    }

    fn since_birth(&self, timeline: &Timeline) -> Spent {
        Spent {
            run: self.run_ns as f64,
            wait: self.wait_ns as f64,
            span: timeline.now().since(self.born).0 as f64,
        }
    }
}
