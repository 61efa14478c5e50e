//! What was seen of the fleet, as a scenario of `plimsoll fleet`: who calls whom, what services can do, and what was asked for in the last
//! hour. What happened can be run again with it, under another controller or a larger surge, and what `decide = "learned"` goes by can be
//! trained further on it (`plimsoll fleet train`).
//!
//! A service can do as many calls as came to it, over the part of it that was busy with them, when that part was largest. All calls of a
//! service count as the same work.

use std::collections::VecDeque;
use std::fmt::Write;

use plimsoll_core::Nanos;
use plimsoll_core::config::Class;
use plimsoll_core::config::fleet::{
    Api, Branch, Offered, Retries, Scenario, Service, Telemetry, Work, to_toml,
};
use plimsoll_ratecontrol::{ApiId, ApiSignal, ServiceId, ServiceSignal, Topology};

/// What is asked for is kept as the mean of so long,
const SPAN: Nanos = Nanos::from_secs(10);
/// of an hour.
const SPANS: usize = 360;
/// What a service can do cannot be told by less use than this.
const BUSY: f64 = 0.1;
/// Of what is not known how busy it was, it is taken that it can do so many times what came at most.
const UNKNOWN: f64 = 2.0;
/// Most services that a scenario has.
const MOST: usize = plimsoll_core::MAX_CLASSES;

/// The mean of what was told.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else { return };
        self.sum += value;
        self.count += 1.0;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// One service.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Calls a second that should have come of what was let in, and how much of it was busy, in this span.
    calls: Mean,
    busy: Mean,
    /// The most calls that came in any span.
    most: f64,
    /// When it was busiest: how busy, what it can do by that, and in which span.
    busiest: Option<(f64, f64, u64)>,
}

/// An hour of a fleet.
#[derive(Debug, Default)]
pub struct Recording {
    /// When the span began that is not over, and how many there were before it.
    began: Option<Nanos>,
    spans: u64,
    /// Requests a second of each class: in this span, and in those before it.
    asked: Vec<Mean>,
    past: VecDeque<Vec<f64>>,
    services: Vec<Seen>,
    tells_queues: bool,
}

impl Recording {
    /// Takes in a step; whether a span was completed by it.
    pub fn see(
        &mut self,
        now: Nanos,
        topology: &Topology,
        services: &[ServiceSignal],
        apis: &[ApiSignal],
    ) -> bool {
        let is_over = now.since(*self.began.get_or_insert(now)) >= SPAN;
        if is_over {
            self.turn();
            self.began = Some(now);
        }
        self.asked.resize(apis.len(), Mean::default());
        self.asked.iter_mut().zip(apis).for_each(|(mean, api)| mean.add(api.offered_per_s));
        self.services.resize(topology.services(), Seen::default());
        for (at, seen) in self.services.iter_mut().enumerate() {
            let users = topology.users(ServiceId(at as u32)).iter();
            let come = |&(api, calls): &(ApiId, f64)| {
                let signal = apis.get(api.index())?;
                Some(calls * signal.admitted_per_s.or(signal.offered_per_s)?)
            };
            seen.calls.add(Some(users.filter_map(come).sum()));
            let told = services.get(at).copied().unwrap_or_default();
            seen.busy.add(told.utilization);
            self.tells_queues |= told.queue_delay.is_some();
        }
        is_over
    }

    fn turn(&mut self) {
        self.spans += 1;
        if self.past.len() == SPANS {
            self.past.pop_front();
        }
        self.past
            .push_back(self.asked.iter_mut().map(|mean| std::mem::take(mean).get().unwrap_or(0.0)).collect());
        for seen in &mut self.services {
            let (calls, busy) = (std::mem::take(&mut seen.calls).get(), std::mem::take(&mut seen.busy).get());
            let calls = calls.unwrap_or(0.0);
            seen.most = seen.most.max(calls);
            let since = self.spans.saturating_sub(SPANS as u64);
            let before = seen.busiest.filter(|&(_, _, span)| span > since).map_or(BUSY, |(busy, ..)| busy);
            if let Some(busy) = busy.filter(|&busy| busy >= before && calls > 0.0) {
                seen.busiest = Some((busy, calls / busy, self.spans));
            }
        }
    }

    /// The scenario as a file, with what should be known of it in front; nothing as long as nothing was learnt.
    pub fn file(
        &self,
        topology: &Topology,
        name: impl Fn(ServiceId) -> String,
        classes: &[Class],
        interval: Nanos,
    ) -> Option<String> {
        let mut chosen: Vec<ServiceId> = (0..topology.services() as u32).map(ServiceId).collect();
        chosen.retain(|&service| !topology.users(service).is_empty());
        let busy = |service: ServiceId| self.services.get(service.index())?.busiest.map(|(busy, ..)| busy);
        chosen.sort_by(|&a, &b| busy(b).unwrap_or(0.0).total_cmp(&busy(a).unwrap_or(0.0)));
        chosen.truncate(MOST);
        let mut named = Names::default();
        let (mut unknown, mut services) = (Vec::new(), Vec::new());
        for &service in &chosen {
            let seen = self.services.get(service.index()).copied().unwrap_or_default();
            let name = named.give(&name(service));
            let per_s = seen.busiest.map_or_else(
                || {
                    unknown.push(name.clone());
                    UNKNOWN * seen.most.max(1.0)
                },
                |(_, per_s, _)| per_s,
            );
            let work = Work::of_capacity(per_s);
            services.push(Service {
                name,
                work,
                instances: 1,
                max_queue: None,
                autoscale: None,
                failures: Vec::new(),
            });
        }
        let place = |service: &ServiceId| chosen.iter().position(|chosen| chosen == service);
        let apis: Vec<Api> = classes
            .iter()
            .enumerate()
            .filter_map(|(at, class)| self.api(at, class, topology.apis().get(at)?, place))
            .collect();
        if apis.is_empty() || self.past.is_empty() {
            return None;
        }
        let scenario = Scenario {
            duration: Nanos(SPAN.0 * self.past.len() as u64),
            signals: interval,
            telemetry: if self.tells_queues { Telemetry::Agents } else { Telemetry::Prometheus },
            services,
            apis,
        };
        let mut text = format!("# A fleet as it was seen over the last {}.\n", scenario.duration);
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            let _ = writeln!(
                text,
                "# It was not told how busy these were, or they never were; they are taken to do {UNKNOWN} times what came at most: {unknown}"
            );
        }
        text.push_str(&to_toml(&scenario).ok()?);
        Some(text)
    }

    fn api(
        &self,
        at: usize,
        class: &Class,
        api: &plimsoll_ratecontrol::Api,
        place: impl Fn(&ServiceId) -> Option<usize>,
    ) -> Option<Api> {
        let all: f64 = api.branches.iter().map(|branch| branch.share).sum();
        let stages = |services: &[ServiceId]| -> Vec<Vec<(usize, f64)>> {
            services.iter().filter_map(|service| Some(vec![(place(service)?, 1.0)])).collect()
        };
        let branches: Vec<Branch> = api
            .branches
            .iter()
            .map(|branch| Branch { share: branch.share / all, stages: stages(&branch.services) })
            .filter(|branch| !branch.stages.is_empty())
            .collect();
        let mut steps: Vec<(Nanos, f64)> = Vec::new();
        for (span, asked) in self.past.iter().enumerate() {
            let per_s = (10.0 * asked.get(at).copied().unwrap_or(0.0)).round() / 10.0;
            if steps.last().is_none_or(|&(_, last)| last != per_s) {
                steps.push((Nanos(SPAN.0 * span as u64), per_s));
            }
        }
        let offered = Offered::schedule(steps).ok()?;
        let deadline = class.slo.targets().iter().map(|&(_, limit)| limit).max()?;
        (!branches.is_empty()).then(|| Api {
            name: class.name.clone(),
            branches,
            offered,
            slo: Some(class.slo.clone()),
            deadline,
            priority: class.priority,
            min_rate: class.min_rate.map(|rate| rate.per_s),
            retries: Retries::default(),
        })
    }
}

/// Names as a config may have them, each once. Those of services come from whoever sends spans.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn give(&mut self, name: &str) -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
        let plain: String = name.chars().map(fits).take(56).collect();
        let plain = if plain.is_empty() { "service".to_owned() } else { plain };
        let numbered = (2..).map(|n| format!("{plain}-{n}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(plain);
        self.0.push(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::{Config, parse};

    use super::*;

    const STEP: Nanos = Nanos::from_millis(250);

    fn classes() -> Vec<Class> {
        let text = "[pool.shop]\nservers = [\"127.0.0.1:1\"]
            [class.browse]\nmatch = [{ path = \"/product\" }]\nslo = { p95 = \"200ms\" }\npriority = 2
            [class.cart]\nmatch = [{ path = \"/cart\" }]\nslo = { p95 = \"300ms\" }\nmin_rate = \"5/s\"";
        parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0.classes
    }

    fn topology() -> Topology {
        let api =
            |services: &[u32]| plimsoll_ratecontrol::Api::along(services.iter().copied(), Nanos::MAX, 1);
        Topology::new(3, vec![api(&[0, 1, 1]), api(&[0, 2]), api(&[])])
    }

    /// So many seconds of a frontend of 1000/s, a catalog of 200/s and something of which nothing is told.
    fn run(recording: &mut Recording, now: &mut Nanos, seconds: u64, browse: f64, enters: f64) {
        for _ in 0..4 * seconds {
            *now += STEP;
            let busy = |part: f64| ServiceSignal { utilization: Some(part), ..ServiceSignal::default() };
            let services = [busy((enters + 10.0) / 1000.0), busy(2.0 * enters / 200.0)];
            let asked = |offered, admitted| ApiSignal {
                offered_per_s: Some(offered),
                admitted_per_s: Some(admitted),
                ..ApiSignal::default()
            };
            recording.see(*now, &topology(), &services, &[asked(browse, enters), asked(10.0, 10.0)]);
        }
    }

    fn scenario(recording: &Recording) -> (String, Scenario) {
        let names = |service: ServiceId| ["front end", "front.end", "front\"end"][service.index()].to_owned();
        let text = recording.file(&topology(), names, &classes(), STEP).expect("a scenario");
        let read = parse::<Scenario>(&text, "").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        (text, read.0)
    }

    #[test]
    fn what_was_seen_can_be_run_again() {
        let (mut recording, mut now) = (Recording::default(), Nanos::ZERO);
        assert_eq!(recording.file(&topology(), |_| String::new(), &classes(), STEP), None, "nothing yet");
        run(&mut recording, &mut now, 30, 40.0, 40.0);
        run(&mut recording, &mut now, 31, 300.0, 95.0);
        let (text, scenario) = scenario(&recording);
        assert_eq!(scenario.duration, Nanos::from_secs(60));
        let of = |name: &str| {
            let work = &scenario.services.iter().find(|service| service.name == name).expect(name).work;
            f64::from(work.workers) / work.times.mean().expect("a mean").as_secs_f64()
        };
        // By how busy it was under the surge.
        assert!((of("front.end") - 200.0).abs() < 2.0, "{text}");
        assert!((of("front-end") - 1000.0).abs() < 10.0, "{text}");
        assert!(text.contains("taken to do 2 times what came at most: front-end-2\n"), "{text}");
        let browse = &scenario.apis[0];
        assert_eq!(
            (browse.name.as_str(), browse.priority, browse.branches[0].stages.len()),
            ("browse", 2, 3)
        );
        assert_eq!(browse.offered.steps().len(), 2, "{text}");
        assert_eq!((browse.offered.at(Nanos::ZERO), browse.offered.at(now)), (40.0, 300.0));
        assert_eq!(scenario.apis[1].min_rate, Some(5.0));
        assert_eq!(scenario.apis.len(), 2, "of the last no path is known");
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let (mut recording, mut now) = (Recording::default(), Nanos::ZERO);
        run(&mut recording, &mut now, 600, 300.0, 95.0);
        run(&mut recording, &mut now, 3_611, 30.0, 30.0);
        let (text, scenario) = scenario(&recording);
        assert_eq!(scenario.duration, Nanos::from_secs(3_600));
        assert_eq!(scenario.apis[0].offered.at(Nanos::ZERO), 30.0, "{text}");
    }
}
