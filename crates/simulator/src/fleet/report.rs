//! What came of a run, and how it compares with what could be had.

use std::io::{self, Write};

use plimsoll_core::Nanos;
use serde::{Serialize, Serializer};

use super::account::{Counts, TIMELINE_STEP};
use super::engine::Fleet;
use super::optimum::{Asked, Best};
use super::overshoot::{Load, Overshoot};
use super::plan::Plan;
use crate::stats::Histogram;

/// What came of a run. Rates are over its last third.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Who decided.
    pub controller: String,
    /// Of everything random.
    pub seed: u64,
    /// Requests a second that were answered within their deadlines.
    pub goodput_per_s: f64,
    /// Requests a second that could have been, lexicographically by priority.
    pub optimum_per_s: f64,
    /// The least, over priority levels, of the goodput of that and all better priorities over what the optimum has of them.
    pub share_of_optimum: f64,
    /// The least, over APIs, of goodput over what the API could have if nobody else were there.
    pub worst_api_share: f64,
    /// How long after the last change of load or instances goodput came to stay where it then was; none: it did not.
    pub converged_s: Option<f64>,
    /// How long since that change any service was asked for more than 1.1 times what it can do.
    pub overshoot_s: f64,
    /// By name.
    pub apis: Apis,
    /// Second by second.
    pub timeline: Vec<Point>,
    /// What came into other hands, where a controller has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handovers: Vec<Handover>,
}

/// APIs that came into other hands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// When.
    pub t_s: f64,
    /// Who decides about them from then on: `model` or `learned`.
    pub to: &'static str,
    /// Which.
    pub apis: Vec<String>,
    /// Why.
    pub reason: String,
}

/// APIs by name, in the order of the scenario; a map in JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Apis(pub Vec<(String, Api)>);

impl Serialize for Apis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, api)| (name, api)))
    }
}

/// What came of one API.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Api {
    /// Requests a second that users sent.
    pub offered_per_s: f64,
    /// Attempts a second that were let in.
    pub admitted_per_s: f64,
    /// Requests a second that were answered within their deadlines.
    pub goodput_per_s: f64,
    /// Requests a second that the optimum lets in. Another one may be as good in all.
    pub optimum_per_s: f64,
    /// Within what 95 % of those that were answered were, from when their users first sent them; none where none was.
    pub p95_ms: Option<f64>,
}

/// Goodput at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The end of the second.
    pub t_s: f64,
    /// Requests that were answered within their deadlines in it.
    pub goodput_per_s: f64,
}

/// Watches a run.
pub struct Watch {
    /// When the window began, and what had become of each API's requests then.
    window: Option<(Nanos, Vec<Counts>)>,
    /// When load or instances last changed by plan.
    changed: Nanos,
    overshoot: Overshoot,
    /// The change since when that is.
    since: Nanos,
}

/// How near to where goodput stays it has to have come.
const NEAR: f64 = 0.1;
/// Counts of random arrivals scatter by their square root: so many of these are no sign of anything.
const SIGMAS: f64 = 3.0;
const SECOND: Nanos = Nanos::from_secs(1);

impl Watch {
    /// Nothing has been seen.
    pub fn new(plan: &Plan, signals: Nanos) -> Watch {
        let overshoot = Overshoot::new(plan.services.len(), signals);
        Watch { window: None, changed: last_planned_change(plan), overshoot, since: Nanos::ZERO }
    }

    /// Begins to count again where something has changed since.
    fn changes(&mut self, fleet: &Fleet) -> Nanos {
        let changed = self.changed.max(last_change(fleet));
        if changed > std::mem::replace(&mut self.since, changed) {
            self.overshoot.forget();
        }
        changed
    }

    /// Looks at what services are asked for. To be called at each step.
    pub fn look(&mut self, fleet: &mut Fleet) {
        let now = fleet.now();
        let changed = self.changes(fleet);
        self.overshoot.look(now, now > changed, |place| {
            let asked = fleet.did(place).asked;
            let service = fleet.service(place);
            Load { asked, can_per_s: service.plan().instance_per_s() * f64::from(service.instances()) }
        });
    }

    /// From now on everything counts.
    pub fn begin_window(&mut self, fleet: &mut Fleet) {
        let apis = fleet.plan().apis.len();
        self.window = Some((fleet.now(), (0..apis).map(|api| fleet.counts(api)).collect()));
        fleet.accounts_mut().iter_mut().for_each(|account| account.window = Histogram::default());
    }

    /// What came of it.
    ///
    /// # Errors
    /// Where the optimum is not found.
    pub fn report(mut self, fleet: &mut Fleet, controller: &str, seed: u64) -> Result<Report, String> {
        let end = fleet.now();
        let (start, before) = self.window.take().ok_or("the run ended before its last third")?;
        let seconds = end.since(start).as_secs_f64();
        let best = best_over(fleet, start, end)?;
        let good = fleet.timeline();
        let apis: Vec<(String, Api)> = (0..before.len())
            .map(|place| {
                let since = fleet.counts(place).since(&before[place]);
                let p95 = fleet.accounts_mut()[place].window.quantile(0.95);
                let api = Api {
                    offered_per_s: since.sent as f64 / seconds,
                    admitted_per_s: since.admitted() as f64 / seconds,
                    goodput_per_s: since.good as f64 / seconds,
                    optimum_per_s: best.rates[place],
                    p95_ms: p95.map(Nanos::as_millis_f64),
                };
                (fleet.plan().apis[place].name.clone(), api)
            })
            .collect();
        let goodput: Vec<f64> = apis.iter().map(|(_, api)| api.goodput_per_s).collect();
        let changed = self.changes(fleet);
        let goodput_per_s = goodput.iter().sum();
        Ok(Report {
            controller: controller.to_owned(),
            seed,
            goodput_per_s,
            optimum_per_s: best.rates.iter().sum(),
            share_of_optimum: share(fleet.plan(), &goodput, &best.rates),
            worst_api_share: worst(&goodput, &best.alone),
            converged_s: converged(&good, goodput_per_s, changed, end),
            overshoot_s: self.overshoot.lasted().as_secs_f64(),
            apis: Apis(apis),
            timeline: timeline(&good, end),
            handovers: Vec::new(),
        })
    }
}

/// When load or instances change last by plan, before the end.
fn last_planned_change(plan: &Plan) -> Nanos {
    let steps = plan.apis.iter().flat_map(|api| api.offered.steps().iter().map(|&(start, _)| start));
    steps.filter(|&at| at < plan.duration).max().unwrap_or(Nanos::ZERO)
}

fn last_change(fleet: &Fleet) -> Nanos {
    fleet.history().last().map_or(Nanos::ZERO, |&(at, ..)| at)
}

/// What could be had in the mean over a time, in requests a second.
pub struct BestOver {
    /// By API, in the optimum.
    pub rates: Vec<f64>,
    /// By API, if nobody else were there.
    pub alone: Vec<f64>,
}

/// The optimum from `start` to `end`: of each stretch in which neither load nor instances changed.
///
/// # Errors
/// Where it is not found.
pub fn best_over(fleet: &Fleet, start: Nanos, end: Nanos) -> Result<BestOver, String> {
    let plan = fleet.plan();
    let loads: Vec<Vec<f64>> = (0..plan.apis.len()).map(|api| plan.load(api)).collect();
    let mut instances = vec![0; plan.services.len()];
    let mut changes = fleet.history().iter().peekable();
    let (mut from, mut solved) = (start, None::<(Best, Vec<f64>)>);
    let mut sums = BestOver { rates: vec![0.0; loads.len()], alone: vec![0.0; loads.len()] };
    while from < end {
        while let Some(&&(_, service, count)) = changes.peek().filter(|&&&(at, ..)| at <= from) {
            instances[service as usize] = count;
            changes.next();
        }
        let steps = plan.apis.iter().filter_map(|api| api.offered.changes_after(from));
        let to = steps.chain(changes.peek().map(|&&(at, ..)| at)).fold(end, Nanos::min);
        let capacity = plan.services.iter().zip(&instances);
        let capacity_per_s = capacity.map(|(service, &n)| service.instance_per_s() * f64::from(n)).collect();
        let asked = plan.apis.iter().zip(&loads).map(|(api, load)| Asked {
            offered_per_s: api.offered.at(from),
            min_per_s: api.min_rate.unwrap_or(0.0),
            priority: api.priority,
            load: load.clone(),
        });
        let best = Best { capacity_per_s, apis: asked.collect() };
        if solved.as_ref().is_none_or(|(before, _)| *before != best) {
            let rates = best.solve()?;
            solved = Some((best, rates));
        }
        let part = to.since(from).as_secs_f64() / end.since(start).as_secs_f64();
        if let Some((best, rates)) = &solved {
            for (api, rate) in rates.iter().enumerate() {
                sums.rates[api] += part * rate;
                sums.alone[api] += part * best.alone(api);
            }
        }
        from = to;
    }
    Ok(sums)
}

/// The least share over priority levels, of goodput and optimum by API. One where nothing could be had.
pub fn share(plan: &Plan, goodput: &[f64], optimum: &[f64]) -> f64 {
    let up_to = |priority: u32, of: &[f64]| -> f64 {
        let apis = plan.apis.iter().zip(of);
        apis.filter(|(api, _)| api.priority <= priority).map(|(_, per_s)| per_s).sum()
    };
    let levels = plan.apis.iter().map(|api| (up_to(api.priority, goodput), up_to(api.priority, optimum)));
    let shares = levels.filter(|&(_, optimum)| optimum > 0.0).map(|(goodput, optimum)| goodput / optimum);
    shares.min_by(f64::total_cmp).unwrap_or(1.0)
}

fn worst(goodput: &[f64], alone: &[f64]) -> f64 {
    let apis = goodput.iter().zip(alone).filter(|&(_, &alone)| alone > 0.0);
    apis.map(|(goodput, alone)| goodput / alone).min_by(f64::total_cmp).unwrap_or(1.0)
}

/// How long after `changed` goodput, counted by [`TIMELINE_STEP`], came to stay: from when on every second is within a tenth of what the last third has in the mean, and what
/// counts scatter by.
pub fn converged(timeline: &[u32], steady_per_s: f64, changed: Nanos, end: Nanos) -> Option<f64> {
    if steady_per_s <= 0.0 {
        return None;
    }
    let per_second = (SECOND.0 / TIMELINE_STEP.0) as usize;
    let near = NEAR * steady_per_s + SIGMAS * steady_per_s.sqrt();
    let (first, last) = (changed.0.div_ceil(TIMELINE_STEP.0) as usize, (end.0 / TIMELINE_STEP.0) as usize);
    let second = |step: usize| -> f64 {
        let steps = timeline.get(step.min(timeline.len())..(step + per_second).min(timeline.len()));
        steps.into_iter().flatten().map(|&good| f64::from(good)).sum()
    };
    let mut steps = (first..=last.checked_sub(per_second)?)
        .rev()
        .take_while(|&step| (second(step) - steady_per_s).abs() <= near);
    let came = steps.by_ref().last()?;
    Some(Nanos(came as u64 * TIMELINE_STEP.0).since(changed).as_secs_f64())
}

fn timeline(good: &[u32], end: Nanos) -> Vec<Point> {
    let per_second = (SECOND.0 / TIMELINE_STEP.0) as usize;
    let seconds = end.0 / SECOND.0;
    let point = |second: u64| {
        let first = (second as usize * per_second).min(good.len());
        let last = (first + per_second).min(good.len());
        let goodput_per_s = good[first..last].iter().map(|&good| f64::from(good)).sum();
        Point { t_s: (second + 1) as f64, goodput_per_s }
    };
    (0..seconds).map(point).collect()
}

/// Prints a report for people.
///
/// # Errors
/// Where that cannot be written.
pub fn write_table(report: &Report, mut out: impl Write) -> io::Result<()> {
    let Report { controller, goodput_per_s, optimum_per_s, .. } = report;
    let (share, worst) = (100.0 * report.share_of_optimum, 100.0 * report.worst_api_share);
    writeln!(out, "{controller}: {goodput_per_s:.1}/s of {optimum_per_s:.1}/s that could be had in time")?;
    writeln!(
        out,
        "  {share:.1} % of the optimum by priority; the worst API has {worst:.1} % of what its path could carry"
    )?;
    match report.converged_s {
        Some(seconds) => writeln!(out, "  steady {seconds:.2} s after the last change")?,
        None => writeln!(out, "  not steady after the last change")?,
    }
    if report.overshoot_s > 0.0 {
        writeln!(
            out,
            "  some service was asked for over 110 % of what it can do for {:.2} s since",
            report.overshoot_s
        )?;
    }
    for Handover { t_s, to, apis, reason } in &report.handovers {
        writeln!(out, "  {t_s:.2} s: {} to {to}: {reason}", apis.join(", "))?;
    }
    let width = report.apis.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(3);
    writeln!(
        out,
        "  {:width$}  {:>11} {:>11} {:>11} {:>11} {:>10}",
        "api", "offered/s", "admitted/s", "goodput/s", "optimum/s", "p95 ms"
    )?;
    for (name, api) in &report.apis.0 {
        let Api { offered_per_s, admitted_per_s, goodput_per_s, optimum_per_s, p95_ms } = api;
        let p95 = p95_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        writeln!(
            out,
            "  {name:width$}  {offered_per_s:>11.1} {admitted_per_s:>11.1} {goodput_per_s:>11.1} {optimum_per_s:>11.1} {p95:>10}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use plimsoll_core::config::fleet::Scenario;
    use plimsoll_core::config::parse;

    use super::super::run::{Controller, run};
    use super::*;

    /// What was asked for too much of before the last change is not since.
    #[test]
    fn overshoot_is_counted_from_the_last_change_on() {
        let overshoot = |back: &str| {
            let text = format!(
                "duration = \"60s\"\n[service.s]\ncapacity = \"400/s\"\ninstances = 4\n\
                 failures = [{{ at = \"5s\", instances = 3{back} }}]\n[api.a]\npath = [\"s\"]\noffered = \"300/s\""
            );
            let scenario =
                parse::<Scenario>(&text, "test.toml").unwrap_or_else(|errors| panic!("{errors}")).0;
            let plan = Arc::new(Plan::new(&scenario, Path::new("")).unwrap());
            run(&plan, Controller::None, 1).unwrap().overshoot_s
        };
        assert!(overshoot("") > 50.0, "one of four is left");
        let after = overshoot(", back_after = \"25s\"");
        assert!(after < 2.0, "{after} s since all are back");
    }
}
