//! The discrete events of a fleet: users, the entry, services, autoscalers, failures.
//!
//! Time jumps from event to event; at one instant they happen in the order in which they came about. What users send depends on the seed
//! alone, not on who controls, so that all controllers see the same traffic. Nothing here knows a policy but those that instances run for
//! themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::{Nanos, Rng, rng};
use plimsoll_ratecontrol::baselines::Priority;
use rand::RngExt;
use rand_distr::Exp1;

use super::account::{Account, Counts};
use super::autoscaler::{self, Autoscaler};
use super::bucket::Bucket;
use super::events::{Event, Events};
use super::plan::Plan;
use super::request::{Request, Requests};
use super::service::{Began, Call, Came, Did, Guards, ServiceState};

/// A fleet under way.
#[derive(Clone)]
pub struct Fleet {
    plan: Arc<Plan>,
    now: Nanos,
    events: Events,
    requests: Requests,
    services: Vec<ServiceState>,
    scalers: Vec<Option<Autoscaler>>,
    entries: Vec<Bucket>,
    accounts: Vec<Account>,
    users: Vec<Rng>,
    /// Of clients that try again: apart, so that nobody's retries shift what users send.
    clients: Rng,
    /// How many instances a service has had, from when on.
    history: Vec<(Nanos, u32, u32)>,
    lost: Vec<u32>,
    /// By API, how long each service on its paths has worked for it, as its spans tell.
    worked: Vec<Vec<Worked>>,
}

/// How long a service has worked for an API.
#[derive(Clone, Copy, Debug)]
pub struct Worked {
    /// Which service.
    pub service: u32,
    /// Calls, and seconds for all of them.
    pub calls: f64,
    /// See above.
    pub seconds: f64,
}

/// Why an attempt did not go well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Refused where it enters.
    Limited,
    /// Refused on the way.
    Refused,
    /// Lost with an instance.
    Lost,
}

impl Fleet {
    /// At its start: nobody has come, nobody is limited.
    pub fn new(plan: Arc<Plan>, guards: Guards, seed: u64) -> Fleet {
        let services = plan.services.iter().enumerate();
        let services: Vec<_> =
            services.map(|(i, service)| ServiceState::new(service.clone(), i as u64, guards, seed)).collect();
        let mut fleet = Fleet {
            now: Nanos::ZERO,
            events: Events::default(),
            requests: Requests::default(),
            scalers: plan.services.iter().map(|s| s.autoscale.clone().map(Autoscaler::new)).collect(),
            entries: vec![Bucket::default(); plan.apis.len()],
            accounts: vec![Account::default(); plan.apis.len()],
            users: (0..plan.apis.len() as u64).map(|api| rng::seeded(seed, 2 * api + 2)).collect(),
            clients: rng::seeded(seed, 0),
            history: services
                .iter()
                .enumerate()
                .map(|(i, s)| (Nanos::ZERO, i as u32, s.instances()))
                .collect(),
            lost: Vec::new(),
            worked: worked(&plan),
            services,
            plan: plan.clone(),
        };
        (0..plan.apis.len()).for_each(|api| fleet.expect_user(api));
        for (i, service) in plan.services.iter().enumerate() {
            for (failure, what) in service.failures.iter().enumerate() {
                fleet.events.put(what.at, Event::Fail { service: i as u32, failure: failure as u32 });
            }
            if let Some(autoscale) = &service.autoscale {
                fleet.events.put(autoscale.every, Event::Scale { service: i as u32 });
            }
        }
        fleet
    }

    /// What it runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far it has come.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Lets time go on to `until`.
    pub fn advance(&mut self, until: Nanos) {
        while let Some((at, event)) = self.events.next_before(until) {
            self.now = at;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    /// Requests a second that may enter, API by API; nothing: all.
    pub fn set_rates(&mut self, rates: &[Option<f64>]) {
        for (entry, &rate) in self.entries.iter_mut().zip(rates) {
            if entry.rate_per_s() != rate {
                entry.set_rate(rate, self.now);
            }
        }
    }

    /// What became of the requests of an API so far.
    pub fn counts(&self, api: usize) -> Counts {
        self.accounts[api].counts
    }

    /// All that was counted of each API.
    pub fn accounts_mut(&mut self) -> &mut [Account] {
        &mut self.accounts
    }

    /// What a service did so far.
    pub fn did(&mut self, service: usize) -> Did {
        self.services[service].did(self.now)
    }

    /// A service as it stands.
    pub fn service(&self, service: usize) -> &ServiceState {
        &self.services[service]
    }

    /// By API, in the order of the services, how long each has worked for it so far.
    pub fn worked(&self) -> &[Vec<Worked>] {
        &self.worked
    }

    /// Attempts that are under way, and clients that wait to try again.
    pub fn under_way(&self) -> usize {
        self.requests.count()
    }

    /// When a service had how many instances: in the order of time; at first all have what they began with.
    pub fn history(&self) -> &[(Nanos, u32, u32)] {
        &self.history
    }

    /// Requests of an API that were answered in time, by [`TIMELINE_STEP`](super::account::TIMELINE_STEP).
    pub fn timeline_of(&self, api: usize) -> &[u32] {
        &self.accounts[api].timeline
    }

    /// The same of all APIs together.
    pub fn timeline(&self) -> Vec<u32> {
        let steps = self.accounts.iter().map(|account| account.timeline.len()).max().unwrap_or(0);
        let at = |step: usize| self.accounts.iter().filter_map(|account| account.timeline.get(step)).sum();
        (0..steps).map(at).collect()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { api } => self.arrive(api),
            Event::Done { service, instance, life, worker } => {
                let Some((request, began)) =
                    self.services[service as usize].done(instance, life, worker, self.now)
                else {
                    return;
                };
                began.into_iter().for_each(|began| self.expect_done(service, began));
                self.visited(request);
            }
            Event::Retry { request } => self.attempt(request),
            Event::Timeout { request, generation } => self.time_out(request, generation),
            Event::Fail { service, failure } => self.fail_instances(service, failure),
            Event::Start { service } => {
                self.services[service as usize].start(self.now);
                if let Some(scaler) = &mut self.scalers[service as usize] {
                    scaler.started();
                }
                self.note_instances(service);
            }
            Event::Scale { service } => self.scale(service),
        }
    }

    /// Puts the next user of an API down: Poisson at a rate that changes by steps.
    fn expect_user(&mut self, api: usize) {
        let offered = &self.plan.apis[api].offered;
        let mut from = self.now;
        loop {
            let (per_s, changes) = (offered.at(from), offered.changes_after(from));
            if per_s > 0.0 {
                let unit: f64 = self.users[api].sample(Exp1);
                let at = from + Nanos::from_secs_f64(unit / per_s);
                if changes.is_none_or(|changes| at < changes) {
                    return self.events.put(at, Event::Arrive { api: api as u32 });
                }
            }
            // Poisson arrivals have no memory: at the new rate they begin anew.
            let Some(changes) = changes else { return };
            from = changes;
        }
    }

    #[inline]
    fn arrive(&mut self, api: u32) {
        let place = api as usize;
        self.expect_user(place);
        let rng = &mut self.users[place];
        let user = rng.random_range(0..128u32) as u8;
        let paths = self.plan.apis[place].paths.clone();
        let path = if paths.len() == 1 {
            paths.start
        } else {
            let drawn: f64 = rng.random();
            let mut of_api = paths.clone();
            of_api.find(|&path| drawn < self.plan.paths[path].share_up_to).unwrap_or(paths.end - 1)
        };
        self.accounts[place].counts.sent += 1;
        let (first_sent, sent) = (self.now, self.now);
        let request = self.requests.insert(Request {
            api,
            path: path as u32,
            stage: 0,
            pending: 0,
            first_sent,
            sent,
            tries: 0,
            user,
            failed: false,
            abandoned: false,
        });
        self.attempt(request);
    }

    /// A client sends a request, for the first time or again.
    fn attempt(&mut self, place: u32) {
        let now = self.now;
        let request = self.requests.get(place);
        let api = request.api as usize;
        (request.sent, request.stage, request.pending) = (now, 0, 0);
        self.accounts[api].counts.attempts += 1;
        if !self.entries[api].admits(now) {
            return self.fail(place, Failure::Limited);
        }
        if let Some(timeout) = self.plan.apis[api].retries.timeout {
            let generation = self.requests.generation(place);
            self.events.put(now + timeout, Event::Timeout { request: place, generation });
        }
        self.enter_stage(place);
    }

    /// Calls the services of the step that a request has come to.
    fn enter_stage(&mut self, place: u32) {
        let plan = self.plan.clone();
        let request = self.requests.get(place);
        let path = &plan.paths[request.path as usize];
        let api = &plan.apis[request.api as usize];
        let visits = &path.visits[path.stages[request.stage as usize].clone()];
        request.pending = visits.len() as u32;
        let priority = Priority::new(api.priority, request.user);
        let mut refused = 0;
        for visit in visits {
            let call = Call { request: place, cost: visit.cost, priority };
            match self.services[visit.service as usize].call(
                call,
                plan.callers[visit.service as usize],
                self.now,
            ) {
                Came::Began(began) => self.expect_done(visit.service, began),
                Came::Waits => {}
                Came::Refused => refused += 1,
            }
        }
        if refused > 0 {
            self.requests.get(place).pending -= refused;
            self.fail(place, Failure::Refused);
        }
    }

    fn expect_done(&mut self, service: u32, began: Began) {
        let Began { request, instance, life, worker, done_at } = began;
        let worked = &mut self.worked[self.requests.get(request).api as usize];
        if let Ok(at) = worked.binary_search_by_key(&service, |worked| worked.service) {
            worked[at].calls += 1.0;
            worked[at].seconds += (done_at - self.now).as_secs_f64();
        }
        self.events.put(done_at, Event::Done { service, instance, life, worker });
    }

    /// A visit is over.
    fn visited(&mut self, place: u32) {
        let request = self.requests.get(place);
        request.pending -= 1;
        if request.pending > 0 {
            return;
        }
        if request.failed {
            self.requests.remove(place);
            return;
        }
        request.stage += 1;
        if (request.stage as usize) < self.plan.paths[request.path as usize].stages.len() {
            return self.enter_stage(place);
        }
        let Request { api, first_sent, sent, abandoned, .. } = self.requests.remove(place);
        let deadline = self.plan.apis[api as usize].deadline;
        let (attempt, took) = (self.now - sent, self.now - first_sent);
        self.accounts[api as usize].answered(self.now, attempt, took, deadline, abandoned);
    }

    /// An attempt has failed. What is left of it goes on in vain, and its client may try again.
    fn fail(&mut self, place: u32, why: Failure) {
        let request = self.requests.get(place);
        let again = (!request.abandoned).then_some(*request);
        let first = !std::mem::replace(&mut request.failed, true);
        let over = request.pending == 0;
        let counts = &mut self.accounts[request.api as usize].counts;
        if over {
            self.requests.remove(place);
        }
        if !first {
            return;
        }
        match why {
            Failure::Limited => counts.limited += 1,
            Failure::Refused => counts.refused += 1,
            Failure::Lost => counts.lost += 1,
        }
        again.into_iter().for_each(|request| self.try_again(request));
    }

    /// The client has waited long enough. The fleet does not know, and goes on.
    fn time_out(&mut self, place: u32, generation: u32) {
        if self.requests.generation(place) != generation {
            return;
        }
        let request = self.requests.get(place);
        if request.failed || request.abandoned {
            return;
        }
        request.abandoned = true;
        let request = *request;
        self.accounts[request.api as usize].counts.abandoned += 1;
        self.try_again(request);
    }

    /// The client of an attempt that did not go well tries again, if it has any tries left.
    fn try_again(&mut self, before: Request) {
        let retries = &self.plan.apis[before.api as usize].retries;
        if before.tries >= retries.max {
            return;
        }
        let wait = rng::backoff(&mut self.clients, retries.backoff, before.tries);
        let again = Request {
            tries: before.tries + 1,
            failed: false,
            abandoned: false,
            stage: 0,
            pending: 0,
            ..before
        };
        let request = self.requests.insert(again);
        self.events.put(self.now + wait, Event::Retry { request });
    }

    fn fail_instances(&mut self, service: u32, failure: u32) {
        let what = self.plan.services[service as usize].failures[failure as usize].clone();
        let mut lost = std::mem::take(&mut self.lost);
        let there = self.services[service as usize].instances();
        for _ in 0..what.instances.min(there) {
            self.services[service as usize].fail(self.now, &mut lost);
            if let Some(after) = what.back_after {
                self.events.put(self.now + after, Event::Start { service });
            }
        }
        self.note_instances(service);
        for request in lost.drain(..) {
            self.requests.get(request).pending -= 1;
            self.fail(request, Failure::Lost);
        }
        self.lost = lost;
    }

    fn scale(&mut self, service: u32) {
        let place = service as usize;
        let did = self.services[place].did(self.now);
        let asked = autoscaler::asked_of(&self.plan, place, &self.accounts);
        let Some(scaler) = &mut self.scalers[place] else { return };
        let change = scaler.look(self.now, &did, &asked, self.services[place].instances());
        let (every, start) = (scaler.settings().every, scaler.settings().start);
        self.events.put(self.now + every, Event::Scale { service });
        for _ in 0..change.max(0) {
            self.events.put(self.now + start, Event::Start { service });
        }
        for _ in change..0 {
            self.services[place].retire(self.now);
        }
        if change < 0 {
            self.note_instances(service);
        }
    }

    fn note_instances(&mut self, service: u32) {
        self.history.push((self.now, service, self.services[service as usize].instances()));
    }
}

/// Nothing yet, of each service on each API's paths.
fn worked(plan: &Plan) -> Vec<Vec<Worked>> {
    let of_api = |paths: std::ops::Range<usize>| {
        let visits = plan.paths[paths].iter().flat_map(|path| &path.visits);
        let services: BTreeSet<u32> = visits.map(|visit| visit.service).collect();
        services.into_iter().map(|service| Worked { service, calls: 0.0, seconds: 0.0 }).collect()
    };
    plan.apis.iter().map(|api| of_api(api.paths.clone())).collect()
}
