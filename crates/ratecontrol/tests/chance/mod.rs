//! How rates follow what sentries tell that stand before services: of times that differ, now and then nothing, and all of it by chance.

use plimsoll_core::Nanos;
use plimsoll_core::rng::{Rng, seeded};
use plimsoll_ratecontrol::{Api, ApiSignal, Observation, RateControl, ServiceSignal, Settings};
use rand::RngExt;
use rand_distr::{Distribution, Poisson};

use crate::fluid::{Fluid, Told};

const SLO: Nanos = Nanos::from_secs(1);
const STEP_S: f64 = 0.25;

/// Requests that come by chance in a time in which `mean` are to be expected.
fn by_chance(rng: &mut Rng, mean: f64) -> f64 {
    Poisson::new(mean).unwrap().sample(rng)
}

/// A step has so many parts of so long: those who look do so in different ones.
const PARTS: usize = 5;
const PART_S: f64 = STEP_S / PARTS as f64;

/// What was counted since somebody looked.
#[derive(Default)]
struct Counted {
    parts: f64,
    calls: [f64; 3],
}

impl Counted {
    fn add(&mut self, per_s: [f64; 3]) {
        self.parts += 1.0;
        self.calls.iter_mut().zip(per_s).for_each(|(sum, per_s)| *sum += per_s * PART_S);
    }

    fn look(&mut self) -> [f64; 3] {
        let Counted { parts, calls } = std::mem::take(self);
        calls.map(|calls| calls / (parts * PART_S))
    }
}

const CAPACITY: [f64; 3] = [400.0, 200.0, 400.0];

/// Goodput, four times a second, of one API that passes services of 400, 200 and 400 calls a second, from when `surge` requests are sent.
/// Told as by real sentries: what waits and what was served is `read`, and what comes at the entry `reported`, so many parts of a step before
/// rates are decided, and one look in eight is missed.
fn fronted(seed: u64, surge: f64, read: usize, reported: usize) -> Vec<f64> {
    let rng = &mut seeded(seed, 5);
    let apis = vec![Api::along([0, 1, 2], SLO, 1)];
    let (mut fleet, mut control) =
        (Fluid::new(apis, &CAPACITY, &[0.0]), RateControl::new(Settings::default()));
    let (mut served, mut came, mut in_time) = (Counted::default(), Counted::default(), Counted::default());
    let (mut services, mut entry, mut good) = (None, [0.0; 3], Vec::new());
    let calm = 60;
    for part in 0..(calm + 80) * PARTS {
        let sent = if part < calm * PARTS { 55.0 } else { surge };
        fleet.offered = vec![by_chance(rng, sent * PART_S) / PART_S];
        // How long calls take is chance, too; who tells how long they wait goes by how long they take on average.
        fleet.capacity = CAPACITY.map(|per_s| by_chance(rng, per_s * PART_S) / PART_S).to_vec();
        let (mut told, apis) = fleet.run(PART_S, Told::Front);
        fleet.capacity = CAPACITY.to_vec();
        for (told, wait_s) in told.iter_mut().zip(fleet.waits_s()) {
            told.queue_delay = Some(Nanos::from_secs_f64(wait_s));
        }
        served.add([0, 1, 2].map(|at| told[at].served_per_s.unwrap()));
        came.add([fleet.offered[0], apis[0].admitted_per_s.unwrap(), 0.0]);
        in_time.add([apis[0].goodput_per_s.unwrap(), 0.0, 0.0]);
        let left = PARTS - 1 - part % PARTS;
        if left == reported {
            entry = came.look();
        }
        if left == read && rng.random_range(0..8) > 0 {
            let served_per_s = served.look();
            let with = |at: usize| ServiceSignal { served_per_s: Some(served_per_s[at]), ..told[at] };
            services = Some([0, 1, 2].map(with));
        }
        if left == 0 {
            let goodput = in_time.look()[0];
            good.push(goodput);
            let api = ApiSignal {
                offered_per_s: Some(entry[0]),
                admitted_per_s: Some(entry[1]),
                goodput_per_s: Some(goodput),
                tail_latency: apis[0].tail_latency,
            };
            let nothing = [ServiceSignal::default(); 3];
            let services = services.take().unwrap_or(nothing);
            let seen = Observation { services: &services, apis: &[api] };
            fleet.rates = control.step(fleet.now, &fleet.topology, &seen).rates.to_vec();
        }
    }
    good.split_off(calm)
}

/// Seconds until goodput stays within a tenth of 200, and what chance makes of it.
fn steady_s(good: &[f64]) -> f64 {
    let is_off = |second: &[f64]| {
        let sum = second.iter().sum::<f64>() / 4.0;
        (sum - 200.0).abs() > 20.0 + 3.0 * 200f64.sqrt()
    };
    good.windows(4).rposition(is_off).map_or(0.0, |last| (last + 1) as f64 / 4.0)
}

#[test]
fn what_sentries_tell_of_different_times_is_followed_too() {
    let (mut steady, mut good) = (Vec::new(), 0.0);
    for seed in 0..20 {
        for surge in [300.0, 540.0, 900.0] {
            for (read, reported) in [(0, 0), (1, 0), (0, 2), (1, 3), (1, 4), (4, 4), (3, 1)] {
                let by_quarter = fronted(seed, surge, read, reported);
                steady.push(steady_s(&by_quarter));
                good += by_quarter[40..].iter().sum::<f64>() / by_quarter[40..].len() as f64;
            }
        }
    }
    steady.sort_by(f64::total_cmp);
    let late = steady.iter().filter(|&&s| s > 2.0).count();
    assert!(late * 100 <= steady.len(), "{late} of {} after more than 2 s: {steady:?}", steady.len());
    let good = good / steady.len() as f64;
    assert!(good >= 0.95 * 200.0, "{good}");
}
