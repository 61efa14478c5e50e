//! A scenario under a controller: the fleet, and the rate control of production, step by step.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::RateDecider;
use plimsoll_ratecontrol::baselines::{breakwater, dagor};
use plimsoll_ratecontrol::learned::guard::Handover;
use plimsoll_ratecontrol::{Network, Observation, RateControl, Settings, Topology};

use super::engine::Fleet;
use super::plan::Plan;
use super::report::Report;
use super::service::Guards;
use super::signals::Signals;
use super::traces::Traces;

/// Who decides how much may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Rates at the entry, by what is learned of services and APIs: the default.
    Model,
    /// TopFull with the steps that a network has learned; the model looks on.
    Learned,
    /// TopFull with fixed steps.
    Mimd,
    /// TopFull with Breakwater's steps.
    TopfullBw,
    /// Breakwater in each instance.
    Breakwater,
    /// DAGOR in each instance.
    Dagor,
    /// Nobody.
    None,
}

impl Controller {
    /// All there are.
    pub const ALL: [Controller; 7] = [
        Controller::Model,
        Controller::Learned,
        Controller::Mimd,
        Controller::TopfullBw,
        Controller::Breakwater,
        Controller::Dagor,
        Controller::None,
    ];

    /// As users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Controller::Breakwater => "breakwater",
            Controller::Dagor => "dagor",
            _ => self.decider().as_str(),
        }
    }

    /// What sets rates at the entry.
    pub const fn decider(self) -> RateDecider {
        match self {
            Controller::Model => RateDecider::Model,
            Controller::Learned => RateDecider::Learned,
            Controller::Mimd => RateDecider::Mimd,
            Controller::TopfullBw => RateDecider::TopfullBw,
            Controller::Breakwater | Controller::Dagor | Controller::None => RateDecider::None,
        }
    }

    /// What sets rates at the entry, where anything does.
    pub fn rates(self) -> Option<Settings> {
        self.rates_with(None)
    }

    /// The same, where [`Learned`](Controller::Learned) is with these weights, or else those that come with Plimsoll.
    pub fn rates_with(self, learned: Option<&Network>) -> Option<Settings> {
        Settings::named(self.decider(), learned.cloned())
    }

    /// What instances decide for themselves.
    pub fn guards(self) -> Guards {
        match self {
            Controller::Breakwater => Guards::Breakwater(breakwater::Settings::default()),
            Controller::Dagor => Guards::Dagor(dagor::Settings::default()),
            _ => Guards::None,
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Controller {
    type Err = String;
    fn from_str(text: &str) -> Result<Controller, String> {
        let found = Controller::ALL.into_iter().find(|controller| controller.as_str() == text);
        found.ok_or_else(|| {
            let names = Controller::ALL.map(Controller::as_str).join(", ");
            format!("`{text}`: there is no such controller; write one of {names}")
        })
    }
}

/// A fleet and who sets its rates, step by step.
pub struct Driver {
    /// The fleet.
    pub fleet: Fleet,
    rates: Option<RateControl>,
    topology: Topology,
    signals: Signals,
    traces: Traces,
    handovers: Vec<(Nanos, Handover)>,
}

impl Driver {
    /// At the start.
    pub fn new(plan: Arc<Plan>, guards: Guards, rates: Option<RateControl>, seed: u64) -> Driver {
        let topology = plan.topology();
        let fleet = Fleet::new(plan, guards, seed);
        Driver {
            fleet,
            rates,
            topology,
            signals: Signals::default(),
            traces: Traces::default(),
            handovers: Vec::new(),
        }
    }

    /// Under one of the controllers there are.
    pub fn with(plan: Arc<Plan>, controller: Controller, seed: u64) -> Driver {
        Driver::new(plan, controller.guards(), controller.rates().map(RateControl::new), seed)
    }

    /// Lets time go on to `until`, at the rates in force.
    pub fn advance(&mut self, until: Nanos) {
        self.fleet.advance(until);
    }

    /// What there is to see since the last look. Whoever sets rates in place of a controller goes by this and
    /// [`Fleet::set_rates`].
    pub fn observe(&mut self) -> Observation<'_> {
        self.signals.look(&mut self.fleet)
    }

    /// Who calls whom, as a controller is told.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Lets the controller see what came since it last did, and set rates.
    pub fn control(&mut self) {
        let now = self.fleet.now();
        if self.rates.is_some()
            && let Some(told) = self.traces.tell(&self.fleet)
        {
            self.topology = std::mem::take(&mut self.topology).with_own_times(told);
        }
        let seen = self.signals.look(&mut self.fleet);
        if let Some(rates) = &mut self.rates {
            let step = rates.step(now, &self.topology, &seen);
            self.fleet.set_rates(step.rates);
            self.handovers.extend(step.handovers.iter().map(|handover| (now, handover.clone())));
        }
    }
}

/// Runs a scenario to its end.
///
/// # Errors
/// Where the optimum is not found; see [`Best::solve`](super::optimum::Best::solve).
pub fn run(plan: &Arc<Plan>, controller: Controller, seed: u64) -> Result<Report, String> {
    run_with(plan, controller, None, seed)
}

/// The same with weights of one's own, as [`Controller::rates_with`] takes them.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    plan: &Arc<Plan>,
    controller: Controller,
    learned: Option<&Network>,
    seed: u64,
) -> Result<Report, String> {
    let rates = controller.rates_with(learned).map(RateControl::new);
    run_driver(&mut Driver::new(plan.clone(), controller.guards(), rates, seed), controller.as_str(), seed)
}

/// Runs a scenario to its end under a controller of one's own, which the report calls `name`. The fleet is left as it is then.
///
/// # Errors
/// As [`run`].
pub fn run_driver(driver: &mut Driver, name: &str, seed: u64) -> Result<Report, String> {
    let (duration, signals) = (driver.fleet.plan().duration, driver.fleet.plan().signals);
    // The last third, whole: what is answered in it counts in it.
    let window = Nanos(duration.0 - duration.0 / 3);
    let mut watch = super::report::Watch::new(driver.fleet.plan(), signals);
    let mut next = signals;
    while next.min(duration) < window {
        driver.advance(next);
        watch.look(&mut driver.fleet);
        driver.control();
        next += signals;
    }
    driver.advance(window);
    watch.begin_window(&mut driver.fleet);
    while next < duration {
        driver.advance(next);
        watch.look(&mut driver.fleet);
        driver.control();
        next += signals;
    }
    driver.advance(duration);
    let mut report = watch.report(&mut driver.fleet, name, seed)?;
    report.handovers =
        driver.handovers.iter().map(|(at, handover)| told(*at, handover, driver.fleet.plan())).collect();
    Ok(report)
}

fn told(at: Nanos, handover: &Handover, plan: &Plan) -> super::report::Handover {
    super::report::Handover {
        t_s: at.as_secs_f64(),
        to: handover.reason.to(),
        apis: handover.apis.iter().map(|api| plan.apis[api.index()].name.clone()).collect(),
        reason: handover.reason.to_string(),
    }
}
