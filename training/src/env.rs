//! One fleet, and the rate control of production with an actor that is told what to do.
//!
//! The rate control asks its actor in the middle of a step. So each step is taken twice: once by a copy, to see what is asked, and once it is
//! known what to answer, for real. Where it asks several times in a step, of several clusters, the first is who learns, and the others are
//! answered by the network as it stands.

use std::path::Path;
use std::sync::Arc;

use plimsoll_core::config::fleet::Offered;
use plimsoll_core::rng::{chance, seeded};
use plimsoll_core::{Nanos, Rng};
use plimsoll_ratecontrol::learned::network::{INPUTS, Network, features};
use plimsoll_ratecontrol::{
    Actor, ApiSignal, Observation, RateControl, ServiceSignal, Settings, State, Stepwise, Topology,
};
use plimsoll_simulator::fleet::optimum::{Asked, Best};
use plimsoll_simulator::fleet::plan::Plan;
use plimsoll_simulator::fleet::random::{self, Ranges};
use plimsoll_simulator::fleet::run::Driver;
use plimsoll_simulator::fleet::service::Guards;
use rand::RngExt;

use crate::graph::{Graph, log_uniform};

/// Steps of an episode (Table 1).
pub const STEPS: u32 = 50;
/// What an SLO missed by its own length costs, in parts of the goodput that could be had.
const RHO: f64 = 0.1;
/// By more than this it is not missed: what is far too late is no worse than what is too late.
const WORST: f64 = 2.0;

/// What fleets are drawn from.
pub enum Source {
    /// The paper's graphs.
    Graphs,
    /// Random fleets of the fleet simulator.
    Fleets,
    /// One scenario of it, under varying loads.
    Scenario(Plan),
}

/// An actor that answers as it was told, and remembers what it was asked.
#[derive(Clone, Default)]
struct Scripted {
    asked: Vec<State>,
    answers: Vec<f64>,
}

impl Actor for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn act(&mut self, state: &State) -> f64 {
        self.asked.push(*state);
        self.answers.get(self.asked.len() - 1).copied().unwrap_or(0.0)
    }
}

enum Plant {
    Graph(Graph),
    Fleet(Box<Driver>),
}

/// One environment.
pub struct Env {
    source: Arc<Source>,
    network: Option<Arc<Network>>,
    rng: Rng,
    plant: Plant,
    topology: Topology,
    control: RateControl<Stepwise<Scripted>>,
    services: Vec<ServiceSignal>,
    apis: Vec<ApiSignal>,
    asked: Vec<State>,
    now: Nanos,
    interval_s: f64,
    best_per_s: f64,
    goodput_per_s: f64,
    steps: u32,
    /// The shares of the best in the last fifth of an episode, added up.
    share: f64,
}

/// What came of a step.
pub struct Outcome {
    pub reward: f64,
    /// What share of the best the goodput of the episode's last fifth was, where it ended.
    pub ended: Option<f64>,
}

impl Env {
    /// At the beginning of its first episode.
    pub fn new(source: Arc<Source>, seed: u64, stream: u64) -> Result<Env, String> {
        let mut rng = seeded(seed, stream);
        let (plant, topology, best_per_s) = draw(&source, 1.0, &mut rng)?;
        let mut env = Env {
            source,
            network: None,
            rng,
            plant,
            topology,
            control: RateControl::with(Settings::default(), Stepwise::new(Scripted::default())),
            services: Vec::new(),
            apis: Vec::new(),
            asked: Vec::new(),
            now: Nanos::ZERO,
            interval_s: 1.0,
            best_per_s,
            goodput_per_s: 0.0,
            steps: 0,
            share: 0.0,
        };
        env.reset()?;
        Ok(env)
    }

    /// Whoever does not learn is answered by this.
    pub fn set_network(&mut self, network: Arc<Network>) {
        self.network = Some(network);
    }

    /// What the network goes by.
    pub fn state(&self) -> [f32; INPUTS] {
        features(&self.asked[0])
    }

    /// Begins an episode of another fleet: one in which something is asked.
    pub fn reset(&mut self) -> Result<(), String> {
        loop {
            // The paper acts once a second; agents and sentries tell more often.
            self.interval_s = if chance(&mut self.rng, 0.5) { 1.0 } else { 0.25 };
            (self.plant, self.topology, self.best_per_s) =
                draw(&self.source, self.interval_s, &mut self.rng)?;
            self.control = RateControl::with(Settings::default(), Stepwise::new(Scripted::default()));
            (self.now, self.steps, self.share) = (Nanos::ZERO, 0, 0.0);
            if self.go_on() {
                self.goodput_per_s = self.goodput();
                return Ok(());
            }
        }
    }

    /// Answers what was asked, and goes on until something is asked again.
    pub fn step(&mut self, action: f64) -> Result<Outcome, String> {
        self.answer(action);
        let asked = self.go_on();
        self.steps += 1;
        let goodput = self.goodput();
        let late = self.asked.first().map_or(0.0, |state| (state.latency - 1.0).clamp(0.0, WORST));
        let reward = (goodput - self.goodput_per_s) / self.best_per_s - RHO * late;
        self.goodput_per_s = goodput;
        let last = STEPS / 5;
        if self.steps > STEPS - last {
            self.share += goodput / self.best_per_s / f64::from(last);
        }
        let ended = (self.steps >= STEPS || !asked).then_some(self.share);
        if ended.is_some() {
            self.reset()?;
        }
        Ok(Outcome { reward, ended })
    }

    fn goodput(&self) -> f64 {
        self.apis.iter().filter_map(|api| api.goodput_per_s).sum()
    }

    /// Lets time pass until something is asked; gives up where nothing is for long.
    fn go_on(&mut self) -> bool {
        for _ in 0..2 * STEPS {
            self.advance();
            let mut copy = self.control.clone();
            let actor = copy.controller_mut().actor_mut();
            actor.asked.clear();
            actor.answers.clear();
            copy.step(self.now, &self.topology, &Observation { services: &self.services, apis: &self.apis });
            self.asked = std::mem::take(&mut copy.controller_mut().actor_mut().asked);
            if !self.asked.is_empty() {
                return true;
            }
            self.answer(0.0);
        }
        false
    }

    fn answer(&mut self, action: f64) {
        let network = self.network.as_deref();
        let others = self.asked.iter().skip(1).map(|state| network.map_or(0.0, |network| network.act(state)));
        let answers = std::iter::once(action).chain(others).collect();
        *self.control.controller_mut().actor_mut() = Scripted { asked: Vec::new(), answers };
        let seen = Observation { services: &self.services, apis: &self.apis };
        let step = self.control.step(self.now, &self.topology, &seen);
        match &mut self.plant {
            Plant::Graph(graph) => graph.set_rates(step.rates),
            Plant::Fleet(driver) => driver.fleet.set_rates(step.rates),
        }
    }

    fn advance(&mut self) {
        self.now += Nanos::from_secs_f64(self.interval_s);
        match &mut self.plant {
            Plant::Graph(graph) => graph.advance(self.interval_s, &mut self.services, &mut self.apis),
            Plant::Fleet(driver) => {
                driver.advance(self.now);
                let seen = driver.observe();
                self.services.clear();
                self.services.extend_from_slice(seen.services);
                self.apis.clear();
                self.apis.extend_from_slice(seen.apis);
            }
        }
    }
}

fn draw(source: &Source, interval_s: f64, rng: &mut Rng) -> Result<(Plant, Topology, f64), String> {
    let seed: u64 = rng.random();
    let plan = match source {
        Source::Graphs => {
            let graph = Graph::new(seed, interval_s * f64::from(STEPS));
            let (topology, best_per_s) = (graph.topology.clone(), graph.best_per_s);
            return Ok((Plant::Graph(graph), topology, best_per_s));
        }
        Source::Fleets => {
            let ranges = Ranges {
                services: (2, 20),
                apis: (2, 10),
                offered_per_s: (300.0, 1_500.0),
                ..Ranges::default()
            };
            // Other fleets than those that studies are about: theirs have small seeds.
            Plan::new(&random::fleet(seed | 1 << 63, &ranges), Path::new(""))?
        }
        Source::Scenario(plan) => {
            let mut plan = plan.clone();
            for api in &mut plan.apis {
                let peak = api.offered.steps().iter().map(|&(_, per_s)| per_s).fold(0.0, f64::max);
                api.offered = Offered::constant(peak * log_uniform(0.3, 1.5, rng));
            }
            plan
        }
    };
    let best_per_s = best(&plan)?.max(1.0);
    let driver = Driver::new(Arc::new(plan), Guards::None, None, seed);
    let topology = driver.topology().clone();
    Ok((Plant::Fleet(Box::new(driver)), topology, best_per_s))
}

/// Requests a second that could be answered in time as a scenario begins.
fn best(plan: &Plan) -> Result<f64, String> {
    let capacity =
        plan.services.iter().map(|service| service.instance_per_s() * f64::from(service.instances));
    let asked = plan.apis.iter().enumerate().map(|(at, api)| Asked {
        offered_per_s: api.offered.at(Nanos::ZERO),
        min_per_s: api.min_rate.unwrap_or(0.0),
        priority: api.priority,
        load: plan.load(at),
    });
    Ok(Best { capacity_per_s: capacity.collect(), apis: asked.collect() }.solve()?.iter().sum())
}
