//! All of it, once a step: what was seen in, rates out.

use plimsoll_core::Nanos;
use plimsoll_core::config::RateDecider;

use crate::aimd::Aimd;
use crate::clusters::Clusters;
use crate::controller::{RateController, View};
use crate::learned::guard::Handover;
use crate::learned::{self, Learned, Network};
use crate::mimd::Mimd;
use crate::model::{self, Model};
use crate::observation::{Memory, Observation};
use crate::overload::{Overload, Thresholds};
use crate::rates::{Decision, Rates, Why};
use crate::stepwise::Stepwise;
use crate::topology::{ApiId, ServiceId, Topology};

/// Which controller sets rates.
#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    /// What services can do and APIs cost is learned, and the best rates are solved for.
    Model(model::Settings),
    /// The paper's way with the steps that a network learned; the model looks on.
    Learned(learned::Settings),
    /// The paper's way with fixed steps.
    Mimd(Mimd),
    /// The paper's way with Breakwater's steps.
    Aimd(Aimd),
}

/// What may be set. The defaults work.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What sets rates.
    pub controller: Controller,
    /// When a service is overloaded.
    pub overload: Thresholds,
    /// Whether what does not depend on each other is decided apart. If not, only one service in the whole fleet is relieved at a time,
    /// unless by the model.
    pub clustering: bool,
    /// An API that nothing is promised may be limited to this part of what is sent: if none of it were let in, nobody would see when
    /// more could be.
    pub probe: f64,
    /// When nothing is heard any more of the service for whose sake a rate is limited, that stays as it is for so long; what was
    /// overloaded counts as overloaded for so long. Where it is told of more seldom, twice the time between two words of it.
    pub freeze: Nanos,
    /// Then they double in every such time,
    pub relax: Nanos,
    /// and after so long without a word all is let in.
    pub release: Nanos,
    /// A limit goes once it has not bound for so long, and nothing on the API's path is overloaded.
    pub idle: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            controller: Controller::Model(model::Settings::default()),
            overload: Thresholds::default(),
            clustering: true,
            probe: 0.001,
            freeze: Nanos::from_secs(10),
            relax: Nanos::from_secs(10),
            release: Nanos::from_secs(60),
            idle: Nanos::from_secs(2),
        }
    }
}

impl Settings {
    /// What a name stands for, as configs and the simulator write it; `learned` is with the weights given, or those that come with Plimsoll.
    /// Nothing where nothing is to decide.
    pub fn named(name: RateDecider, learned: Option<Network>) -> Option<Settings> {
        let controller = match name {
            RateDecider::Model => Controller::Model(model::Settings::default()),
            RateDecider::Learned => {
                Controller::Learned(learned.map(learned::Settings::new).unwrap_or_default())
            }
            RateDecider::Mimd => Controller::Mimd(Mimd::default()),
            RateDecider::TopfullBw => Controller::Aimd(Aimd::default()),
            RateDecider::None => return None,
        };
        Some(Settings { controller, ..Settings::default() })
    }
}

/// What was decided in a step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Requests a second to let in, API by API in the order of the topology; none: all.
    pub rates: &'a [Option<f64>],
    /// What was changed, and why.
    pub decisions: &'a [Decision],
    /// What was decided together.
    pub clusters: &'a Clusters,
    /// What was overloaded.
    pub overload: &'a Overload,
    /// What came into other hands.
    pub handovers: &'a [Handover],
}

/// Rate control of one fleet.
#[derive(Clone)]
pub struct RateControl<C = Box<dyn RateController>> {
    settings: Settings,
    controller: C,
    memory: Memory,
    overload: Overload,
    overloaded: Vec<ServiceId>,
    clusters: Clusters,
    rates: Rates,
    freed: Vec<ApiId>,
    last: Option<Nanos>,
}

impl RateControl {
    /// Limits nobody so far.
    pub fn new(settings: Settings) -> RateControl {
        let controller: Box<dyn RateController> = match settings.controller.clone() {
            Controller::Model(settings) => Box::new(Model::new(settings)),
            Controller::Learned(settings) => Box::new(Learned::new(settings)),
            Controller::Mimd(mimd) => Box::new(Stepwise::new(mimd)),
            Controller::Aimd(aimd) => Box::new(Stepwise::new(aimd)),
        };
        RateControl::with(settings, controller)
    }
}

impl<C: RateController> RateControl<C> {
    /// With another controller than `settings` names.
    pub fn with(settings: Settings, controller: C) -> RateControl<C> {
        RateControl {
            settings,
            controller,
            memory: Memory::default(),
            overload: Overload::default(),
            overloaded: Vec::new(),
            clusters: Clusters::default(),
            rates: Rates::default(),
            freed: Vec::new(),
            last: None,
        }
    }

    /// What sets rates.
    pub fn controller(&self) -> &C {
        &self.controller
    }

    /// What sets rates, to be told something.
    pub fn controller_mut(&mut self) -> &mut C {
        &mut self.controller
    }

    /// Requests a second that an API is limited to, by its place; none: it is not.
    pub fn rate(&self, api: usize) -> Option<f64> {
        self.rates.all().get(api).copied().flatten()
    }

    /// For the sake of which service an API is limited, by its place; none where it is not, or for that of none.
    pub fn target(&self, api: usize) -> Option<ServiceId> {
        self.rates.target(ApiId(api as u32))
    }

    /// Takes in what was seen since the last step and says what to let in until the next. Steps may come at any pace; 250 ms suits the
    /// signals of agents and sentries, one second those of Prometheus.
    pub fn step(&mut self, now: Nanos, topology: &Topology, seen: &Observation<'_>) -> Step<'_> {
        let settings = &self.settings;
        let elapsed = self.last.map_or(Nanos::ZERO, |last| now.since(last));
        self.last = Some(now);
        self.memory.take(now, topology.services(), topology.apis().len(), seen);
        let (memory, probe) = (&self.memory, settings.probe);
        self.rates.begin(topology.apis().iter().enumerate().map(|(at, api)| {
            let offered = memory.api(ApiId(at as u32)).offered_per_s.unwrap_or(0.0);
            let promised = if api.min_per_s.is_finite() { api.min_per_s } else { 0.0 };
            promised.max(probe * offered)
        }));
        let Settings { freeze, relax, release, .. } = *settings;
        self.overload.look(now, topology, memory, &settings.overload, freeze, release);
        let thresholds = &settings.overload;
        let view = View { now, elapsed, freeze, relax, release, thresholds, topology, memory };
        self.controller.learn(&view, &self.rates, &mut self.overload);
        self.overloaded.clear();
        self.overloaded.extend(self.overload.iter());
        self.clusters.build(topology, &self.overloaded, settings.clustering);
        for cluster in self.clusters.iter() {
            // Where nothing new was heard, rates stay as they are.
            let heard = cluster.services.iter().map(|&service| memory.service_heard(service));
            let heard = heard.chain(cluster.apis.iter().map(|&api| memory.api_heard(api)));
            if heard.max().flatten() == Some(now) {
                self.controller.control(cluster, &view, &mut self.rates);
            }
        }
        self.freed.clear();
        let (clusters, rates) = (&self.clusters, &self.rates);
        self.freed.extend(rates.limited().filter(|&api| clusters.of(api).is_none()));
        self.freed.retain(|&api| let_go(api, &view, settings, &mut self.rates));
        self.controller.recover(&self.freed, &view, &mut self.rates);
        Step {
            rates: self.rates.all(),
            decisions: self.rates.decisions(),
            clusters: &self.clusters,
            overload: &self.overload,
            handovers: self.controller.handovers(),
        }
    }
}

/// Lifts the limit of an API that needs none, and relaxes that of one for whose sake it is limited nothing was heard of. Whether it is
/// still limited, and the controller may recover it.
fn let_go(api: ApiId, view: &View<'_>, settings: &Settings, rates: &mut Rates) -> bool {
    let Some(limit) = rates.get(api) else { return false };
    if view.topology.uses(api).is_empty() {
        rates.lift(api, None, Why::Gone);
        return false;
    }
    // What comes is no sign of what the service can do for whose sake it is limited.
    let silent = view.now.since(view.heard_for(api, rates.target(api)).unwrap_or(Nanos::ZERO));
    if silent > settings.release {
        rates.lift(api, None, Why::Silence);
        return false;
    }
    if !view.believes_for(api, rates.target(api)) {
        rates.set(api, limit * view.relaxed(), None, None, Why::Silence);
        return false;
    }
    let binds = view.memory.api(api).offered_per_s.is_none_or(|offered| offered > limit * 0.95);
    let Some(limit) = rates.limit_mut(api) else { return false };
    if binds {
        limit.idle = None;
        return true;
    }
    let since = *limit.idle.get_or_insert(view.now);
    if view.now.since(since) >= settings.idle {
        rates.lift(api, None, Why::Unneeded);
        return false;
    }
    true
}
