//! What a call of each API costs one service, learned from what the mix of calls costs.
//!
//! In each step one number is seen: the load that a call was in the mean. Who called how often is known, and differs from step to step, by
//! chance and because rates change; so the mean differs, and by that it is told apart whose calls cost more (a Kalman filter: linear
//! regression that forgets slowly). It starts from how long the service works for each by what traces tell, and from "all cost the same"
//! where they do not: once limits hold, steps have nearly the same mix, and would tell nothing new for long. If the mean changes far more
//! than the mix explains, in two steps running, it is the service that has changed, not its callers: it has lost instances, or got some.

use crate::topology::{ApiId, OwnTime};

/// Callers that are told apart, at most: effort and memory grow with their square. Where there are more, all cost the same.
const MOST: usize = 32;
/// How far costs may differ before anything was seen of that, as a part of their mean,
const DIFFER: f64 = 0.4;
/// and how far from what traces tell, as what a call occupies is not always what the service has its workers or CPUs for;
const DIFFER_TOLD: f64 = 0.1;
/// who has had this many traced calls is told about,
const TOLD: f64 = 30.0;
/// and how far off their mean may be.
const MEAN: f64 = 0.2;
/// How fast what was learned grows old, in variance a second: of the mean,
const DRIFT: f64 = 0.001;
/// and of each.
const DRIFT_EACH: f64 = 0.000_1;
/// Callers with less than this part of the work tell nothing about themselves;
const RARE: f64 = 0.01;
/// what was known of them is forgotten in about this time.
const FORGET_S: f64 = 60.0;
/// Samples that are off by more than this, and by more than chance, count as a change of the service.
const OFF: f64 = 0.15;
/// By such a sample calls may cost up to this many times what was known.
const SUSPECTED: f64 = 3.0;
/// The squared deviations, beyond that of service times, of what a sample says from what it should: measuring is not exact.
const INEXACT: f64 = 0.02 * 0.02;
/// Squared coefficient of variation of a call's work and of when it is counted, taken together: that of exponential times, and again.
const SCATTER: f64 = 2.0;

/// One step's sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Load that a call was in the mean, per call a second.
    pub mean: f64,
    /// How many calls that is the mean of.
    pub calls: f64,
    /// Over how many seconds.
    pub seconds: f64,
    /// Whether those who were served are those who were admitted; otherwise nobody is told apart.
    pub mixed: bool,
    /// Whether everything was busy: then this is what the service can do, and no chance of who happened to come.
    pub full: bool,
}

/// The costs of one service's callers.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Whose they are, in order; one entry for all where there are too many.
    apis: Vec<ApiId>,
    /// How long the service works for a call of each, in seconds, and whether that was told; one for all while nothing was.
    base: Vec<f64>,
    told: Vec<bool>,
    /// In units of `unit` and the base, and the covariances of what is not known of them.
    cost: Vec<f64>,
    covariance: Vec<f64>,
    unit: Option<f64>,
    /// How many times what it should be the last sample was, if that was far off.
    off: Option<f64>,
    /// The part of each of the work as the base has it, and what that comes to for a call.
    share: Vec<f64>,
    work: f64,
    gain: Vec<f64>,
}

impl Costs {
    /// The load that a call of this API is, per call a second; nothing before the first sample. Of one that was not among the callers
    /// when something was last heard, what was taken to be usual.
    pub fn of(&self, api: ApiId) -> Option<f64> {
        let place = if self.apis.is_empty() { Some(0) } else { self.apis.binary_search(&api).ok() };
        let known = place.and_then(|place| Some(self.cost.get(place)? * self.base.get(place)?));
        let cost = known.unwrap_or_else(|| self.usual());
        self.unit.map(|unit| unit * cost)
    }

    /// How many times what is known calls may cost by the last sample. One that is far off may be chance; until the next tells, nobody is to be let
    /// in by what may not be true any more.
    pub fn suspected(&self) -> f64 {
        self.off.map_or(1.0, |off| off.clamp(1.0, SUSPECTED))
    }

    /// What the last sample had one suspect is not so.
    pub fn trust(&mut self) {
        self.off = None;
    }

    /// Whether there was a sample.
    pub fn is_known(&self) -> bool {
        self.unit.is_some()
    }

    /// Brings the list of callers up to date. Who stays keeps what was learned. Whether it was another list.
    pub fn callers(&mut self, users: &[(ApiId, f64)]) -> bool {
        let ids = || users.iter().map(|&(api, _)| api).filter(|_| users.len() <= MOST);
        if !self.cost.is_empty() && self.apis.iter().copied().eq(ids()) {
            return false;
        }
        let n = if users.len() <= MOST { users.len() } else { 1 };
        let place = |api: ApiId| self.apis.binary_search(&api).ok();
        let before: Vec<Option<usize>> = ids().map(place).collect();
        let before = |at: usize| before.get(at).copied().flatten();
        let usual = self.usual();
        let base = (0..n).map(|at| before(at).map_or(usual, |place| self.base[place])).collect();
        let told = (0..n).map(|at| before(at).is_some_and(|place| self.told[place])).collect();
        let cost = (0..n).map(|at| before(at).map_or(1.0, |place| self.cost[place])).collect();
        let new = |a: usize, b: usize| MEAN * MEAN + if a == b { doubt(false) } else { 0.0 };
        let covariance = (0..n * n).map(|at| {
            let (a, b) = (at / n, at % n);
            match (before(a), before(b)) {
                (Some(a), Some(b)) => self.covariance[a * self.cost.len() + b],
                _ => new(a, b),
            }
        });
        self.covariance = covariance.collect();
        (self.base, self.told, self.cost) = (base, told, cost);
        self.apis = ids().collect();
        true
    }

    /// How long a call of somebody of whom nothing is known keeps the service, as of the base.
    fn usual(&self) -> f64 {
        if self.base.is_empty() { 1.0 } else { self.base.iter().sum::<f64>() / self.base.len() as f64 }
    }

    /// Takes in what traces tell of each caller, in order, where callers call so often. What a call costs in the mean stays what it was.
    pub fn tell(&mut self, own: &[OwnTime], flows: impl Iterator<Item = f64> + Clone) {
        let callers = self.cost.len();
        let known = || own.iter().take(callers).enumerate().filter(|(_, own)| own.calls >= TOLD);
        // Every step asks, and few bring news.
        if self.apis.len() < 2 || known().all(|(a, own)| self.base[a] == own.mean_s) {
            return;
        }
        let mean = self.mean(flows.clone());
        let mut turned = false;
        for (a, own) in known() {
            self.base[a] = own.mean_s;
            if !std::mem::replace(&mut self.told[a], true) {
                (turned, self.cost[a]) = (true, 1.0);
            }
        }
        let told = || (0..self.cost.len()).filter(|&a| self.told[a]);
        let usual = told().map(|a| self.base[a]).sum::<f64>() / told().count() as f64;
        (0..self.cost.len()).filter(|&a| !self.told[a]).for_each(|a| self.base[a] = usual);
        if turned {
            // Who differs how is another question now; how far off the mean may be is not.
            let n = self.cost.len();
            let rows = self.covariance.chunks_exact(n).zip(&self.share);
            let mean: f64 = rows.map(|(row, share)| share * dot(row, &self.share)).sum();
            let told = &self.told;
            let differ = |a: usize, b: usize| if a == b { doubt(told[a]) } else { 0.0 };
            self.covariance = (0..n * n).map(|at| mean + differ(at / n, at % n)).collect();
        }
        if let (Some(before), Some(after)) = (mean, self.mean(flows)) {
            self.grow(before / after);
        }
    }

    /// The load that a call was to be in the mean by what is known, where callers call so often.
    pub fn mean(&mut self, flows: impl Iterator<Item = f64>) -> Option<f64> {
        self.shares(flows);
        let unit = self.unit?;
        Some(unit * self.work * dot(&self.share, &self.cost))
    }

    /// How far off that may be, as a part of it: a mix that was never seen is known as little as who has more of it than before.
    pub fn unsure(&mut self, flows: impl Iterator<Item = f64>) -> f64 {
        let anybody = self.shares(flows);
        let expected = dot(&self.share, &self.cost);
        if anybody && expected > 0.0 { self.variance().max(0.0).sqrt() / expected } else { 0.0 }
    }

    /// The square of how far off the mean of a call may be, in units of `unit`, where the work is shared like that; and how far each goes with it,
    /// in `gain`.
    fn variance(&mut self) -> f64 {
        self.gain.clear();
        self.gain.extend(self.covariance.chunks_exact(self.share.len()).map(|row| dot(row, &self.share)));
        dot(&self.gain, &self.share)
    }

    /// Learns from a sample of a step in which callers called so often.
    pub fn take(&mut self, sample: Sample, flows: impl Iterator<Item = f64>) {
        if !(sample.mean.is_finite() && sample.mean > 0.0) || self.cost.is_empty() {
            return;
        }
        self.shares(flows);
        let expected = dot(&self.share, &self.cost);
        let mean = sample.mean / self.work;
        let Some(unit) = self.unit.filter(|_| expected > 0.0) else {
            self.unit = Some(mean);
            return;
        };
        let n = self.cost.len();
        for a in 0..n {
            // Who hardly calls any more may cost something else by now. If it were never tried again, nobody would know.
            if self.share[a] < RARE {
                self.cost[a] += (expected - self.cost[a]) * (sample.seconds / FORGET_S).min(1.0);
            }
            for b in 0..n {
                let each = if a == b { DRIFT_EACH } else { 0.0 };
                self.covariance[a * n + b] += sample.seconds * (DRIFT + each);
            }
        }
        let noise = expected * expected * (INEXACT + SCATTER / sample.calls.max(1.0));
        let variance = self.variance() + noise;
        let surprise = mean / unit - expected;
        let (up, ratio) = (surprise > 0.0, mean / unit / expected);
        if ratio.max(1.0 / ratio) > 1.0 + OFF && surprise.abs() > 2.5 * variance.sqrt() {
            let sure = sample.full && surprise > 4.0 * variance.sqrt();
            if sure || self.off.is_some_and(|off| (off > 1.0) == up) {
                self.unit = Some(unit * ratio);
                self.off = None;
            } else {
                self.off = Some(ratio);
            }
            return;
        }
        self.off = None;
        if !sample.mixed {
            let part = (variance - noise) / variance;
            self.unit = Some(unit * (1.0 + part * (ratio - 1.0)));
            return;
        }
        for a in 0..n {
            // A call costs something, whatever a sample says.
            self.cost[a] = (self.cost[a] + self.gain[a] / variance * surprise).max(0.05 * expected);
            for b in 0..n {
                self.covariance[a * n + b] -= self.gain[a] * self.gain[b] / variance;
            }
        }
    }

    /// All calls cost so many times what was known.
    pub fn grow(&mut self, factor: f64) {
        self.unit = self.unit.map(|unit| unit * factor);
    }

    /// A call is at least so much load in the mean.
    pub fn at_least(&mut self, mean: f64, flows: impl Iterator<Item = f64>) {
        if mean.is_finite() && mean > 0.0 {
            let known = self.mean(flows).filter(|&known| known > 0.0);
            let unit = self.unit.unwrap_or(mean / self.work);
            self.unit = Some(unit * known.map_or(1.0, |known| (mean / known).max(1.0)));
        }
    }

    /// What part of the work is for whom; of as many calls of each where nobody called. Whether anybody did.
    fn shares(&mut self, mut flows: impl Iterator<Item = f64>) -> bool {
        self.share.clear();
        if self.apis.is_empty() {
            self.share.push(1.0);
            self.work = 1.0;
            return flows.any(|flow| flow > 0.0);
        }
        self.share.extend(flows.take(self.cost.len()));
        self.share.resize(self.cost.len(), 0.0);
        let mut calls: f64 = self.share.iter().sum();
        let anybody = calls > 0.0;
        if !anybody {
            self.share.fill(1.0);
            calls = self.share.len() as f64;
        }
        self.share.iter_mut().zip(&self.base).for_each(|(share, base)| *share *= base);
        let work: f64 = self.share.iter().sum();
        self.share.iter_mut().for_each(|share| *share /= work);
        self.work = work / calls;
        anybody
    }
}

/// How far what is known of a caller may be off beside the mean, squared.
fn doubt(is_told: bool) -> f64 {
    let differ = if is_told { DIFFER_TOLD } else { DIFFER };
    differ * differ
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng::seeded;
    use rand::RngExt;

    use super::*;

    fn users(n: u32) -> Vec<(ApiId, f64)> {
        (0..n).map(|api| (ApiId(api), 1.0)).collect()
    }

    fn api(at: usize) -> ApiId {
        ApiId(at as u32)
    }

    fn sample(mean: f64) -> Sample {
        Sample { mean, calls: 1_000.0, seconds: 0.25, mixed: true, full: false }
    }

    #[test]
    fn costs_are_told_apart_by_mixes() {
        let (costs, mut rng) = ([0.001, 0.002, 0.0005], seeded(1, 0));
        let mut learned = Costs::default();
        learned.callers(&users(3));
        for _ in 0..200 {
            let flows = [0, 1, 2].map(|_| 100.0 * rng.random::<f64>());
            let mean = dot(&flows, &costs) / flows.iter().sum::<f64>();
            learned.take(sample(mean * rng.random_range(0.98..1.02)), flows.into_iter());
        }
        for (at, cost) in costs.iter().enumerate() {
            let of = learned.of(api(at)).unwrap();
            assert!((of / cost - 1.0).abs() < 0.1, "{of} for {cost}");
        }
    }

    #[test]
    fn what_traces_tell_is_what_costs_differ_by_where_mixes_do_not() {
        let own = |mean_s| OwnTime { mean_s, calls: 100.0 };
        let mean = |flows: &[f64; 3]| dot(flows, &[0.001, 0.002, 0.001]) / flows.iter().sum::<f64>();
        let mut learned = Costs::default();
        learned.callers(&users(3));
        let usual = [100.0, 50.0, 10.0];
        (0..40).for_each(|_| learned.take(sample(mean(&usual)), usual.into_iter()));
        let of = |learned: &Costs| [0, 1, 2].map(|at| learned.of(api(at)).unwrap());
        assert!(
            of(&learned).iter().all(|cost| (cost / mean(&usual) - 1.0).abs() < 0.01),
            "one mix tells nobody apart"
        );

        // The third was called too seldom to be told about: it is taken to be as the others are in the mean.
        let told = [own(0.02), own(0.06), OwnTime { mean_s: 9.0, calls: 3.0 }];
        learned.tell(&told, usual.into_iter());
        let [cheap, dear, rare] = of(&learned);
        assert!(
            (dear / cheap - 3.0).abs() < 1e-9 && (rare / cheap - 2.0).abs() < 1e-9,
            "{cheap} {dear} {rare}"
        );
        let known = learned.mean(usual.into_iter()).unwrap();
        assert!((known / mean(&usual) - 1.0).abs() < 0.01, "the mean is what was measured");

        // What is measured counts for more in the end.
        let mut rng = seeded(1, 0);
        for _ in 0..1_000 {
            let flows = [100.0, 50.0, 10.0].map(|calls| calls * rng.random_range(0.7..1.3));
            learned.tell(&told, flows.into_iter());
            learned.take(sample(mean(&flows)), flows.into_iter());
        }
        let [cheap, dear, _] = of(&learned);
        assert!((dear / cheap - 2.0).abs() < 0.2, "{}", dear / cheap);
    }

    #[test]
    fn a_mix_that_was_not_seen_is_known_less_than_one_that_was() {
        let mut learned = Costs::default();
        learned.callers(&users(2));
        let usual = [100.0, 100.0];
        (0..100).for_each(|_| learned.take(sample(0.001), usual.into_iter()));
        let [seen, other] = [usual, [100.0, 0.0]].map(|flows| learned.unsure(flows.into_iter()));
        assert!(seen < 0.04 && other > 0.1, "{seen} {other}");
        learned.take(sample(0.001), [100.0, 0.0].into_iter());
        let after = learned.unsure([100.0, 0.0].into_iter());
        assert!(after < 0.5 * other, "{after} after {other}");
    }

    #[test]
    fn a_service_that_loses_instances_costs_all_its_callers_more() {
        let mut learned = Costs::default();
        learned.callers(&users(2));
        for at in 0..100 {
            let flows = [100.0 + f64::from(at % 7), 50.0];
            let mean = (flows[0] * 0.001 + flows[1] * 0.002) / (flows[0] + flows[1]);
            learned.take(sample(mean), flows.into_iter());
        }
        let before = [0, 1].map(|at| learned.of(api(at)).unwrap());
        let mean = learned.mean([100.0, 50.0].into_iter()).unwrap();
        (0..2).for_each(|_| learned.take(sample(mean * 1.5), [100.0, 50.0].into_iter()));
        for (at, before) in before.into_iter().enumerate() {
            assert!((learned.of(api(at)).unwrap() / before - 1.5).abs() < 0.01);
        }
    }

    #[test]
    fn one_odd_sample_is_suspected_until_the_next() {
        let mut learned = Costs::default();
        learned.callers(&users(1));
        (0..20).for_each(|_| learned.take(sample(0.001), [10.0].into_iter()));
        let mut suspected = |mean| {
            learned.take(sample(mean), [10.0].into_iter());
            assert!((learned.of(api(0)).unwrap() - 0.001).abs() < 1e-9, "and changes nothing");
            learned.suspected()
        };
        assert_eq!([0.1, 0.001, 0.0001].map(&mut suspected), [3.0, 1.0, 1.0]);
        assert!((suspected(0.002) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn but_one_while_all_are_busy_does() {
        let mut learned = Costs::default();
        learned.callers(&users(1));
        (0..20).for_each(|_| learned.take(sample(0.001), [10.0].into_iter()));
        learned.take(Sample { full: true, ..sample(0.0015) }, [10.0].into_iter());
        assert!((learned.of(api(0)).unwrap() - 0.0015).abs() < 1e-9);
    }

    #[test]
    fn who_stays_keeps_what_was_learned() {
        let mut learned = Costs::default();
        learned.callers(&users(2));
        for at in 0..300 {
            let flows = if at % 2 == 0 { [100.0, 20.0] } else { [20.0, 100.0] };
            let mean = (flows[0] * 0.001 + flows[1] * 0.002) / 120.0;
            learned.take(sample(mean), flows.into_iter());
        }
        let [first, second] = [0, 1].map(|at| learned.of(api(at)).unwrap());
        assert!(second > 1.5 * first);
        learned.callers(&[(ApiId(1), 1.0), (ApiId(7), 1.0)]);
        assert_eq!(learned.of(api(1)), Some(second));
        assert!(learned.of(api(7)).is_some());
    }

    /// Who calls may change while nothing is heard.
    #[test]
    fn nobody_has_the_cost_of_whoever_had_the_place_before() {
        let mut learned = Costs::default();
        learned.callers(&[(ApiId(2), 1.0), (ApiId(5), 1.0)]);
        assert_eq!((learned.of(api(2)), learned.is_known()), (None, false));
        for at in 0..300 {
            let flows = if at % 2 == 0 { [100.0, 20.0] } else { [20.0, 100.0] };
            let mean = (flows[0] * 0.001 + flows[1] * 0.002) / 120.0;
            learned.take(sample(mean), flows.into_iter());
        }
        let [cheap, dear] = [2, 5].map(|at| learned.of(api(at)).unwrap());
        for stranger in [0, 1, 3, 9] {
            let cost = learned.of(api(stranger)).unwrap();
            assert!(cost > 1.05 * cheap && cost < 0.95 * dear, "{stranger}: {cost}, of {cheap} and {dear}");
        }
    }

    #[test]
    fn too_many_callers_cost_the_same() {
        let mut learned = Costs::default();
        learned.callers(&users(MOST as u32 + 1));
        learned.take(sample(0.5), std::iter::repeat(1.0));
        assert_eq!((learned.of(api(0)), learned.of(api(MOST))), (Some(0.5), Some(0.5)));
    }
}
