//! What the benchmark offers: requests drawn in advance, so that a measured loop does not draw, and policing that is in the
//! middle of a flash crowd.

use plimsoll_core::rng::seeded;
use plimsoll_core::{ClassId, Nanos};
use plimsoll_policing::batch::{Load, Misfit};
use plimsoll_policing::police::{Answer, Choice, ClassSpec, Police, Scene};
use plimsoll_policing::switch::Policer;
use rand::distr::{Distribution, Uniform};
use rand_distr::LogNormal;

/// Requests drawn in advance, 32 KiB of them.
const DRAWN: usize = 4096;
/// Mean sizes of the smallest and the biggest class, and the spread within one.
const MEANS_MS: (f64, f64) = (0.5, 25.0);
const SIGMA: f64 = 0.92;
/// What every class is owed, and was promised.
const TARGET: Nanos = Nanos::from_secs(1);
const PROMISED_PER_S: f64 = 10.0;
/// What requests that wait find before them.
const QUEUE_DELAY: Nanos = Nanos::from_millis(300);
/// Of so many that wait one server is there for, by which about one in ten is let in.
const WAITING_A_SERVER: usize = 400;
/// How long policing has seen the crowd.
const SEEN_MS: u64 = 4_000;

/// One request, in eight bytes.
#[derive(Clone, Copy)]
pub struct Request {
    size_us: u32,
    class: u16,
}

impl Request {
    pub fn class(self) -> ClassId {
        ClassId(self.class)
    }
    pub fn size(self) -> Nanos {
        Nanos::from_micros(u64::from(self.size_us))
    }
}

/// Requests in the order of arrival, over and over.
pub struct Crowd {
    drawn: Vec<Request>,
}

impl Crowd {
    /// Of these classes, each as often as any other: the hardest case for the caches.
    pub fn new(classes: std::ops::Range<u16>) -> Crowd {
        let mut rng = seeded(1, u64::from(classes.end));
        let any_class = Uniform::new(classes.start, classes.end).expect("there are classes");
        let draw = |_| {
            let class = any_class.sample(&mut rng);
            let median_us = mean_us(class - classes.start, classes.len()).ln() - SIGMA * SIGMA / 2.0;
            let size = LogNormal::new(median_us, SIGMA).expect("sigma is finite");
            Request { size_us: size.sample(&mut rng) as u32, class }
        };
        Crowd { drawn: (0..DRAWN).map(draw).collect() }
    }

    #[inline]
    pub fn at(&self, i: usize) -> Request {
        self.drawn[i % DRAWN]
    }
}

/// Spread over the classes so that neither the important nor the others are the small ones.
fn mean_us(class: u16, classes: usize) -> f64 {
    let (low, high) = MEANS_MS;
    let place = (usize::from(class) * 7 + classes / 2) % classes;
    1e3 * low * (high / low).powf(place as f64 / (classes - 1) as f64)
}

/// The load by which about one in ten of so many that wait is let in, and nobody finds an idle server.
pub fn load(waiting: usize) -> Load {
    let servers = waiting.div_ceil(WAITING_A_SERVER) as u32;
    Load { queue_delay: QUEUE_DELAY, in_service: 0.0, servers, idle: false }
}

/// Classes of falling importance, each with a promise that the crowd soon has used up.
fn police(classes: usize, policer: Policer) -> Police {
    let class = |i| ClassSpec {
        priority: 1 + i as u32,
        revenue: 1.0,
        promised_per_s: PROMISED_PER_S,
        target: TARGET,
    };
    let classes: Vec<ClassSpec> = (0..classes).map(class).collect();
    Police::new(&classes, None, Choice::Always(policer), Nanos::ZERO)
}

/// Policing that has seen the crowd long enough to have aimed and staggered. Returns when that was.
fn seen(police: &Police, classes: usize, load: Load, mean: Nanos) -> Nanos {
    let mut rng = seeded(1, 0);
    let misfit = Misfit { estimate: TARGET + TARGET, objective: TARGET };
    for ms in 0..SEEN_MS {
        let now = Nanos::from_millis(ms);
        for class in 0..classes {
            let answer = police.offer(ClassId(class as u16), mean, &load, now, &mut rng);
            if let Answer::Waits { .. } = answer {
                police.processed(if ms % 3 == 0 { Ok(()) } else { Err(misfit) });
            }
        }
        police.tick(&Scene { load, sentry_busy: 0.5 }, now);
    }
    Nanos::from_millis(SEEN_MS)
}

/// The threshold policer with room for half of what comes; the policing and its time.
pub fn thresholded(classes: usize) -> (Police, Nanos) {
    let police = police(classes, Policer::Threshold);
    // A thousand requests a second and class, of a millisecond each: a server a class, and one for half of them.
    // With the queue that it aims at it neither raises nor lowers its sights.
    let load = Load { servers: classes.div_ceil(2) as u32, queue_delay: Nanos::from_millis(100), ..load(1) };
    let now = seen(&police, classes, load, Nanos::from_millis(1));
    (police, now)
}

/// The batch policer in front of servers that are too few: all classes but the first have to wait.
pub fn staggered(classes: usize) -> (Police, Nanos) {
    let police = police(classes, Policer::Batch);
    // There is room for what arrives, but not now: nobody is sent away because of what arrives later.
    let full = Load { queue_delay: Nanos::from_millis(700), servers: 1_000_000, ..load(1) };
    let now = seen(&police, classes, full, Nanos::from_millis(100));
    assert!((1..classes).all(|rank| police.terms(rank).delay > Nanos::ZERO), "nobody has to wait");
    (police, now)
}

/// The batch policer in front of servers that are enough: nobody has to wait to be looked at.
pub fn unhurried(classes: usize) -> (Police, Nanos) {
    (police(classes, Policer::Batch), Nanos::from_secs(1))
}
