//! Ours: learns what services can do and APIs cost, and solves for the best rates (section 3, Eq. 1).
//!
//! The paper's authors could not write their problem down: what the load of a request is and what services bear is not known. But both can
//! be learned while running, service by service, and what is left is a linear programme: as many good answers as can be, subject to what
//! every service bears; the most important first. It is solved anew in every step, so rates do not grope their way: they follow what
//! services can do as soon as that is seen. What the model has wrong shows in the queues, and the queues correct it.
//!
//! | part | does |
//! | --- | --- |
//! | `costs` | learns what a call of each API costs a service |
//! | `service` | learns what a service can do, and says how much load it may take |
//! | `past` | what entered when that happened which is told only now |
//! | `untold` | reckons the queue of a service where nobody tells it |
//! | `rows` | says which services of a cluster bind, and how much room each has |
//! | `plan` | makes a linear programme of a cluster, and rates of its solution |
//! | `simplex` | solves it |

mod costs;
mod past;
mod plan;
mod rows;
mod service;
mod simplex;
mod untold;

use plimsoll_core::Nanos;

use crate::clusters::Cluster;
use crate::controller::{RateController, View};
use crate::learned::guard::Claim;
use crate::overload::Overload;
use crate::rates::{Rates, Why};
use crate::topology::{ApiId, OwnTime, ServiceId};

use past::Past;
use plan::{Demand, Plan};
use rows::Touched;
use service::{Goal, LOST_S, Seen, Service};

/// What may be set of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The utilisation to fill a service to where its queue is not known.
    pub utilization: f64,
    /// The wait to keep where it is known, as a part of the wait from which on a service counts as overloaded: so it is never idle.
    pub wait: f64,
    /// The time in which a queue that is too long is to be worked off; at least two steps.
    pub drain: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { utilization: 0.96, wait: 0.8, drain: Nanos::from_millis(500) }
    }
}

/// Limits stay in force for the sake of a service that would be loaded beyond this if they went.
const HOLD: f64 = 0.92;
/// An API is limited once it shall get less than this part of what is sent: what is less off than that is noise.
const CLEARLY: f64 = 0.97;
/// A limit is lifted once this many steps running there was room for all that is sent.
const SURE: u8 = 2;

/// What is known of an API.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Requests a second that are sent.
    offered: Option<f64>,
    /// Requests a second that enter.
    admitted: f64,
    /// Its tail latency where nothing waits, in seconds.
    calm_s: Option<f64>,
    /// How far its tail latency is above that; nothing where none was told in this step.
    excess_s: Option<f64>,
    /// Requests that were answered in time, and that entered; those of long ago hardly count any more.
    good: f64,
    entered: f64,
    /// How many services on its path hold it up.
    full: u32,
    /// Steps running in which there was room for all of it.
    fits: u8,
}

impl Known {
    /// The part of what enters that is not answered in time.
    fn late(&self) -> f64 {
        if self.entered > 0.0 { (1.0 - self.good / self.entered).max(0.0) } else { 0.0 }
    }
}

/// The model-based controller.
#[derive(Clone, Debug, Default)]
pub struct Model {
    settings: Settings,
    services: Vec<Service>,
    apis: Vec<Known>,
    /// Load that a request a second is, by pair of API and service; nothing where that is not known.
    weight: Vec<f64>,
    /// Load that each service is to expect as things are, and would be if nobody was limited.
    load: Vec<f64>,
    wanted: Vec<f64>,
    /// Services that hold up what comes: what was admitted is not yet what comes behind them.
    full: Vec<bool>,
    flows: Vec<f64>,
    past: Past,
    /// What was answered in time, of those of whom that was ever told.
    answered: Past,
    /// The times of which it may be what is told of a service, and the flows in each.
    past_times: Vec<(Nanos, Nanos)>,
    past_flows: Vec<f64>,
    own_times: Vec<OwnTime>,
    plan: Plan,
    /// Services of a cluster, and the row of each.
    touched: Vec<Touched>,
    place: Vec<u32>,
}

/// Who of those who call a service is limited.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Anybody at all.
    any: bool,
    /// Anybody for its sake.
    for_it: bool,
    /// The priority of the most important of them.
    first: Option<u32>,
}

impl Model {
    /// A model that knows nothing yet.
    pub fn new(settings: Settings) -> Model {
        Model { settings, ..Model::default() }
    }

    fn learn_apis(&mut self, view: &View<'_>) {
        self.apis.resize(view.topology.apis().len(), Known::default());
        self.full.clear();
        self.full.extend((0..view.topology.services()).map(|at| {
            let service = ServiceId(at as u32);
            let signal = view.memory.service(service);
            let patience_s = view.patience(service).as_secs_f64();
            view.knows(service) && self.services[at].holds_up(&signal, patience_s)
        }));
        let seconds = view.elapsed.as_secs_f64();
        for (at, known) in self.apis.iter_mut().enumerate() {
            let api = ApiId(at as u32);
            let signal = view.memory.api_now(api);
            if let Some(offered) = signal.offered_per_s {
                known.offered = Some(follow(known.offered, offered, seconds));
            }
            known.admitted = view.admitted(api).unwrap_or(0.0);
            let uses = view.topology.uses(api);
            known.full = uses.iter().filter(|(service, _)| self.full[service.index()]).count() as u32;
            let slo_s = view.topology.api(api).slo.as_secs_f64();
            let keep = (-seconds / LOST_S).exp();
            known.good = known.good * keep + signal.goodput_per_s.unwrap_or(known.admitted) * seconds;
            known.entered = known.entered * keep + known.admitted * seconds;
            known.excess_s = signal.tail_latency.map(|latency| {
                let latency = latency.as_secs_f64();
                if known.full == 0 {
                    // The least that was seen, slowly forgotten.
                    let calm = known.calm_s.map_or(latency, |calm| calm + (latency - calm) * 0.01);
                    known.calm_s = Some(calm.min(latency));
                }
                latency - known.calm_s.unwrap_or(latency.min(slo_s / 4.0))
            });
        }
    }

    /// Learns from what is told of a service; of this time, if it was not heard in the step before.
    fn learn_service(&mut self, service: ServiceId, missed: Option<(usize, usize)>, view: &View<'_>) {
        let (mut expected, mut held_up, mut late) = (0.0, 0.0, 0.0);
        let mut inferred: Option<f64> = None;
        let since = self.services[service.index()].heard_for(view.now).unwrap_or(view.elapsed);
        let signal = view.memory.service_now(service);
        let (time, mut answered) =
            (self.answered.last(view.now, since), signal.queue_delay.is_none().then_some(0.0));
        let full = u32::from(self.full[service.index()]);
        self.flows.clear();
        for &(api, calls) in view.topology.users(service) {
            let known = &self.apis[api.index()];
            let admitted = missed.map_or(known.admitted, |time| self.past.per_s(time, api));
            let flow = admitted * calls;
            expected += flow;
            self.flows.push(flow);
            if known.full > full {
                held_up += flow;
            }
            late += flow * known.late();
            let tells = flow == 0.0 || view.memory.api(api).goodput_per_s.is_some();
            answered = answered.filter(|_| tells).map(|sum| sum + self.answered.per_s(time, api) * calls);
            // All who call it wait here, so none waits less in all.
            if let Some(excess) = known.excess_s.filter(|_| flow > 0.0) {
                inferred = Some(inferred.map_or(excess, |least| least.min(excess)));
            }
        }
        if self.past_times.is_empty() {
            self.past_times.push((view.now.since(view.elapsed), view.now));
            self.past_flows.extend_from_slice(&self.flows);
        }
        self.own_times.clear();
        self.own_times
            .extend(view.topology.pairs_of(service).iter().map(|&pair| view.topology.own_time(pair)));
        let seen = Seen {
            now: view.now,
            signal,
            says_busy: view.memory.service(service).utilization.is_some(),
            flows: &self.flows,
            users: view.topology.users(service),
            own_times: &self.own_times,
            expected_per_s: expected,
            times: &self.past_times,
            past: &self.past_flows,
            settled: held_up <= 0.1 * expected,
            inferred_wait_s: inferred,
            answered_per_s: answered.unwrap_or(0.0),
            patience_s: view.patience(service).as_secs_f64(),
            late: if expected > 0.0 { late / expected } else { 0.0 },
        };
        let Settings { utilization, wait, drain } = self.settings;
        self.services[service.index()].learn(&seen, &Goal { utilization, wait, drain });
    }

    /// The load of a service by what was let in.
    fn comes_to(&self, service: ServiceId, view: &View<'_>) -> f64 {
        let known = &self.services[service.index()];
        let load = |&(api, calls): &(ApiId, f64)| {
            known.cost(api).map_or(0.0, |cost| cost * calls * self.apis[api.index()].admitted)
        };
        view.topology.users(service).iter().map(load).sum()
    }

    /// What came in the times of which it may be what is told of a service only now.
    fn look_back(&mut self, service: ServiceId, since: Nanos, view: &View<'_>) {
        let (past, users) = (&self.past, view.topology.users(service).iter());
        for time in past.may_be(view.now, since, view.elapsed) {
            self.past_times.push(past.between(time));
            self.past_flows.extend(users.clone().map(|&(api, calls)| past.per_s(time, api) * calls));
        }
    }

    /// The loads of a service as things are and as they would be, and who of those who call it is limited.
    fn weigh(&mut self, service: ServiceId, view: &View<'_>, rates: &Rates) -> Limits {
        let (mut load, mut wanted, mut limits) = (0.0, 0.0, Limits::default());
        let pairs = view.topology.pairs_of(service).iter();
        for (&(api, calls), &pair) in view.topology.users(service).iter().zip(pairs) {
            let weight = self.services[service.index()].cost(api).map_or(0.0, |cost| cost * calls);
            self.weight[pair as usize] = weight;
            let limit = rates.get(api);
            if limit.is_some() {
                let priority = view.topology.api(api).priority;
                limits.any = true;
                limits.for_it |= rates.target(api) == Some(service);
                limits.first = Some(limits.first.map_or(priority, |first| first.min(priority)));
            }
            load += weight * self.comes(api, limit);
            wanted += weight * self.wants(api, limit);
        }
        self.load[service.index()] = load;
        self.wanted[service.index()] = wanted;
        limits
    }

    /// Requests a second that an API could use. Of one that is limited and whose senders are not counted it is assumed to be more than it
    /// gets.
    fn wants(&self, api: ApiId, limit: Option<f64>) -> f64 {
        let known = &self.apis[api.index()];
        known.offered.unwrap_or(limit.map_or(known.admitted, |limit| limit * 1.5))
    }

    /// Requests a second of it that are to be expected, as it is limited.
    fn comes(&self, api: ApiId, limit: Option<f64>) -> f64 {
        let wants = self.wants(api, limit);
        limit.map_or(wants, |limit| limit.min(wants))
    }

    /// Who takes part in a cluster's plan, the most important first.
    fn gather(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &Rates) {
        self.plan.begin();
        for &api in cluster.apis {
            let (limit, known) = (rates.get(api), &self.apis[api.index()]);
            let uses = view.topology.uses(api);
            let priority = view.topology.api(api).priority;
            // Less than now there is only for the sake of an overload that was seen, that one would come being a guess; or of who is more
            // important and kept out of what this one fills.
            let seen = uses.iter().any(|&(service, _)| {
                let service = &self.services[service.index()];
                service.held || service.owed_to.is_some_and(|first| first < priority)
            });
            let most = if seen || limit.is_some() { self.wants(api, limit) } else { known.admitted };
            let current = limit.unwrap_or(most).min(most);
            let least = if seen { rates.floor(api).min(most) } else { current };
            self.plan.demands.push(Demand { api, least, most, current, priority });
        }
        self.plan.demands.sort_by_key(|demand| (demand.priority, demand.api));
    }

    /// What could be had of each API of a cluster if every service in it was as full as it may be and none had a queue to work off, the most
    /// important first. Whether enough is known to say so.
    pub(crate) fn predict(
        &mut self,
        cluster: Cluster<'_>,
        view: &View<'_>,
        rates: &Rates,
        claims: &mut Vec<Claim>,
    ) -> bool {
        if !cluster.services.iter().all(|&service| self.knows(service, view)) {
            return false;
        }
        let full = self.settings.utilization;
        self.gather(cluster, view, rates);
        self.bind(view, rates, |service| service.allowed().max(full));
        self.plan.solve();
        let demands = self.plan.demands.iter().zip(&self.plan.rates);
        claims.extend(demands.map(|(demand, &predicted_per_s)| {
            let Demand { api, priority, .. } = *demand;
            Claim { api, priority, predicted_per_s }
        }));
        true
    }

    /// Whether it is known what the services on the path of an API can do.
    pub(crate) fn is_learned(&self, api: ApiId, view: &View<'_>) -> bool {
        view.topology.uses(api).iter().all(|&(service, _)| self.knows(service, view))
    }

    fn knows(&self, service: ServiceId, view: &View<'_>) -> bool {
        view.knows(service) && self.services[service.index()].is_learned()
    }
}

impl RateController for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn learn(&mut self, view: &View<'_>, rates: &Rates, overload: &mut Overload) {
        let services = view.topology.services();
        self.services.resize(services, Service::default());
        self.weight.resize(view.topology.pairs(), 0.0);
        self.load.resize(services, 0.0);
        self.wanted.resize(services, 0.0);
        self.learn_apis(view);
        let admitted = self.apis.iter().map(|known| known.admitted);
        self.past.take(view.now, view.elapsed.as_secs_f64(), admitted);
        let answered = |at| view.memory.api(ApiId(at as u32)).goodput_per_s.unwrap_or(0.0);
        let answered = (0..self.apis.len()).map(answered);
        self.answered.take(view.now, view.elapsed.as_secs_f64(), answered);
        for service in (0..services).map(|at| ServiceId(at as u32)) {
            if view.topology.users(service).is_empty() {
                // It is gone, or nobody calls it any more: its place may be another's next time.
                self.services[service.index()] = Service::default();
                continue;
            }
            let tells_queue = view.memory.service(service).queue_delay.is_some();
            if !tells_queue {
                let load = self.comes_to(service, view);
                self.services[service.index()].reckon(view.now, load, view.elapsed.as_secs_f64());
            }
            if view.memory.service_heard(service) == Some(view.now) {
                self.past_times.clear();
                self.past_flows.clear();
                let mut missed = None;
                if let Some(since) = self.services[service.index()].heard_for(view.now) {
                    if tells_queue {
                        missed = self.past.missed(view.now, since, view.elapsed);
                    } else {
                        self.look_back(service, since, view);
                    }
                }
                self.learn_service(service, missed, view);
            }
            let Limits { any: limited, for_it, first } = self.weigh(service, view, rates);
            let (load, wanted) = (self.load[service.index()], self.wanted[service.index()]);
            let known = &mut self.services[service.index()];
            // Limits relieved it; if they went, it would be overloaded again. And raising them must not overload another.
            let again = for_it && view.knows(service) && known.held && wanted > HOLD;
            known.held = overload.is(service) || again;
            known.owed_to = None;
            if again || (limited && view.knows(service) && wanted > 1.0) {
                overload.hold(service);
                known.owed_to = first.filter(|_| load > HOLD);
            }
        }
    }

    fn control(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &mut Rates) {
        self.gather(cluster, view, rates);
        self.bind(view, rates, Service::allowed);
        self.plan.solve();
        if self.be_careful(view, rates) {
            self.plan.solve();
        }
        for column in 0..self.plan.demands.len() {
            let (Demand { api, most, .. }, rate) = (self.plan.demands[column], self.plan.rates[column]);
            let known = &mut self.apis[api.index()];
            let fits = rate >= most * 0.999;
            known.fits = if fits { (known.fits + 1).min(SURE) } else { 0 };
            match rates.get(api) {
                Some(_) if known.fits >= SURE => rates.lift(api, Some(cluster.number), Why::Plan),
                Some(limit) => {
                    // Room for more than is sent is room for what comes before the next step.
                    let rate = if fits { rate.max(limit) } else { rate };
                    if (rate - limit).abs() > 0.003 * limit {
                        rates.set(api, rate, Some(cluster.number), self.bottleneck(column), Why::Plan);
                    }
                }
                None if rate < most * CLEARLY => {
                    rates.set(api, rate, Some(cluster.number), self.bottleneck(column), Why::Plan);
                }
                None => {}
            }
        }
    }

    fn recover(&mut self, freed: &[ApiId], view: &View<'_>, rates: &mut Rates) {
        for &api in freed {
            let Some(limit) = rates.get(api) else { continue };
            if self.is_learned(api, view) {
                // Nobody on the path would be overloaded if nobody was limited.
                rates.lift(api, None, Why::Recover);
            } else if self.apis[api.index()].excess_s.is_none_or(|_| {
                view.memory.api(api).tail_latency.is_some_and(|latency| latency <= view.topology.api(api).slo)
            }) {
                // Part of the path is in the dark: groping.
                let more = view.elapsed.as_secs_f64().min(1.0) * 0.1;
                rates.set(api, limit * (1.0 + more), None, None, Why::Recover);
            }
        }
    }
}

/// A rate that was measured again: steady while it differs by chance, at once where it differs by more.
fn follow(before: Option<f64>, sample: f64, seconds: f64) -> f64 {
    let Some(before) = before else { return sample };
    let chance = 0.1 * before + 3.0 * (before / seconds.max(0.1)).sqrt();
    if (sample - before).abs() > chance {
        return sample;
    }
    before + (sample - before) * (1.0 - (-seconds).exp())
}
