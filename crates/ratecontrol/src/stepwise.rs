//! The paper's way (section 4.1, Algorithm 1): in each cluster one service at a time is relieved, the one that the fewest APIs call, and
//! at the cost of its least important callers; those on whose paths nothing is overloaded any more recover, the most important first. By
//! how much an [`Actor`] says.

use std::collections::HashMap;

use plimsoll_core::Nanos;

use crate::clusters::Cluster;
use crate::controller::{RateController, View};
use crate::rates::{Rates, Why};
use crate::topology::{ApiId, ServiceId};

/// What an actor goes by: how the candidates fare, taken together (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The sum of their goodput over the sum of their rate limits, in 0..1 unless signals disagree.
    pub goodput: f64,
    /// The highest of their tail latencies, each over its SLO.
    pub latency: f64,
    /// The sum of their rate limits, or of what is let in of those that have none, in requests a second.
    pub rate_per_s: f64,
    /// The sum of what is sent of them, in requests a second.
    pub offered_per_s: f64,
}

/// Says by how much rates are changed.
pub trait Actor: Send {
    /// Its name, as in reports.
    fn name(&self) -> &'static str;

    /// The part of the rates to add or, where negative, to take away in a second. It is clamped to [`ACTIONS`]; what is no number is zero.
    fn act(&mut self, state: &State) -> f64;
}

/// The greatest action, either way (section 4.3).
pub const ACTIONS: f64 = 0.5;

/// The paper acts once a second. Where signals come more often each action is that part of one that has passed since the last one; after
/// a longer time it is one.
const WHOLE_S: f64 = 1.0;

/// API-wise control with an actor.
#[derive(Clone, Debug)]
pub struct Stepwise<A> {
    actor: A,
    freed: Vec<(Option<ServiceId>, ApiId)>,
    /// When something was last done for the sake of each service.
    acted: HashMap<Option<ServiceId>, Nanos>,
}

impl<A: Actor> Stepwise<A> {
    /// With this actor.
    pub fn new(actor: A) -> Stepwise<A> {
        Stepwise { actor, freed: Vec::new(), acted: HashMap::new() }
    }

    /// What says by how much.
    pub fn actor_mut(&mut self) -> &mut A {
        &mut self.actor
    }

    /// What part of an action is due for the sake of these services; one where nothing was done for any of them yet.
    fn part(&mut self, services: impl Iterator<Item = Option<ServiceId>>, now: Nanos) -> f64 {
        let last = services.filter_map(|service| self.acted.insert(service, now)).max();
        last.map_or(1.0, |last| (now.since(last).as_secs_f64() / WHOLE_S).min(1.0))
    }

    fn act(&mut self, state: Option<State>) -> f64 {
        let action = state.map_or(0.0, |state| self.actor.act(&state));
        if action.is_nan() { 0.0 } else { action.clamp(-ACTIONS, ACTIONS) }
    }
}

impl<A: Actor> RateController for Stepwise<A> {
    fn name(&self) -> &'static str {
        self.actor.name()
    }

    fn control(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &mut Rates) {
        // What was already acted on is not acted on again.
        if !cluster.services.iter().any(|&service| view.memory.service_heard(service) == Some(view.now)) {
            return;
        }
        let part = self.part(cluster.services.iter().copied().map(Some), view.now);
        let rate =
            |api: ApiId, rates: &Rates| enters(api, view, rates).filter(|&rate| rate > rates.floor(api));
        let callers = |service: ServiceId| view.topology.users(service).iter().map(|&(api, _)| api);
        // A service whose callers all have nothing left to give keeps none of the others waiting.
        let gives = |service: &&ServiceId| callers(**service).any(|api| rate(api, rates).is_some());
        let fewest = |service: &&ServiceId| view.topology.users(**service).len();
        let Some(&target) = cluster.services.iter().filter(gives).min_by_key(fewest) else { return };
        let candidates = || callers(target);
        // An action upwards leads nowhere: on the path of each candidate there is the target.
        let action = part * self.act(state(candidates(), view, rates)).min(0.0);
        // Who has nothing left to give is not asked; then it is the turn of the next in importance.
        let giving = candidates().filter(|&api| rate(api, rates).is_some());
        let Some(least) = giving.map(|api| view.topology.api(api).priority).max() else { return };
        if action < 0.0 {
            for api in candidates().filter(|&api| view.topology.api(api).priority == least) {
                if let Some(rate) = rate(api, rates) {
                    rates.set(api, rate * (1.0 + action), Some(cluster.number), Some(target), Why::Relieve);
                }
            }
        }
    }

    fn recover(&mut self, freed: &[ApiId], view: &View<'_>, rates: &mut Rates) {
        let mut groups = std::mem::take(&mut self.freed);
        groups.clear();
        // A limit that does not bind is not what keeps anybody back.
        let binds = |api: ApiId| {
            let limit = rates.get(api).unwrap_or(f64::INFINITY);
            view.memory.api(api).offered_per_s.is_none_or(|offered| offered > limit * 0.95)
        };
        groups.extend(freed.iter().filter(|&&api| binds(api)).map(|&api| (rates.target(api), api)));
        groups.sort_unstable();
        for group in groups.chunk_by(|a, b| a.0 == b.0) {
            let (target, apis) = (group[0].0, || group.iter().map(|&(_, api)| api));
            if apis().all(|api| view.heard_for(api, target) != Some(view.now)) {
                continue;
            }
            let part = self.part(std::iter::once(target), view.now);
            let action = part * self.act(state(apis(), view, rates)).max(0.0);
            let Some(first) = apis().map(|api| view.topology.api(api).priority).min() else { continue };
            for api in apis().filter(|&api| view.topology.api(api).priority == first) {
                if let Some(rate) = rates.get(api).filter(|_| action > 0.0) {
                    rates.set(api, rate * (1.0 + action), None, target, Why::Recover);
                }
            }
        }
        self.freed = groups;
    }
}

/// Requests a second that enter of an API: its limit, or what is sent if that is less.
fn enters(api: ApiId, view: &View<'_>, rates: &Rates) -> Option<f64> {
    match (rates.get(api), view.memory.api(api).offered_per_s) {
        (Some(limit), offered) => Some(offered.map_or(limit, |offered| limit.min(offered))),
        (None, _) => view.admitted(api),
    }
}

fn state(candidates: impl Iterator<Item = ApiId>, view: &View<'_>, rates: &Rates) -> Option<State> {
    let mut state = State { goodput: 0.0, latency: 0.0, rate_per_s: 0.0, offered_per_s: 0.0 };
    for api in candidates {
        let Some(rate) = enters(api, view, rates) else { continue };
        let signal = view.memory.api(api);
        state.rate_per_s += rate;
        state.offered_per_s += signal.offered_per_s.unwrap_or(rate);
        state.goodput += signal.goodput_per_s.unwrap_or(rate);
        if let Some(latency) = signal.tail_latency {
            let slo = view.topology.api(api).slo.as_secs_f64();
            state.latency = state.latency.max(latency.as_secs_f64() / slo.max(1e-9));
        }
    }
    let sent = state.rate_per_s > 0.0;
    sent.then(|| State { goodput: state.goodput / state.rate_per_s, ..state })
}
