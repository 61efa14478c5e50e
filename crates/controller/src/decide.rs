//! Decides how much of each class may enter the fleet: joins, once a step, what the fleet is and how busy it is ([`telemetry`]) with what
//! comes and how it fares where it enters, and asks [`plimsoll_ratecontrol`].
//!
//! It has a task of its own and reads the sentries itself, several times a second: one that hangs holds up no decision for longer than
//! a step, and no plan at all.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::config::{Class, Config, ControllerRates, RateDecider};
use plimsoll_core::{Nanos, Statistic};
use plimsoll_ratecontrol::learned::guard::Handover;
use plimsoll_ratecontrol::{
    ApiSignal, Decision, Network, Observation, RateControl, ServiceId, Settings, Topology,
};
use plimsoll_rlqs::fleet::{Demand, Flow};
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::entries::{Entries, Seen};
use crate::rates::{Decided, FleetRates};
use crate::record::Recorder;
use crate::recording::Recording;
use crate::telemetry::Telemetry;
use crate::telemetry::fleet::Directory;
use crate::telemetry::usage::Known;
use crate::wanted::Wanted;

/// Where those who are told the rates let in so many times what the sentries do, or more, some of them are Envoys, which count no answers.
const MORE: f64 = 1.2;

/// Where for so long no sentry has said how requests fare that enter, that is said.
const BLIND: Nanos = Nanos::from_secs(30);

/// The part of a step after which those who were asked at its beginning have mostly answered.
const ANSWERED: u32 = 5;

/// From one list of what would come to every service to the next: whoever scales them looks more seldom.
const WANTED: Nanos = Nanos::from_secs(1);

/// What decides, as the config says; nothing where nothing is to.
///
/// # Errors
/// Where the weights that it names cannot be read.
pub fn settings(rates: &ControllerRates) -> Result<Option<Settings>, String> {
    named(rates.decide, rates.weights.as_deref())
}

/// The same by its name, with weights of one's own if it goes by any.
///
/// # Errors
/// Where those cannot be read.
pub fn named(decide: RateDecider, weights: Option<&Path>) -> Result<Option<Settings>, String> {
    let read = |file: &Path| {
        let bytes = std::fs::read(file).map_err(|error| error.to_string());
        let network = bytes.and_then(|bytes| Network::read(&bytes));
        network.map_err(|error| format!("weights = \"{}\" cannot be read: {error}", file.display()))
    };
    Ok(Settings::named(decide, weights.map(read).transpose()?))
}

/// Decides, step by step, from here on. `addresses` are those of the sentries' admin pages. Should it end, which it does for a defect alone,
/// what it decided last must not hold for ever: everything is open then.
pub fn start(
    decider: Decider,
    step: Nanos,
    rates: Rc<FleetRates>,
    addresses: watch::Receiver<Vec<SocketAddr>>,
) {
    let classes = decider.config.classes.len();
    let deciding = spawn_local(run(decider, step, Rc::clone(&rates), addresses));
    spawn_local(async move {
        let ended = deciding.await;
        log::error!(ended:?; "nobody decides rates any more");
        rates.decide(Decided { per_s: vec![None; classes], ..Decided::default() }, clock::now());
    });
}

async fn run(
    mut decider: Decider,
    step: Nanos,
    rates: Rc<FleetRates>,
    addresses: watch::Receiver<Vec<SocketAddr>>,
) {
    let step = Duration::from(step);
    let mut entries = Entries::new(decider.config.sentry.admin_token.clone());
    // Services are asked at the beginning of a step. Were rates decided then, too, one step would have two answers and the next none.
    let mut ticks = interval_at(Instant::now() + step / ANSWERED, step);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let sentries = addresses.borrow().clone();
        let seen = entries.look(&sentries, clock::now(), step).await;
        let now = clock::now();
        rates.decide(decider.step(now, rates.demand().as_deref(), &seen), now);
    }
}

/// What is known of the fleet, and what follows from it.
pub struct Decider {
    config: Config,
    telemetry: Telemetry,
    directory: Directory,
    topology: Topology,
    control: RateControl,
    /// Up to when it was taken in how busy services are.
    told: Nanos,
    /// Since when rates are told and nobody says how requests fare; whether that was said.
    blind: (Option<Nanos>, bool),
    /// When it was said last what would come to each.
    wanted: Nanos,
    recording: Recording,
    /// Where the recording can be had, as a scenario.
    recorded: watch::Sender<Option<Arc<str>>>,
    /// Where each step is written down, if anywhere.
    recorder: Option<Recorder>,
}

impl Decider {
    /// Knows nothing yet, and limits nobody. What it will have seen it tells `recorded`, as a scenario.
    pub fn new(
        config: Config,
        telemetry: Telemetry,
        settings: Settings,
        recorded: watch::Sender<Option<Arc<str>>>,
    ) -> Decider {
        let control = RateControl::new(settings);
        Decider {
            telemetry,
            directory: Directory::default(),
            topology: Topology::default(),
            control,
            told: Nanos::ZERO,
            blind: (None, false),
            wanted: Nanos::ZERO,
            recording: Recording::default(),
            recorded,
            recorder: None,
            config,
        }
    }

    /// Writes down what it goes by and what it decides.
    #[must_use]
    pub fn recorded_by(mut self, recorder: Option<Recorder>) -> Decider {
        if let (Some(recorder), Some(rates)) = (&recorder, &self.config.controller.rates) {
            recorder.decides(rates);
        }
        self.recorder = recorder;
        self
    }

    /// One step. `demand` is what those report who are told the rates, by class; where there is nobody, it is what the sentries count.
    pub fn step(&mut self, now: Nanos, demand: Option<&[Demand]>, seen: &Seen) -> Decided {
        if self.telemetry.learnt.has_changed().unwrap_or(false) || self.topology.apis().is_empty() {
            let learnt = Arc::clone(&self.telemetry.learnt.borrow_and_update());
            self.topology = self.directory.topology(&self.config, &learnt.paths);
            self.recorder.iter().for_each(|recorder| recorder.fleet(&self.topology));
        }
        let usage = Arc::clone(&self.telemetry.usage.borrow());
        let mut services = self.directory.signals(&usage, self.told);
        services.truncate(self.topology.services());
        let figures = usage.services.iter().flat_map(Known::figures);
        self.told = figures.map(|figure| figure.at).fold(self.told, Nanos::max);
        let reported = |at: usize| demand.and_then(|all| all.get(at));
        let class = |(at, class): (usize, &Class)| signal(class, reported(at), seen);
        let apis: Vec<ApiSignal> = self.config.classes.iter().enumerate().map(class).collect();
        if self.recording.see(now, &self.topology, &services, &apis) {
            self.tell_recording();
        }
        self.say_blind(now, demand.is_some() && seen.classes.is_empty());
        let observation = Observation { services: &services, apis: &apis };
        let step = self.control.step(now, &self.topology, &observation);
        self.recorder.iter().for_each(|recorder| recorder.step(now, &observation, step.rates));
        let directory = &self.directory;
        let name = |service| directory.name(service).unwrap_or("?").to_owned();
        step.handovers.iter().for_each(|handover| say_handover(&self.config.classes, handover));
        let mut why = vec![None; apis.len()];
        for decision in step.decisions {
            let class = &self.config.classes[decision.api.index()].name;
            let target = decision.target.map(name);
            let reason = match &target {
                Some(target) => format!("{}, for {target}", decision.why),
                None => decision.why.to_string(),
            };
            say(class, decision, &reason);
            why[decision.api.index()] = Some(reason);
        }
        let (per_s, overloaded) = (step.rates.to_vec(), step.overload.iter().map(name).collect());
        let causes = (0..apis.len()).map(|api| self.control.target(api).map(name)).collect();
        let is_due = now.since(self.wanted) >= WANTED;
        let wanted = is_due.then(|| {
            self.wanted = now;
            let steady =
                |(at, api): (usize, &ApiSignal)| reported(at).map_or_else(|| flow(api), |it| it.steady);
            let flows: Vec<Flow> = apis.iter().enumerate().map(steady).collect();
            let services = (0..self.topology.services() as u32).map(ServiceId);
            services.map(|service| (name(service), Wanted::of(&self.topology, service, &flows))).collect()
        });
        Decided { per_s, why, causes, overloaded, wanted }
    }

    /// Who is told rates and who is asked stands in two places of the config, and one is easily forgotten.
    fn say_blind(&mut self, now: Nanos, is_blind: bool) {
        let (since, was_said) = &mut self.blind;
        *since = is_blind.then(|| since.unwrap_or(now));
        if since.is_some_and(|since| now.since(since) >= BLIND) && !std::mem::replace(was_said, true) {
            log::warn!(
                "rates are told, and no sentry says how requests fare: are all admin addresses in `sentries` of [controller]?"
            );
        }
    }

    fn tell_recording(&self) {
        let name = |service| self.directory.name(service).unwrap_or("?").to_owned();
        let interval =
            self.config.controller.rates.as_ref().map_or(Nanos::from_secs(1), |rates| rates.interval);
        let file = self.recording.file(&self.topology, name, &self.config.classes, interval);
        self.recorded.send_replace(file.map(Arc::from));
    }
}

/// A limit that comes or goes is news; how it changes in between is for `/plan` and the metrics.
fn say(class: &str, decision: &Decision, reason: &str) {
    match (decision.before_per_s, decision.rate_per_s) {
        (None, Some(rate)) => log::info!(class, per_s = rate.round(), reason; "entry limited"),
        (Some(_), None) => log::info!(class, reason; "entry open"),
        _ => {}
    }
}

/// Who decides is news, too.
fn say_handover(classes: &[Class], handover: &Handover) {
    let names: Vec<&str> = handover.apis.iter().map(|api| classes[api.index()].name.as_str()).collect();
    let (to, reason) = (handover.reason.to(), handover.reason);
    log::warn!(classes:? = names, to, reason:%; "rates in other hands");
}

/// What is known of one class in this step.
fn signal(class: &Class, demand: Option<&Demand>, seen: &Seen) -> ApiSignal {
    let entered = seen.classes.get(&class.name);
    let (offered, admitted) = match (demand, entered) {
        (Some(Demand { latest, .. }), _) => (Some(latest.offered_per_s), Some(latest.admitted_per_s)),
        (None, Some(entered)) => (Some(entered.offered_per_s), Some(entered.admitted_per_s())),
        (None, None) => (None, None),
    };
    let percentile = class.slo.targets().iter().rev().find_map(|(statistic, _)| match statistic {
        Statistic::Percentile(percentile) => Some(percentile.fraction()),
        Statistic::Mean => None,
    });
    let goodput_per_s = entered.filter(|_| seen.is_whole).and_then(|entered| {
        let (goodput, by_sentries) = (entered.outcome.goodput_per_s, entered.admitted_per_s());
        match admitted {
            Some(all) if all > MORE * by_sentries => {
                // What entered elsewhere is taken to fare as what entered here.
                (by_sentries > 0.0).then(|| (goodput * all / by_sentries).min(all))
            }
            _ => Some(goodput),
        }
    });
    let tail_ms = entered.zip(percentile).and_then(|(entered, share)| entered.outcome.tail_ms(share));
    ApiSignal {
        offered_per_s: offered,
        admitted_per_s: admitted,
        goodput_per_s,
        tail_latency: tail_ms.map(|ms| Nanos::from_secs_f64(ms / 1e3)),
    }
}

/// As it is where nobody is told rates, and so nobody reports what comes.
fn flow(signal: &ApiSignal) -> Flow {
    let offered_per_s = signal.offered_per_s.unwrap_or(0.0);
    Flow { offered_per_s, admitted_per_s: signal.admitted_per_s.unwrap_or(offered_per_s) }
}

#[cfg(test)]
mod tests;
