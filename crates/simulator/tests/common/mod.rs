//! What the tests share: workloads, and a checker that follows a run on its own and knows what must hold.

// Every test binary uses a part of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_core::config::workload::{Arrivals, Engine, Policing, Service, Workload, WorkloadClass};
use plimsoll_core::config::{self, Admission, Policy};
use plimsoll_core::{ClassId, Nanos, Percentile, Refusal, Slo};
use plimsoll_simulator::engine::{Arrival, Observer, Request, Stall};
use plimsoll_simulator::run::Setup;
use plimsoll_simulator::scenario::Scenario;
use plimsoll_simulator::stats::Stats;

/// Table 1 of the paper on Bouncer.
pub fn paper() -> Scenario {
    let text = include_str!("../../../../paper/bouncer.toml");
    let (workload, _) = config::parse::<Workload>(text, "paper/bouncer.toml").unwrap();
    Scenario::new(workload, std::path::Path::new("")).unwrap()
}

/// One class and nothing else.
pub fn one_class(engine: Engine, service: Service) -> Scenario {
    let workload = Workload {
        engine,
        arrivals: Arrivals::Poisson,
        policing: Policing::default(),
        classes: vec![WorkloadClass::new("only", 1.0, service)],
        default_slo: Slo::default(),
    };
    Scenario::new(workload, std::path::Path::new("")).unwrap()
}

pub fn policy(text: &str) -> Policy {
    Admission::from_args(text).unwrap().policy
}

/// A run of so many requests, of which all count.
pub fn setup(policy_text: &str, load: f64, seed: u64, queries: u64) -> Setup {
    Setup { policy: policy(policy_text), load, seed, queries, warmup: 0, stalls: Vec::new() }
}

pub fn slo(p50: Nanos, p90: Nanos) -> Slo {
    Slo::new([(Percentile::P50, p50), (Percentile::P90, p90)]).unwrap()
}

/// Follows a run: who waits, who is served, and how much was worked. It panics where an event contradicts that.
pub struct Checker {
    processes: usize,
    /// At work on top of those, until they are done.
    beyond: usize,
    max_queue: usize,
    stalls: Vec<Stall>,
    now: Nanos,
    /// By index: neither let in nor turned away.
    undecided: BTreeSet<u64>,
    waiting: VecDeque<Request>,
    /// By index, with the time of the start.
    in_service: BTreeMap<u64, Nanos>,
    pub arrived: u64,
    pub refused: u64,
    pub admitted: u64,
    pub dropped: u64,
    pub served: u64,
    /// What the processes did, in process-nanoseconds: all of it, and up to the last arrival.
    worked: u128,
    worked_by_last_arrival: u128,
    first_arrival: Option<Nanos>,
    last_arrival: Nanos,
}

impl Checker {
    pub fn new(engine: &Engine, stalls: &[Stall]) -> Checker {
        Checker {
            processes: engine.processes as usize,
            beyond: 0,
            max_queue: engine.max_queue as usize,
            stalls: stalls.to_vec(),
            now: Nanos::ZERO,
            undecided: BTreeSet::new(),
            waiting: VecDeque::new(),
            in_service: BTreeMap::new(),
            arrived: 0,
            refused: 0,
            admitted: 0,
            dropped: 0,
            served: 0,
            worked: 0,
            worked_by_last_arrival: 0,
            first_arrival: None,
            last_arrival: Nanos::ZERO,
        }
    }

    fn at(&mut self, now: Nanos) {
        assert!(now >= self.now, "time runs backwards");
        if now > self.now {
            let idle = self.in_service.len() < self.processes;
            assert!(!idle || self.waiting.is_empty(), "somebody waits beside an idle process");
            self.worked += self.in_service.len() as u128 * u128::from((now - self.now).0);
            self.now = now;
        }
    }

    fn decides(&mut self, index: u64, now: Nanos) {
        self.at(now);
        assert!(self.undecided.remove(&index), "decided about twice");
    }

    fn leaves_queue(&mut self, request: &Request, now: Nanos) {
        self.at(now);
        assert_eq!(self.waiting.pop_front().as_ref(), Some(request), "not the one that waited longest");
    }

    /// When a request that is started at `from` must be done.
    fn done_at(&self, from: Nanos, service: Nanos) -> Nanos {
        let mut done = from + service;
        for stall in &self.stalls {
            let end = stall.at + stall.lasts;
            if stall.at <= from && from < end {
                done += end - from;
            } else if from < stall.at && stall.at < done {
                done += stall.lasts;
            }
        }
        done
    }

    /// From now on this many processes may work. Those that are at work beyond that finish.
    pub fn may_work(&mut self, processes: usize, now: Nanos) {
        self.at(now);
        self.processes = processes;
        self.beyond = self.in_service.len().saturating_sub(processes);
    }

    pub fn utilization(&self) -> f64 {
        let span = self.last_arrival - self.first_arrival.unwrap_or_default();
        self.worked_by_last_arrival as f64 / (span.0 as f64 * self.processes as f64)
    }

    /// What must hold once everything is over.
    pub fn finish(&self) {
        assert!(self.undecided.is_empty(), "nobody decided about some");
        assert!(self.waiting.is_empty() && self.in_service.is_empty());
        assert_eq!(self.arrived, self.refused + self.admitted);
        assert_eq!(self.admitted, self.served + self.dropped);
    }
}

impl Observer for Checker {
    fn arrived(&mut self, index: u64, arrival: &Arrival) {
        self.at(arrival.at);
        assert_eq!(index, self.arrived, "a request was lost, or came twice");
        self.arrived += 1;
        self.undecided.insert(index);
        self.first_arrival.get_or_insert(arrival.at);
        (self.last_arrival, self.worked_by_last_arrival) = (arrival.at, self.worked);
    }

    fn refused(&mut self, index: u64, _arrival: &Arrival, refusal: &Refusal) {
        self.decides(index, self.now);
        self.refused += 1;
        // Every refusal can say why.
        assert!(refusal.to_string().starts_with(refusal.mechanism.as_str()));
    }

    fn admitted(&mut self, request: &Request) {
        self.decides(request.index, request.queued_at);
        assert!(request.queued_at >= request.arrival.at, "let in before it came");
        self.admitted += 1;
        self.waiting.push_back(*request);
        assert!(self.waiting.len() <= self.max_queue, "more wait than may");
    }

    fn dropped(&mut self, request: &Request, _refusal: &Refusal, now: Nanos) {
        self.leaves_queue(request, now);
        self.dropped += 1;
    }

    fn started(&mut self, request: &Request, now: Nanos) {
        self.leaves_queue(request, now);
        self.in_service.insert(request.index, now);
        assert!(self.in_service.len() <= self.processes + self.beyond, "more in service than processes");
    }

    fn served(&mut self, request: &Request, started: Nanos, now: Nanos) {
        self.at(now);
        assert_eq!(self.in_service.remove(&request.index), Some(started));
        self.beyond = self.in_service.len().saturating_sub(self.processes).min(self.beyond);
        assert_eq!(now, self.done_at(started, request.arrival.service), "not served for as long as it takes");
        self.served += 1;
    }

    fn busy(&mut self, processes: u32, now: Nanos) {
        self.at(now);
        assert_eq!(processes as usize, self.in_service.len());
    }
}

/// Two observers of one run.
pub struct Both<A, B>(pub A, pub B);

impl<A: Observer, B: Observer> Observer for Both<A, B> {
    fn arrived(&mut self, index: u64, arrival: &Arrival) {
        self.0.arrived(index, arrival);
        self.1.arrived(index, arrival);
    }
    fn refused(&mut self, index: u64, arrival: &Arrival, refusal: &Refusal) {
        self.0.refused(index, arrival, refusal);
        self.1.refused(index, arrival, refusal);
    }
    fn admitted(&mut self, request: &Request) {
        self.0.admitted(request);
        self.1.admitted(request);
    }
    fn dropped(&mut self, request: &Request, refusal: &Refusal, now: Nanos) {
        self.0.dropped(request, refusal, now);
        self.1.dropped(request, refusal, now);
    }
    fn started(&mut self, request: &Request, now: Nanos) {
        self.0.started(request, now);
        self.1.started(request, now);
    }
    fn served(&mut self, request: &Request, started: Nanos, now: Nanos) {
        self.0.served(request, started, now);
        self.1.served(request, started, now);
    }
    fn busy(&mut self, processes: u32, now: Nanos) {
        self.0.busy(processes, now);
        self.1.busy(processes, now);
    }
}

/// Runs before the eyes of a checker and of `other`.
pub fn checked<O: Observer>(scenario: &Scenario, setup: &Setup, other: O) -> O {
    let stats = Stats::new(scenario.names.len(), 0);
    let mut all = Both(Both(Checker::new(&scenario.engine, &setup.stalls), stats), other);
    setup.observe(scenario, &|_| {}, &mut all);
    let Both(Both(checker, stats), other) = all;
    checker.finish();
    // The statistics say the same as the checker has counted.
    let sum =
        |of: fn(&plimsoll_simulator::stats::ClassStats) -> u64| stats.classes().iter().map(of).sum::<u64>();
    assert_eq!(sum(|class| class.received), checker.arrived);
    assert_eq!(sum(|class| class.rejected()), checker.refused + checker.dropped);
    assert_eq!(sum(|class| class.granted.iter().sum()), checker.admitted);
    assert_eq!(sum(|class| class.by_estimate.total() + class.overridden.total()), checker.served);
    if checker.arrived > 1 {
        let utilization = stats.utilization(scenario.engine.processes);
        assert!((utilization - checker.utilization()).abs() < 1e-9, "{utilization}");
    }
    other
}

/// Sees nothing.
pub struct Blind;

impl Observer for Blind {}

pub fn class(scenario: &Scenario, name: &str) -> ClassId {
    ClassId(scenario.names.iter().position(|n| n == name).unwrap() as u16)
}
