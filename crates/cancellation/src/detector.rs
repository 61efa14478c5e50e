//! Whether the objectives are kept, and whether more is being done than before (section 3.3).
//!
//! A request is late from the moment at which it is older than the limit, not when it ends: behind a lock that nobody gives back,
//! none ends. Each counts once, at the earlier of the two. What is seen in a fraction of a second is a small sample, so a share
//! counts as too large only if chance alone would hardly make it so.
//!
//! Where clients are few, all of them soon wait behind that lock: no further request becomes late, and none ends. So those that became late
//! since an objective was missed, or since requests ceased to end in time, count for as long as they run. So do those that became late before,
//! one after the other, where they wait for something: a report that only takes long does not.

use plimsoll_core::{Nanos, Slo, Statistic};

use crate::contention::SPAN;
use crate::decision::Late;
use crate::fading::{self, Pair};
use crate::scene::{Scene, Task};

/// How long throughput must last to be remembered, and how long it is.
const LASTING: Nanos = Nanos::from_secs(2);
const MEMORY: Nanos = Nanos::from_secs(60);
/// More than this, times the highest throughput, is more than before.
const RISE: f64 = 1.1;
/// So many standard deviations are no chance; and so many requests are, whatever the deviation says of so few.
const DEVIATIONS: f64 = 3.0;
const FEW: f64 = 2.0;
const MANY: f64 = 10.0;

/// One limit, and how many were late.
#[derive(Clone, Debug)]
struct Limit {
    limit: Nanos,
    allowed: f64,
    /// All requests, late ones.
    seen: Pair,
    /// Since when it is missed.
    since: Option<Nanos>,
    /// When requests last ended in time.
    flowed: Option<Nanos>,
    /// Requests that became late since the earlier of both and still run, and those that have been waiting for longer than the limit.
    stuck: f64,
}

impl Limit {
    fn new(limit: Nanos, allowed: f64) -> Limit {
        Limit { limit, allowed, seen: Pair::default(), since: None, flowed: None, stuck: 0.0 }
    }

    /// `usual_per_s` is how many requests end a second.
    fn look(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene, usual_per_s: f64) {
        let (mut all, mut late) = (0.0, 0.0);
        for &(latency_ns, count) in &scene.finished {
            match latency_ns.checked_sub(self.limit.0) {
                None | Some(0) => all += count as f64,
                // It became late so long before it ended. Was it seen running then? Ends spread evenly over the time since the last
                // look, so this part of them became late after it.
                Some(by) => {
                    let unseen = count as f64 * (1.0 - by as f64 / elapsed.0 as f64).max(0.0);
                    all += unseen;
                    late += unseen;
                }
            }
        }
        for &(latency_ns, count) in &scene.unseen {
            all += count as f64;
            late += if latency_ns > self.limit.0 { count as f64 } else { 0.0 };
        }
        if all > late {
            self.flowed = Some(now);
        }
        let overdue =
            || scene.tasks.iter().filter(|task| task.request).filter_map(|task| self.overdue(now, task));
        let became_late = overdue().filter(|&by| by < elapsed.0).count() as f64;
        let missed_for = self.since.map_or(Nanos::ZERO, |since| now.since(since));
        // That nothing ends is news only where more than a few would have.
        let dry_for = self.flowed.map_or(Nanos::ZERO, |flowed| now.since(flowed));
        let is_dry = dry_for >= SPAN && usual_per_s * dry_for.as_secs_f64() >= MANY;
        self.stuck = if self.since.is_some() || is_dry {
            // Those that made it so may have become late a moment before it showed.
            let recent = (missed_for.max(dry_for) + SPAN).0;
            let before = waiting(scene, self.limit)
                .filter_map(|task| self.overdue(now, task))
                .filter(|&by| by >= recent);
            (overdue().filter(|&by| by < recent).count() + before.count()) as f64
        } else {
            0.0
        };
        self.seen.add(fading::factor(elapsed, SPAN), all + became_late, late + became_late);
        self.since = self.is_missed().then(|| self.since.unwrap_or(now));
    }

    /// By how much a running request is late, in ns, if it is.
    fn overdue(&self, now: Nanos, task: &Task) -> Option<u64> {
        now.0.saturating_sub(task.started_ns).checked_sub(self.limit.0).filter(|&by| by > 0)
    }

    fn is_missed(&self) -> bool {
        let (late, all) = self.counted();
        let expected = self.allowed * all;
        late > expected + DEVIATIONS * expected.sqrt() + FEW
    }

    /// Late requests and all: those that became late or ended recently, or, if they are more, those that are stuck and those that ended
    /// in time beside them.
    fn counted(&self) -> (f64, f64) {
        let late = self.seen.amount.max(self.stuck);
        (late, self.seen.count - self.seen.amount + late)
    }

    fn late(&self) -> Late {
        let (late, all) = self.counted();
        Late { limit: self.limit, allowed: self.allowed, share: late / all.max(1.0) }
    }
}

/// Requests that have been waiting for one thing for longer than `limit`, each once.
fn waiting(scene: &Scene, limit: Nanos) -> impl Iterator<Item = &Task> {
    let mut last = None;
    let of = scene.uses.iter().filter(move |of| of.waiting_ns > limit.0).map(|of| of.task);
    // In the order of tasks, so those of one task are side by side.
    let each = of.filter(move |&task| last.replace(task) != Some(task));
    each.filter_map(|task| scene.tasks.get(task as usize)).filter(|task| task.request)
}

/// Watches latency and throughput.
#[derive(Debug)]
pub struct Detector {
    limits: Vec<Limit>,
    /// The same at half the limits.
    early: Vec<Limit>,
    /// The promised mean, in ns.
    mean: Option<Nanos>,
    /// Requests, and the time that they took in ns, those that are later than the mean by now included.
    took: Pair,
    /// Seconds, requests that were completed; now, and for a while.
    throughput: Pair,
    lasting: Pair,
    highest_per_s: f64,
    rising: bool,
}

impl Detector {
    /// One that holds requests to `slo`.
    pub fn new(slo: &Slo) -> Detector {
        let percentiles = slo.targets().iter().filter_map(|&(statistic, limit)| match statistic {
            Statistic::Percentile(p) => Some((limit, 1.0 - p.fraction())),
            Statistic::Mean => None,
        });
        let limits: Vec<_> = percentiles.map(|(limit, allowed)| Limit::new(limit, allowed)).collect();
        let early = limits.iter().map(|l| Limit::new(Nanos(l.limit.0 / 2), l.allowed)).collect();
        Detector {
            limits,
            early,
            mean: slo.mean(),
            took: Pair::default(),
            throughput: Pair::default(),
            lasting: Pair::default(),
            highest_per_s: 0.0,
            rising: false,
        }
    }

    /// Takes in what happened in the last `elapsed`, which is not zero.
    pub fn look(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene) {
        for limit in self.limits.iter_mut().chain(&mut self.early) {
            limit.look(now, elapsed, scene, self.highest_per_s);
        }
        let factor = fading::factor(elapsed, SPAN);
        let finished = scene.completions() as f64;
        if let Some(mean) = self.mean {
            let ages = scene.tasks.iter().filter(|t| t.request).map(|t| now.0.saturating_sub(t.started_ns));
            let (late, ages_ns) = ages
                .filter(|&age| age > mean.0)
                .fold((0.0, 0.0), |(n, sum), age| (n + 1.0, sum + age as f64));
            let finished_ns: f64 = scene.ended().map(|(ns, count)| ns as f64 * count as f64).sum();
            // Those that run are counted at every look, for the length of one look.
            let weight = elapsed.0 as f64 / SPAN.0 as f64;
            self.took.add(factor, finished + late * weight, finished_ns + ages_ns * weight);
        }
        self.throughput.add(factor, elapsed.as_secs_f64(), finished);
        let expected = self.highest_per_s * self.throughput.count;
        self.rising = self.throughput.amount > RISE * expected + DEVIATIONS * expected.sqrt() + FEW;
        self.lasting.add(fading::factor(elapsed, LASTING), elapsed.as_secs_f64(), finished);
        self.highest_per_s = (self.highest_per_s * fading::factor(elapsed, MEMORY)).max(self.lasting.ratio());
    }

    /// The objective that is missed by most, if any is.
    pub fn missed(&self) -> Option<Late> {
        let by = |late: &Late| late.share / late.allowed;
        let missed = self.limits.iter().filter(|limit| limit.is_missed()).map(Limit::late);
        missed.max_by(|a, b| by(a).total_cmp(&by(b))).or_else(|| {
            let limit = self.mean?;
            let mean_ns = self.took.ratio();
            // A mean has no share of requests that may be late; by how much it is missed is told in the same terms.
            (self.took.count > 10.0 && mean_ns > limit.0 as f64).then_some(Late {
                limit,
                allowed: 1.0,
                share: mean_ns / limit.0 as f64,
            })
        })
    }

    /// Whether as many requests are late by half of the limits as may be by the whole.
    pub fn may_soon_miss(&self) -> bool {
        self.early.iter().any(Limit::is_missed)
            || self.mean.is_some_and(|mean| self.took.ratio() > 0.75 * mean.0 as f64)
    }

    /// Whether more is being completed than ever in the last minute: what takes longer then is growth, no overload.
    pub fn is_rising(&self) -> bool {
        self.rising
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Percentile;

    use super::*;
    use crate::scene::Use;
    use crate::testing::{at_ms, request};

    const LOOK: Nanos = Nanos::from_millis(20);

    fn p99(limit_ms: u64) -> Detector {
        Detector::new(&Slo::new([(Percentile::P99, Nanos::from_millis(limit_ms))]).unwrap())
    }

    /// What ends in each of `looks`, in ms.
    fn finish(detector: &mut Detector, looks: std::ops::Range<u64>, latencies_ms: &[u64]) {
        for look in looks {
            let finished: Vec<_> = latencies_ms.iter().map(|ms| (ms * 1_000_000, 1)).collect();
            detector.look(at_ms(20 * look), LOOK, &Scene { finished, ..Scene::default() });
        }
    }

    #[test]
    fn an_objective_that_is_kept_is_not_missed() {
        let mut detector = p99(50);
        finish(&mut detector, 1..100, &[5; 10]);
        assert!(detector.missed().is_none() && !detector.may_soon_miss());
        finish(&mut detector, 100..101, &[5, 5, 70]);
        assert!(detector.missed().is_none(), "one that is late is chance");
    }

    #[test]
    fn late_ends_are_noticed() {
        let mut detector = p99(50);
        finish(&mut detector, 1..100, &[5; 10]);
        finish(&mut detector, 100..110, &[5, 5, 5, 5, 5, 55, 55, 55]);
        let late = detector.missed().expect("a third is late");
        assert!(late.share > 0.1 && late.limit == Nanos::from_millis(50), "{late:?}");
    }

    #[test]
    fn who_was_never_seen_is_late_whenever_that_becomes_known() {
        // Each is late by more than the time between two looks: one that was seen to run has been counted then.
        let late = |seen: bool| {
            let mut detector = p99(50);
            finish(&mut detector, 1..100, &[5; 10]);
            for look in 100..110 {
                let (ended, late) = (vec![(5_000_000, 5)], vec![(120_000_000, 3)]);
                let scene = match seen {
                    true => Scene { finished: [ended, late].concat(), ..Scene::default() },
                    false => Scene { finished: ended, unseen: late, ..Scene::default() },
                };
                detector.look(at_ms(20 * look), LOOK, &scene);
            }
            detector.missed()
        };
        assert!(late(true).is_none());
        assert!(late(false).is_some_and(|late| late.share > 0.1));
    }

    #[test]
    fn those_that_never_end_are_noticed_and_counted_once() {
        let mut detector = p99(50);
        finish(&mut detector, 1..100, &[5; 10]);
        // From 2 s on nothing ends; ten requests arrive every look.
        let mut missed_at = None;
        for look in 100..115u64 {
            let tasks = (100..look).flat_map(|l| (0..10).map(move |i| request(l * 10 + i, 20 * l))).collect();
            detector.look(at_ms(20 * look), LOOK, &Scene { tasks, ..Scene::default() });
            if detector.missed().is_some() && missed_at.is_none() {
                missed_at = Some(20 * look);
            }
        }
        assert_eq!(missed_at, Some(2_060), "as soon as the first ten are older than 50 ms");
        assert!(detector.limits[0].seen.count < 160.0, "{:?}", detector.limits[0].seen);
    }

    #[test]
    fn it_stays_missed_while_all_clients_wait_for_ever() {
        let mut detector = p99(50);
        finish(&mut detector, 1..100, &[5; 10]);
        // A report that has been running for long, and eight clients that wait from 2 s on: nobody else comes, nobody ends.
        let stuck = |look: u64| {
            let waiting = (0..8).map(|i| request(i, 2_000));
            let tasks = waiting.chain((8..20).map(|i| request(i, 500))).collect();
            (at_ms(20 * look), Scene { tasks, ..Scene::default() })
        };
        for look in 100..500u64 {
            let (now, scene) = stuck(look);
            detector.look(now, LOOK, &scene);
            assert_eq!(detector.missed().is_some(), look >= 103, "{look}");
        }
        // They are let go, and the report runs on.
        for look in 500..600 {
            let (now, mut scene) = stuck(look);
            scene.tasks.retain(|task| task.id >= 8);
            scene.finished = vec![(5_000_000, 10)];
            detector.look(now, LOOK, &scene);
        }
        assert!(detector.missed().is_none(), "{detector:?}");
    }

    #[test]
    fn a_handful_of_clients_that_all_wait_are_noticed() {
        let mut detector = p99(50);
        // Five hundred requests a second; from 2 s on three clients wait, and there are no more.
        finish(&mut detector, 1..100, &[5; 10]);
        let mut missed_at = None;
        for look in 100..300u64 {
            let tasks = (0..3).map(|i| request(i, 2_000)).collect();
            detector.look(at_ms(20 * look), LOOK, &Scene { tasks, ..Scene::default() });
            if detector.missed().is_some() && missed_at.is_none() {
                missed_at = Some(20 * look);
            }
        }
        assert!(missed_at.is_some_and(|ms| ms < 3_000), "{missed_at:?}");
        assert!(detector.missed().is_some());
    }

    #[test]
    fn clients_that_get_stuck_one_by_one_are_noticed() {
        // A table is locked row by row: four clients run into it 300 ms apart, and the others go on until there are none.
        let missed_at = |waits: bool| {
            let mut detector = p99(50);
            finish(&mut detector, 1..100, &[5; 10]);
            let mut missed_at = None;
            for look in 100..300u64 {
                let ms = 20 * look;
                let tasks: Vec<_> = (0..4)
                    .map(|i| request(i, 2_000 + 300 * i))
                    .filter(|r| r.started_ns <= at_ms(ms).0)
                    .collect();
                let finished = if tasks.len() < 4 { vec![(5_000_000, 2)] } else { vec![] };
                let wait = |(index, task): (usize, &Task)| {
                    let waiting_ns = if waits { at_ms(ms).0 - task.started_ns } else { 0 };
                    Use { task: index as u32, waiting_ns, ..Use::default() }
                };
                let uses = tasks.iter().enumerate().map(wait).collect();
                detector.look(at_ms(ms), LOOK, &Scene { tasks, uses, finished, ..Scene::default() });
                if detector.missed().is_some() && missed_at.is_none() {
                    missed_at = Some(ms);
                }
            }
            assert_eq!(detector.missed().is_some(), missed_at.is_some(), "it stays missed");
            missed_at
        };
        let at = missed_at(true);
        assert!(at.is_some_and(|ms| (2_900..3_200).contains(&ms)), "{at:?}");
        assert_eq!(missed_at(false), None, "four that only take long");
    }

    #[test]
    fn long_ones_alone_are_no_jam() {
        let mut detector = p99(50);
        // Nothing was asked for in the last minute but three reports, one a second.
        for look in 1..3_000u64 {
            let begun =
                (0..3).map(|i| request(i, 100 + 1_000 * i)).filter(|r| r.started_ns <= at_ms(20 * look).0);
            detector.look(at_ms(20 * look), LOOK, &Scene { tasks: begun.collect(), ..Scene::default() });
            assert!(detector.missed().is_none(), "{look}");
        }
    }

    #[test]
    fn half_of_the_limit_raises_suspicion() {
        let mut detector = p99(50);
        finish(&mut detector, 1..100, &[30; 10]);
        assert!(detector.missed().is_none() && detector.may_soon_miss());
    }

    #[test]
    fn more_work_done_than_ever_is_growth() {
        let mut detector = p99(50);
        finish(&mut detector, 1..200, &[5; 10]);
        assert!(!detector.is_rising());
        finish(&mut detector, 200..210, &[5; 20]);
        assert!(detector.is_rising());
        finish(&mut detector, 210..400, &[5; 20]);
        assert!(!detector.is_rising(), "it is what is usual now");
        finish(&mut detector, 400..450, &[5]);
        finish(&mut detector, 450..460, &[5; 20]);
        assert!(!detector.is_rising(), "back to what it was");
    }

    #[test]
    fn a_mean_is_an_objective_too() {
        let mut detector = Detector::new(&Slo::new([(Statistic::Mean, Nanos::from_millis(50))]).unwrap());
        finish(&mut detector, 1..100, &[20; 10]);
        assert!(detector.missed().is_none() && !detector.may_soon_miss());
        finish(&mut detector, 100..150, &[20, 120]);
        assert!(detector.missed().is_some());
    }
}
