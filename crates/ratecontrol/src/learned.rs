//! The paper's own: by how much rates are changed a network has learned (section 4.3). It is trained by `training/`; its weights are in
//! `models/`, with a card that says how they came about and what they are worth.
//!
//! What was learned holds where it was learned. So [`crate::model`] looks on, says what goodput it would have, and takes over the
//! APIs of a cluster where the network falls behind that for too long, or sees what it was never trained on. Later the network is tried again,
//! after a time that doubles with every failure. Each change of hands is told.
//!
//! | part | does |
//! | --- | --- |
//! | [`network`] | reads weights, and makes an action of a state |
//! | [`guard`] | says in whose hands an API is |

pub mod guard;
pub mod network;

use std::sync::Arc;

use crate::clusters::{Cluster, Clusters};
use crate::controller::{RateController, View};
use crate::model::{self, Model};
use crate::overload::Overload;
use crate::rates::Rates;
use crate::stepwise::{Actor, State, Stepwise};
use crate::topology::{ApiId, ServiceId};

use guard::{Claim, Guard, Handover, Reason};
pub use network::Network;

/// What may be set of the learned controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What was learned.
    pub network: Arc<Network>,
    /// When the model takes over, and for how long; nothing: never, to see what the network is worth by itself.
    pub guard: Option<guard::Settings>,
    /// The model that does.
    pub model: model::Settings,
}

impl Settings {
    /// With these weights.
    pub fn new(network: Network) -> Settings {
        let guard = Some(guard::Settings::default());
        Settings { network: Arc::new(network), guard, model: model::Settings::default() }
    }
}

/// With the weights that come with Plimsoll.
impl Default for Settings {
    fn default() -> Settings {
        Settings::new(Network::base())
    }
}

/// The network as an actor. What it was not trained on it leaves alone, and remembers.
#[derive(Clone, Debug)]
struct Policy {
    network: Arc<Network>,
    beyond: Option<State>,
    /// Whether it acts all the same.
    is_alone: bool,
}

impl Actor for Policy {
    fn name(&self) -> &'static str {
        "learned"
    }

    fn act(&mut self, state: &State) -> f64 {
        if !self.is_alone && !self.network.covers(state) {
            self.beyond = Some(*state);
            return 0.0;
        }
        self.network.act(state)
    }
}

/// The learned controller.
#[derive(Clone, Debug)]
pub struct Learned {
    steps: Stepwise<Policy>,
    model: Model,
    guard: Option<Guard>,
    /// What would be overloaded, and so decided together, if the model decided everywhere.
    overload: Overload,
    overloaded: Vec<ServiceId>,
    clusters: Clusters,
    claims: Vec<Claim>,
    freed: Vec<ApiId>,
}

impl Learned {
    /// Nothing has happened yet; all is in the network's hands.
    pub fn new(settings: Settings) -> Learned {
        let policy = Policy { network: settings.network, beyond: None, is_alone: settings.guard.is_none() };
        Learned {
            steps: Stepwise::new(policy),
            model: Model::new(settings.model),
            guard: settings.guard.map(Guard::new),
            overload: Overload::default(),
            overloaded: Vec::new(),
            clusters: Clusters::default(),
            claims: Vec::new(),
            freed: Vec::new(),
        }
    }

    /// Holds what comes of the APIs against what the model says could.
    fn judge(&mut self, view: &View<'_>, rates: &Rates) {
        let Some(guard) = &mut self.guard else { return };
        guard.begin(view.now, view.topology.apis().len());
        self.overloaded.clear();
        self.overloaded.extend(self.overload.iter());
        self.clusters.build(view.topology, &self.overloaded, true);
        for cluster in self.clusters.iter() {
            self.claims.clear();
            if self.model.predict(cluster, view, rates, &mut self.claims) {
                guard.judge(view, &self.claims);
            }
        }
        // What the model sees no overload for it would let in.
        for api in rates.limited().filter(|&api| self.clusters.of(api).is_none()) {
            let signal = view.memory.api(api);
            if let Some(predicted_per_s) = signal.offered_per_s.filter(|_| self.model.is_learned(api, view)) {
                let priority = view.topology.api(api).priority;
                guard.judge(view, &[Claim { api, priority, predicted_per_s }]);
            }
        }
    }

    fn is_with_model(&self, api: ApiId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_with_model(api))
    }

    /// Whether the network has just met what it was not trained on: then these APIs are the model's.
    fn leaves(&mut self, apis: &[ApiId], view: &View<'_>) -> bool {
        let (Some(state), Some(guard)) = (self.steps.actor_mut().beyond.take(), &mut self.guard) else {
            return false;
        };
        guard.hand_over(apis, view.now, Reason::Beyond { goodput: state.goodput, latency: state.latency });
        true
    }
}

impl RateController for Learned {
    fn name(&self) -> &'static str {
        "learned"
    }

    fn learn(&mut self, view: &View<'_>, rates: &Rates, overload: &mut Overload) {
        if self.guard.is_none() {
            return;
        }
        self.overload.clone_from(overload);
        self.model.learn(view, rates, &mut self.overload);
        self.judge(view, rates);
        for service in self.overload.iter() {
            let mut users = view.topology.users(service).iter();
            if users.any(|&(api, _)| self.is_with_model(api)) {
                overload.hold(service);
            }
        }
    }

    fn control(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &mut Rates) {
        if cluster.apis.iter().any(|&api| self.is_with_model(api)) {
            return self.model.control(cluster, view, rates);
        }
        self.steps.control(cluster, view, rates);
        if self.leaves(cluster.apis, view) {
            self.model.control(cluster, view, rates);
        }
    }

    fn recover(&mut self, freed: &[ApiId], view: &View<'_>, rates: &mut Rates) {
        let mut groups = std::mem::take(&mut self.freed);
        groups.clear();
        groups.extend_from_slice(freed);
        groups.sort_by_key(|&api| (self.is_with_model(api), rates.target(api)));
        let mut left = &groups[..];
        while let Some(&first) = left.first() {
            // Who is limited for the same service recovers together.
            let whose = |api: ApiId| (self.is_with_model(api), rates.target(api));
            let same = left.iter().take_while(|&&api| whose(api) == whose(first)).count();
            let (group, rest) = left.split_at(same);
            left = rest;
            if !self.is_with_model(first) {
                self.steps.recover(group, view, rates);
                if !self.leaves(group, view) {
                    continue;
                }
            }
            self.model.recover(group, view, rates);
        }
        self.freed = groups;
    }

    fn handovers(&self) -> &[Handover] {
        self.guard.as_ref().map_or(&[], Guard::handovers)
    }
}
