//! One run: some calm, in which paths are learnt, then a surge, and things that happen meanwhile. What is judged is what the load generator
//! saw.

use std::cell::RefCell;

use plimsoll_core::Nanos;
use plimsoll_herald::clock;
use plimsoll_loadgen::{HttpVersion, Plan};
use plimsoll_simulator::fleet::account::TIMELINE_STEP;
use plimsoll_simulator::fleet::overshoot::Overshoot;
use plimsoll_simulator::fleet::report::{converged, share};
use plimsoll_simulator::reproduce::findings::Row;
use plimsoll_testbed::control_group::family;

use super::bed::{Bed, Entry, mix};
use super::scene::Scene;
use crate::observed::{self, Seen};
use crate::reproduce::machine::{Cpus, waited_s};

/// Whoever has waited for so long has left.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// Connections of the load generator: as many as wait until they leave.
const CONNECTIONS: usize = 4_000;
/// How often it is seen what services are asked for.
const LOOK: Nanos = Nanos::from_millis(250);
/// The machine was too slow, or busy with something else, where a call waited longer than this for processors in the mean, where more was
/// stolen, in per cent, or where the load generator itself was later than this with one request in a hundred. A call takes 10 ms.
const LONGEST_WAIT_MS: f64 = 2.0;
const MOST_STOLEN: f64 = 3.0;
const MOST_LATE_MS: f64 = 50.0;

/// What happens when, from the start of the load on.
#[derive(Clone)]
pub struct Course {
    /// The part of the surge that is sent until then.
    pub calm: f64,
    /// When the surge begins.
    pub surge: Nanos,
    /// When all ends.
    pub end: Nanos,
    /// What is judged: from here to there.
    pub window: (Nanos, Nanos),
    /// Instances that a service has from then on.
    pub changes: Vec<(Nanos, &'static str, u32)>,
    /// How often a client that was refused tries again.
    pub retries: u32,
}

/// What came of a run.
pub struct Ran {
    requests: Vec<Seen>,
    /// Calls a second that the services did within the window.
    pub calls_per_s: f64,
    /// How the machine fared meanwhile.
    pub strain: Strain,
    /// Classes that were limited at the end.
    pub limited: usize,
    /// For how long since the surge began any service was asked for more than 1.1 times what it can do, in seconds.
    pub over_s: f64,
}

/// How the machine fared within the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strain {
    /// In per cent of all CPUs.
    pub idle_pct: f64,
    /// Likewise.
    pub stolen_pct: f64,
    /// How long a call waited for processors, all processes together.
    pub wait_ms: f64,
    /// How far the generator lagged in the whole run, by its 99th percentile.
    pub late_ms: f64,
}

impl Strain {
    /// Why what was measured says more of this machine than of who was measured, if so.
    pub fn spoils(&self) -> Option<String> {
        let Strain { stolen_pct, wait_ms, late_ms, .. } = *self;
        if wait_ms > LONGEST_WAIT_MS {
            Some(format!("the machine was the bottleneck: a call waited {wait_ms:.1} ms for processors"))
        } else if stolen_pct > MOST_STOLEN {
            Some(format!("{stolen_pct:.0} % of the machine was stolen"))
        } else if late_ms > MOST_LATE_MS {
            Some(format!("the machine was the bottleneck: the load generator was {late_ms:.0} ms late"))
        } else {
            None
        }
    }

    /// The worse of two.
    pub fn and(self, other: Strain) -> Strain {
        Strain {
            idle_pct: self.idle_pct.min(other.idle_pct),
            stolen_pct: self.stolen_pct.max(other.stolen_pct),
            wait_ms: self.wait_ms.max(other.wait_ms),
            late_ms: self.late_ms.max(other.late_ms),
        }
    }

    /// A row, judged where the machine was not the bottleneck.
    pub fn judge(&self, row: Row) -> Row {
        match self.spoils() {
            None => row,
            Some(why) => {
                Row { what: format!("{} (not judged: {why})", row.what), tolerance: None, pass: None, ..row }
            }
        }
    }

    /// What it was.
    pub fn rows(&self) -> [Row; 4] {
        let row = |what: &str, found: f64| Row::beside(what, None, Some(found));
        [
            row("machine: idle, % of its CPUs", self.idle_pct),
            row("machine: stolen, %", self.stolen_pct),
            row("machine: what a call waited for CPUs, ms", self.wait_ms),
            row("load generator late, p99 ms", self.late_ms),
        ]
    }
}

/// Starts a fleet, sends it what the course says, and ends it.
///
/// # Errors
/// What went wrong.
pub async fn run(scene: &Scene, entry: Entry, course: &Course, seed: u64) -> Result<Ran, String> {
    eprintln!("{entry:?}: {} s", course.end.as_secs_f64());
    let bed = Bed::start(scene, entry, seed).await?;
    let surge: f64 = scene.offered().sum();
    let rate = format!("0s:{:.3},{}:{surge:.3}", course.calm * surge, course.surge);
    let plan = Plan::new(bed.target(), mix(scene), rate.parse()?, course.end, HttpVersion::Http1);
    let plan = Plan {
        seed,
        connections: CONNECTIONS,
        timeout: PATIENCE,
        retries: course.retries,
        tells_each: true,
        ..plan
    };
    let names: Vec<&str> = scene.plan.apis.iter().map(|api| api.name.as_str()).collect();
    let requests = RefCell::new(Vec::new());
    let load = observed::load(plan, &names, |_, ended| requests.borrow_mut().extend(ended));
    // One after the other; none ends before all have.
    let over = async { Ok(overshoot(&bed, scene, course).await) };
    let (report, (calls_per_s, strain, limited), over) =
        tokio::try_join!(load, meanwhile(&bed, course), over)?;
    let strain = Strain { late_ms: report.table.total.late_ms_p99.unwrap_or(0.0), ..strain };
    Ok(Ran { requests: requests.into_inner(), calls_per_s, strain, limited, over_s: over.as_secs_f64() })
}

/// For how long services are asked for too much from the surge on, by the simulator's measure.
async fn overshoot(bed: &Bed, scene: &Scene, course: &Course) -> Nanos {
    let start = clock::now();
    let mut overshoot = Overshoot::new(scene.plan.services.len(), LOOK);
    let mut at = course.surge.since(LOOK);
    while at < course.end {
        tokio::time::sleep((start + at).since(clock::now()).into()).await;
        // On a machine that is too busy it may answer late; then the next look is at more.
        if let Ok(load) = bed.load(scene).await {
            overshoot.look(clock::now().since(start), at > course.surge, |place| load[place]);
        }
        at += LOOK;
    }
    overshoot.lasted()
}

/// Carries out the changes, looks at the machine from the beginning of the window to its end, and at what is limited when all ends.
async fn meanwhile(bed: &Bed, course: &Course) -> Result<(f64, Strain, usize), String> {
    let start = clock::now();
    let until = async |at: Nanos| tokio::time::sleep((start + at).since(clock::now()).into()).await;
    let changes = async {
        for &(at, service, instances) in &course.changes {
            until(at).await;
            bed.resize(service, instances).await?;
        }
        Ok::<_, String>(())
    };
    let (from, to) = course.window;
    let look = async {
        until(from).await;
        let ours = || waited_s(family(std::process::id()));
        let (began, cpus, waited, calls) = (clock::now(), Cpus::now()?, ours(), bed.calls().await?);
        until(to).await;
        let (cpus, waited_s, calls) = (Cpus::now()?.since(cpus), ours() - waited, bed.calls().await? - calls);
        let seconds = clock::now().since(began).as_secs_f64();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let pct = |s: f64| 100.0 * s / seconds / processors;
        let strain = Strain {
            idle_pct: pct(cpus.idle_s),
            stolen_pct: pct(cpus.stolen_s),
            wait_ms: 1e3 * waited_s.max(0.0) / calls.max(1.0),
            late_ms: 0.0,
        };
        Ok::<_, String>((calls / seconds, strain))
    };
    let ((), (calls_per_s, strain)) = tokio::try_join!(changes, look)?;
    // While all of it still comes.
    until(course.end.since(Nanos::from_millis(100))).await;
    Ok((calls_per_s, strain, bed.limited().await?))
}

impl Ran {
    /// Requests of each API a second that were sent from one time on and before another, and were answered within its objective.
    pub fn goodput(&self, scene: &Scene, from: Nanos, to: Nanos) -> Vec<f64> {
        let mut good = vec![0.0; scene.plan.apis.len()];
        for seen in self.good(scene).filter(|seen| (from..to).contains(&seen.at)) {
            good[seen.class] += 1.0 / to.since(from).as_secs_f64();
        }
        good
    }

    fn good<'a>(&'a self, scene: &'a Scene) -> impl Iterator<Item = &'a Seen> {
        self.requests.iter().filter(|seen| seen.is_in_time(scene.plan.apis[seen.class].deadline))
    }

    /// The goodput of some APIs, by when requests were sent: seconds, and requests a second.
    pub fn timeline(&self, scene: &Scene, end: Nanos, apis: impl Fn(usize) -> bool) -> Vec<(f64, f64)> {
        let per_s = 1.0 / TIMELINE_STEP.as_secs_f64();
        let steps = self.steps(scene, end, apis).into_iter().enumerate();
        steps.map(|(step, n)| (step as f64 / per_s, f64::from(n) * per_s)).collect()
    }

    fn steps(&self, scene: &Scene, end: Nanos, apis: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut steps = vec![0; end.0.div_ceil(TIMELINE_STEP.0) as usize];
        for seen in self.good(scene).filter(|seen| apis(seen.class)) {
            if let Some(step) = steps.get_mut((seen.at.0 / TIMELINE_STEP.0) as usize) {
                *step += 1;
            }
        }
        steps
    }

    /// How long after a change goodput came to stay where it then was until `end`, by the simulator's measure: every second within a tenth
    /// of the last third's, and three standard deviations of a count. Not a number where it never did.
    pub fn converged_s(&self, scene: &Scene, changed: Nanos, end: Nanos) -> f64 {
        let steady_from = Nanos(end.0 - end.since(changed).0 / 3);
        let steady: f64 = self.goodput(scene, steady_from, end).iter().sum();
        let steps = self.steps(scene, end, |_| true);
        converged(&steps, steady, changed, end).unwrap_or(f64::NAN)
    }

    /// The least share of the optimum, over priority levels, from one time on and before another.
    pub fn share(&self, scene: &Scene, optimum: &[f64], from: Nanos, to: Nanos) -> f64 {
        share(&scene.plan, &self.goodput(scene, from, to), optimum)
    }
}
