//! A small model of a fleet, to judge controllers by: requests are a fluid, services are pipes with a queue in front. What is more than a
//! service can do waits; what waited for longer than its SLO is in vain.

use plimsoll_core::Nanos;
use plimsoll_ratecontrol::{Api, ApiId, ApiSignal, Observation, RateControl, ServiceSignal, Topology};

/// A step of the model, in seconds.
const STEP_S: f64 = 0.005;

/// What is told of the services.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// Utilisation, queue and what is served.
    All,
    /// Utilisation and what is served.
    Served,
    /// Utilisation alone.
    Busy,
    /// Utilisation and queue.
    Queue,
    /// Queue and what is served, as by a sentry in front.
    Front,
}

pub struct Fluid {
    pub topology: Topology,
    /// Work a second that each service can do; a call is one, unless `work` says something else.
    pub capacity: Vec<f64>,
    /// How many times as much each happens to do now.
    pub pace: Vec<f64>,
    /// Requests a second that are sent of each API.
    pub offered: Vec<f64>,
    /// Work of a call of an API at a service.
    pub work: Vec<Vec<f64>>,
    pub rates: Vec<Option<f64>>,
    pub now: Nanos,
    /// Requests of each API that wait at each service.
    queue: Vec<Vec<f64>>,
    /// Good requests of each API, all in all.
    pub good: Vec<f64>,
    /// The longest that a service was loaded beyond 110 % since it was last set to zero, in seconds.
    pub over_s: f64,
    over_now_s: Vec<f64>,
}

impl Fluid {
    pub fn new(apis: Vec<Api>, capacity: &[f64], offered: &[f64]) -> Fluid {
        let topology = Topology::new(capacity.len(), apis);
        Fluid {
            work: vec![vec![1.0; capacity.len()]; offered.len()],
            rates: vec![None; offered.len()],
            queue: vec![vec![0.0; capacity.len()]; offered.len()],
            good: vec![0.0; offered.len()],
            over_now_s: vec![0.0; capacity.len()],
            capacity: capacity.to_vec(),
            pace: vec![1.0; capacity.len()],
            offered: offered.to_vec(),
            now: Nanos::ZERO,
            over_s: 0.0,
            topology,
        }
    }

    /// How long a call that comes now waits, at each service.
    pub fn waits_s(&self) -> Vec<f64> {
        let waiting = |service: usize| {
            (0..self.offered.len()).map(|api| self.queue[api][service] * self.work[api][service]).sum::<f64>()
        };
        (0..self.capacity.len()).map(|service| waiting(service) / self.capacity[service].max(1e-9)).collect()
    }

    /// Lets so much time pass, and tells what was seen.
    pub fn run(&mut self, seconds: f64, told: Told) -> (Vec<ServiceSignal>, Vec<ApiSignal>) {
        let (apis, services) = (self.offered.len(), self.capacity.len());
        let (mut busy, mut served) = (vec![0.0; services], vec![0.0; services]);
        let (mut admitted, mut good) = (vec![0.0; apis], vec![0.0; apis]);
        let mut latency = vec![0.0f64; apis];
        let steps = (seconds / STEP_S).round() as usize;
        let can: Vec<f64> = self.capacity.iter().zip(&self.pace).map(|(per_s, pace)| per_s * pace).collect();
        for _ in 0..steps {
            let waits = self.waits_s();
            let mut load = vec![0.0; services];
            // In what order a path is taken does not matter here: services are passed by number, within one step if nothing waits.
            let mut flow: Vec<f64> = (0..apis)
                .map(|api| self.offered[api].min(self.rates[api].unwrap_or(f64::INFINITY)) * STEP_S)
                .collect();
            let came = flow.clone();
            (0..apis).for_each(|api| admitted[api] += flow[api]);
            for service in 0..services {
                let users: Vec<(ApiId, f64)> =
                    self.topology.users(plimsoll_ratecontrol::ServiceId(service as u32)).to_vec();
                let mut all = 0.0;
                for &(api, calls) in &users {
                    let api = api.index();
                    // A queue of two seconds is full.
                    let room = if waits[service] > 2.0 { 0.0 } else { 1.0 };
                    self.queue[api][service] += flow[api] * calls * room;
                    load[service] += came[api] * calls * self.work[api][service];
                    all += self.queue[api][service] * self.work[api][service];
                }
                let part = if all > 0.0 { (can[service] * STEP_S / all).min(1.0) } else { 0.0 };
                busy[service] += all * part;
                for &(api, calls) in &users {
                    let api = api.index();
                    let out = self.queue[api][service] * part;
                    self.queue[api][service] -= out;
                    served[service] += out;
                    // Those of other branches go on besides.
                    flow[api] = out + flow[api] * (1.0 - calls.min(1.0));
                }
            }
            for ((load, capacity), over_s) in load.iter().zip(&self.capacity).zip(&mut self.over_now_s) {
                *over_s = if *load > 1.1 * capacity * STEP_S { *over_s + STEP_S } else { 0.0 };
                self.over_s = self.over_s.max(*over_s);
            }
            for api in 0..apis {
                let uses = self.topology.uses(ApiId(api as u32));
                let wait: f64 = uses.iter().map(|&(service, _)| waits[service.index()]).sum();
                latency[api] = wait + 0.01;
                if latency[api] <= self.topology.apis()[api].slo.as_secs_f64() {
                    good[api] += flow[api];
                }
            }
            self.now += Nanos::from_secs_f64(STEP_S);
        }
        (0..apis).for_each(|api| self.good[api] += good[api]);
        let seconds = steps as f64 * STEP_S;
        let waits = self.waits_s();
        let services = (0..services).map(|service| ServiceSignal {
            utilization: (told != Told::Front)
                .then_some((busy[service] / seconds / can[service].max(1e-9)).min(1.0)),
            queue_delay: (!matches!(told, Told::Served | Told::Busy))
                .then(|| Nanos::from_secs_f64(waits[service])),
            served_per_s: (!matches!(told, Told::Queue | Told::Busy)).then_some(served[service] / seconds),
        });
        let apis = (0..apis).map(|api| ApiSignal {
            offered_per_s: Some(self.offered[api]),
            admitted_per_s: Some(admitted[api] / seconds),
            goodput_per_s: Some(good[api] / seconds),
            tail_latency: Some(Nanos::from_secs_f64(latency[api])),
        });
        (services.collect(), apis.collect())
    }

    /// So many steps under a controller. Goodput a second of each API in the last one.
    pub fn steps(&mut self, control: &mut RateControl, steps: usize, seconds: f64, told: Told) -> Vec<f64> {
        let mut last = Vec::new();
        for _ in 0..steps {
            let (services, apis) = self.run(seconds, told);
            last = apis.iter().map(|api| api.goodput_per_s.unwrap()).collect();
            let seen = Observation { services: &services, apis: &apis };
            self.rates = control.step(self.now, &self.topology, &seen).rates.to_vec();
        }
        last
    }

    /// Seconds until the sum of goodput first is at least so much and stays for a second, at most `most_s`.
    pub fn reaches(
        &mut self,
        control: &mut RateControl,
        goodput: f64,
        seconds: f64,
        told: Told,
        most_s: f64,
    ) -> Option<f64> {
        let hold = (1.0 / seconds).ceil() as usize;
        let mut since = 0;
        for step in 1..=(most_s / seconds) as usize + hold {
            let sum: f64 = self.steps(control, 1, seconds, told).iter().sum();
            since = if sum >= goodput { since + 1 } else { 0 };
            if since >= hold {
                return Some((step - hold) as f64 * seconds);
            }
        }
        None
    }
}
