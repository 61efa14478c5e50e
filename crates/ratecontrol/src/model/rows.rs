//! Which services of a cluster bind, and how much room each has.

use crate::controller::View;
use crate::rates::Rates;
use crate::topology::ServiceId;

use super::Model;
use super::service::Service;

/// A service that is filled beyond this part of its room keeps others out.
const ALL: f64 = 0.99;
/// What a mix of calls costs may be off by so much without anybody being careful,
const SURELY: f64 = 0.04;
/// and of what is beyond that, and beyond what it may be off of the mix that comes, this part is left free.
const CAREFUL: f64 = 0.5;

/// In no row, or column, of a plan.
const NOWHERE: u32 = u32::MAX;

/// A service that those of a cluster call, and the load that it has
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    service: ServiceId,
    /// by others, who are not decided about here,
    others: f64,
    /// by those of the cluster as things are,
    now: f64,
    /// and if all of them were let in.
    most: f64,
}

impl Model {
    /// The rows of a cluster's plan: the services that could be too full, each of which may take the load that `allowed` says.
    pub(super) fn bind(&mut self, view: &View<'_>, rates: &Rates, allowed: impl Fn(&Service) -> f64) {
        // By service here, and by API where columns are looked up.
        self.place.resize(view.topology.services().max(view.topology.apis().len()), NOWHERE);
        self.touched.clear();
        for demand in &self.plan.demands {
            let first = view.topology.first_pair(demand.api);
            let comes = self.comes(demand.api, rates.get(demand.api));
            for (&(service, _), weight) in view.topology.uses(demand.api).iter().zip(&self.weight[first..]) {
                let place = &mut self.place[service.index()];
                if *place == NOWHERE {
                    *place = self.touched.len() as u32;
                    let others = self.load[service.index()];
                    self.touched.push(Touched { service, others, now: 0.0, most: 0.0 });
                }
                let touched = &mut self.touched[*place as usize];
                let admitted = self.apis[demand.api.index()].admitted;
                touched.others -= weight * comes;
                touched.now += weight * demand.current.max(admitted);
                touched.most += weight * demand.most;
            }
        }
        let services = &self.services;
        let room = |touched: &Touched| {
            // Of whom nothing is known nothing is expected, but that it could do what it does now.
            if !view.knows(touched.service) {
                return touched.now * view.relaxed();
            }
            let service = &services[touched.service.index()];
            let room = |allowed: f64| (allowed - touched.others.max(0.0)).max(0.0);
            if service.held {
                return room(allowed(service));
            }
            // That it would be overloaded is a guess: that takes nothing away from anybody, and so gives no more than it thinks there is.
            room(allowed(service).min(1.0)).max(touched.now)
        };
        self.touched.iter().for_each(|touched| self.place[touched.service.index()] = NOWHERE);
        self.touched.retain(|touched| view.remembers(touched.service) && touched.most > room(touched));
        let apis = self.plan.demands.len();
        for (row, touched) in self.touched.iter().enumerate() {
            self.place[touched.service.index()] = row as u32;
            self.plan.rhs.push(room(touched));
        }
        self.plan.rows.resize(self.touched.len() * apis, 0.0);
        for (column, demand) in self.plan.demands.iter().enumerate() {
            let first = view.topology.first_pair(demand.api);
            for (&(service, _), &weight) in view.topology.uses(demand.api).iter().zip(&self.weight[first..]) {
                let row = self.place[service.index()];
                if row != NOWHERE {
                    self.plan.rows[row as usize * apis + column] = weight;
                }
            }
        }
        self.touched.iter().for_each(|touched| self.place[touched.service.index()] = NOWHERE);
    }

    /// What callers cost together is known of the mix that comes. Where the plan makes one of which less is known, a service has less room by
    /// that, until it was seen; and so it has where calls may cost more by now. Whether there is such a service.
    pub(super) fn be_careful(&mut self, view: &View<'_>, rates: &Rates) -> bool {
        let columns = self.plan.demands.iter().enumerate();
        columns.for_each(|(column, demand)| self.place[demand.api.index()] = column as u32);
        let (mut is_less, mut flows) = (false, std::mem::take(&mut self.flows));
        for row in 0..self.touched.len() {
            let touched = self.touched[row];
            if !view.knows(touched.service) {
                continue;
            }
            let users = view.topology.users(touched.service).iter();
            flows.clear();
            flows.extend(users.clone().map(|&(api, calls)| {
                let rate = self.plan.rates.get(self.place[api.index()] as usize);
                calls * rate.copied().unwrap_or_else(|| self.comes(api, rates.get(api)))
            }));
            let service = &mut self.services[touched.service.index()];
            let planned = service.unsure(&flows);
            flows.clear();
            flows.extend(users.map(|&(api, calls)| calls * self.apis[api.index()].admitted));
            let more = CAREFUL * (planned - service.unsure(&flows).max(SURELY)).max(0.0);
            let others = touched.others.max(0.0);
            let least = if service.held { 0.0 } else { touched.now };
            let rhs = &mut self.plan.rhs[row];
            let room = ((*rhs + others) / (service.suspected() * (1.0 + more)) - others).max(least);
            is_less |= room < *rhs;
            *rhs = rhs.min(room);
        }
        self.flows = flows;
        self.plan.demands.iter().for_each(|demand| self.place[demand.api.index()] = NOWHERE);
        is_less
    }

    /// The service that keeps an API from getting more: the fullest of those that it calls. Of several that are full, one that is overloaded.
    pub(super) fn bottleneck(&self, column: usize) -> Option<ServiceId> {
        let apis = self.plan.demands.len();
        let filled = |row: usize| {
            let load = &self.plan.rows[row * apis..][..apis];
            let used: f64 = load.iter().zip(&self.plan.rates).map(|(load, rate)| load * rate).sum();
            used / self.plan.rhs[row].max(1e-9)
        };
        let calls = (0..self.touched.len()).filter(|row| self.plan.rows[row * apis + column] > 0.0);
        let rank = |row: usize| {
            let (filled, service) = (filled(row), self.touched[row].service);
            (filled > ALL && self.services[service.index()].held, filled)
        };
        let ranked = calls.map(|row| (rank(row), self.touched[row].service));
        ranked
            .max_by(|((a, full_a), _), ((b, full_b), _)| a.cmp(b).then(full_a.total_cmp(full_b)))
            .map(|(_, service)| service)
    }
}
