//! Fig. 9: two applications share eleven servers; the planner says how many each has, the ladder how slow it may be.

use std::cmp::Ordering;

use plimsoll_core::config::workload::{Arrivals, Step};
use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Refusal, Slo};
use plimsoll_provisioning::demand::{ClassLoad, Demand};
use plimsoll_provisioning::fleet::Fleet;
use plimsoll_provisioning::planner::{Bounds, Pace, Planner};

use super::checks::p95;
use super::{scenario, setup};
use crate::engine::{Arrival, Deciders, Engine, Observer, Request, Server};
use crate::figures::{Chart, Figure, Line};
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values;
use crate::scenario::{Scenario, Worth};
use crate::traffic::{self, Traffic};

const WORKLOAD: &str = include_str!("../../../../../paper/cataclysm/fig9.toml");
/// All servers, those that an application has at first and at least, and those that it has at most.
const SERVERS: u32 = 11;
const LEAST: u32 = 3;
const MOST: u32 = SERVERS - LEAST;
/// When the second application does what the first has done, and when all is over.
const LATER: Nanos = Nanos::from_secs(2_400);
const END: Nanos = Nanos::from_secs(5_100);
/// A point of the figures; the planner is told as often.
const INTERVAL: Nanos = Nanos::from_secs(10);
/// Delta is the paper's five minutes (section 4.1), and so is our planning ahead, which is cheap. Delta, the step, it does not tell; in
/// its experiment at most three servers come at once. There half of the requests are refused first, here a tenth.
const FIVE_MINUTES: Nanos = Nanos::from_secs(300);
const PACE: Pace = Pace { step: 3, gap: FIVE_MINUTES, period: FIVE_MINUTES, refused: 0.1 };
/// The last five minutes of the first application's peak.
const PEAK: (f64, f64) = (1_800.0, 2_100.0);
/// How busy its servers are then, in per cent.
const BUSY_PCT: f64 = 95.0;
/// How often the number of an application's servers may turn from rising to falling or back: up with its crowd, and down again.
const TURNS: f64 = 1.0;

/// What an application saw in an interval.
#[derive(Default)]
struct Tally {
    /// By class.
    classes: Vec<ClassTally>,
    times: Vec<Nanos>,
}

/// What it saw of a class.
#[derive(Clone, Default)]
struct ClassTally {
    came: u64,
    refused: u64,
    served: u64,
    /// Sums of the service times and of their squares, in seconds.
    service_s: f64,
    service_s2: f64,
}

impl Tally {
    fn class(&mut self, arrival: &Arrival) -> &mut ClassTally {
        let class = arrival.class.index();
        if class >= self.classes.len() {
            self.classes.resize(class + 1, ClassTally::default());
        }
        &mut self.classes[class]
    }
}

impl Observer for Tally {
    fn arrived(&mut self, _index: u64, arrival: &Arrival) {
        self.class(arrival).came += 1;
    }
    fn refused(&mut self, _index: u64, arrival: &Arrival, _refusal: &Refusal) {
        self.class(arrival).refused += 1;
    }
    fn served(&mut self, request: &Request, started: Nanos, now: Nanos) {
        let service_s = (now - started).as_secs_f64();
        let class = self.class(&request.arrival);
        class.served += 1;
        class.service_s += service_s;
        class.service_s2 += service_s * service_s;
        self.times.push(now - request.arrival.at);
    }
}

impl ClassTally {
    fn load<'a>(&self, slo: &'a Slo, revenue: f64) -> ClassLoad<'a> {
        let service = (self.served > 0).then(|| {
            let mean = self.service_s / self.served as f64;
            let variance = (self.service_s2 / self.served as f64 - mean * mean).max(0.0);
            (mean, variance / (mean * mean))
        });
        let per_s = |n: u64| n as f64 / INTERVAL.as_secs_f64();
        ClassLoad { per_s: per_s(self.came), refused_per_s: per_s(self.refused), service, revenue, slo }
    }
}

/// A point of the figures.
struct Point {
    at_s: f64,
    came_per_s: f64,
    served_per_s: f64,
    /// What the servers did, in seconds of service a second.
    busy: f64,
    p95: Option<Nanos>,
    owed: Nanos,
    servers: u32,
}

impl Tally {
    fn per_s(&self) -> f64 {
        self.classes.iter().map(|class| class.came).sum::<u64>() as f64 / INTERVAL.as_secs_f64()
    }

    fn demand(&self, scenario: &Scenario) -> Demand {
        let class = |((tally, slo), worth): ((&ClassTally, _), &Worth)| tally.load(slo, worth.revenue);
        let classes = self.classes.iter().zip(&scenario.slos).zip(&scenario.worth).map(class);
        Demand::of(&classes.collect::<Vec<_>>(), scenario.policing.ladder.as_ref())
    }

    fn point(self, at: Nanos, owed: Nanos, servers: u32) -> Point {
        let length_s = INTERVAL.as_secs_f64();
        Point {
            at_s: at.as_secs_f64(),
            came_per_s: self.per_s(),
            served_per_s: self.times.len() as f64 / length_s,
            busy: self.classes.iter().map(|class| class.service_s).sum::<f64>() / length_s,
            p95: p95(self.times.into_iter()),
            owed,
            servers,
        }
    }
}

/// Both applications (section 6.7).
pub fn fig9(settings: Settings) -> Result<Findings, String> {
    let points = run(settings.seed)?;
    let all = || points.iter().flatten();
    let violated = all().filter(|point| point.p95.is_some_and(|time| time > point.owed)).count();
    let violations_pct = 100.0 * violated as f64 / all().filter(|point| point.p95.is_some()).count() as f64;
    let in_use = points[0].iter().zip(&points[1]).map(|(one, two)| f64::from(one.servers + two.servers));
    let peak = || points[0].iter().filter(|point| (PEAK.0..PEAK.1).contains(&point.at_s));
    let (busy, servers) = peak()
        .fold((0.0, 0.0), |(busy, servers), point| (busy + point.busy, servers + f64::from(point.servers)));
    let first_added = points[0].iter().find(|point| point.servers > LEAST).map(|point| point.at_s);
    let most = |of: &[Point]| f64::from(of.iter().map(|point| point.servers).max().unwrap_or(0));
    let at_end = |of: &[Point]| f64::from(of.last().map_or(0, |point| point.servers));
    let rows = vec![
        Row::against(
            "intervals of 10 s with p95 over the ladder's target, %",
            &values::cataclysm().fig9_violations_pct_of_intervals,
            violations_pct,
        ),
        Row::no_more("most servers in use", f64::from(SERVERS), in_use.fold(0.0, f64::max)),
        Row::no_less("most servers of application 1", f64::from(MOST), most(&points[0])),
        Row::no_less("most servers of application 2", f64::from(MOST), most(&points[1])),
        Row::no_more(
            "servers of application 1 once its overload is over",
            f64::from(LEAST),
            at_end(&points[0]),
        ),
        Row::no_less("application 1, end of its peak: servers busy, %", BUSY_PCT, 100.0 * busy / servers),
        Row::no_more("application 1: turns between more servers and fewer", TURNS, turns(&points[0])),
        Row::no_more("application 2: turns between more servers and fewer", TURNS, turns(&points[1])),
        Row::beside("application 1: first server added, s", Some(910.0), first_added),
        Row::beside(
            "least target of application 1 at its peak, ms",
            Some(2_000.0),
            peak().map(|p| p.owed.as_millis_f64()).reduce(f64::min),
        ),
    ];
    let charts = (1..).zip(&points).flat_map(|(i, points)| charts(i, points)).collect();
    Ok(Findings { rows, figures: vec![Figure { name: "fig9".to_owned(), charts }] })
}

/// How often the number of servers turned from rising to falling or back.
fn turns(points: &[Point]) -> f64 {
    let changes = points.windows(2).map(|pair| pair[1].servers.cmp(&pair[0].servers));
    let changes: Vec<Ordering> = changes.filter(|change| change.is_ne()).collect();
    changes.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64
}

/// Interval by interval, what became of each application.
fn run(seed: u64) -> Result<[Vec<Point>; 2], String> {
    let first = scenario(WORKLOAD, "fig9.toml")?;
    let mut second = first.clone();
    if let Arrivals::Schedule(steps) = &mut second.arrivals {
        let calm = steps[0];
        steps.iter_mut().for_each(|step| step.start += LATER);
        steps.insert(0, Step { start: Nanos::ZERO, ..calm });
        steps.dedup_by_key(|step| step.factor);
    }
    let ladder = first.policing.ladder.clone().ok_or("fig9.toml has no ladder")?;
    let setups = [setup(seed), setup(seed.wrapping_add(1_000))];
    let scenarios = [&first, &second];
    let gates = [0, 1].map(|i| setups[i].gate(scenarios[i]));
    let polices = [0, 1].map(|i| scenarios[i].police());
    let mut tallies = [Tally::default(), Tally::default()];
    let server = Server { processes: MOST, stalls: Vec::new() };
    let mut engines: Vec<Engine<'_, Traffic<'_>, Tally>> = tallies
        .iter_mut()
        .enumerate()
        .map(|(i, tally)| {
            let deciders = Deciders { police: polices[i].as_ref(), gate: &gates[i], sentry_busy: |_| 0.0 };
            let rng = seeded(setups[i].seed, traffic::POLICY);
            let mut engine = Engine::new(deciders, &server, setups[i].traffic(scenarios[i]), rng, tally);
            engine.set_processes(LEAST, Nanos::ZERO);
            engine
        })
        .collect();
    let bounds = Bounds { least: LEAST, most: MOST, slots: 1 };
    let planners = [0, 1].map(|_| Planner::new(bounds, PACE, 0, LEAST));
    let mut fleet = Fleet::new(planners.into(), SERVERS);
    let mut points = [Vec::new(), Vec::new()];
    let mut now = Nanos::ZERO;
    while now < END {
        now += INTERVAL;
        let mut demands = Vec::new();
        for (i, engine) in engines.iter_mut().enumerate() {
            engine.advance(now);
            let tally = std::mem::take(engine.observer());
            demands.push(Some(tally.demand(scenarios[i])));
            let owed = ladder.owed_at(tally.per_s());
            points[i].push(tally.point(now, owed, fleet.planner(i).servers()));
        }
        for (engine, plan) in engines.iter_mut().zip(fleet.plan(now, &demands)) {
            engine.set_processes(plan.servers, now);
        }
    }
    Ok(points)
}

fn charts(application: u32, points: &[Point]) -> Vec<Chart> {
    let line = |name: &str, of: &dyn Fn(&Point) -> Option<f64>| Line {
        name: name.to_owned(),
        points: points.iter().filter_map(|point| Some((point.at_s, of(point)?))).collect(),
    };
    let chart = |title: &str, y: &str, lines| {
        Chart::new(format!("application {application}: {title}"), "s", y, lines)
    };
    vec![
        chart(
            "rates",
            "requests/s",
            vec![line("arrivals", &|p| Some(p.came_per_s)), line("served", &|p| Some(p.served_per_s))],
        ),
        chart(
            "response time, p95",
            "ms",
            vec![
                line("p95", &|p| p.p95.map(Nanos::as_millis_f64)),
                line("target", &|p| Some(p.owed.as_millis_f64())),
            ],
        ),
        chart("servers", "servers", vec![line("servers", &|p| Some(f64::from(p.servers)))]),
    ]
}
