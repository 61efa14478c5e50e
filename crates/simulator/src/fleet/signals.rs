//! What a controller is told of a fleet: what agents, sentries or Prometheus would know, and no more.

use plimsoll_core::Nanos;
use plimsoll_ratecontrol::{ApiSignal, Observation, ServiceSignal};

use super::account::Counts;
use super::engine::Fleet;
use super::service::Did;

/// Looks at a fleet, and remembers what it saw the last time.
#[derive(Clone, Default)]
pub struct Signals {
    services: Vec<ServiceSignal>,
    apis: Vec<ApiSignal>,
    did: Vec<Did>,
    counts: Vec<Counts>,
    last: Nanos,
}

impl Signals {
    /// What there is to see since the last look, in the mean over that time.
    pub fn look(&mut self, fleet: &mut Fleet) -> Observation<'_> {
        let elapsed = fleet.now().since(self.last).as_secs_f64();
        self.last = fleet.now();
        let (services, apis) = (fleet.plan().services.len(), fleet.plan().apis.len());
        self.did.resize(services, Did::default());
        self.counts.resize(apis, Counts::default());
        self.services.clear();
        for place in 0..services {
            let did = fleet.did(place);
            let before = std::mem::replace(&mut self.did[place], did);
            let signal = service_signal(fleet, place, &before, &did, elapsed);
            self.services.push(signal);
        }
        self.apis.clear();
        for place in 0..apis {
            let counts = fleet.counts(place);
            let since = counts.since(&self.counts[place]);
            self.counts[place] = counts;
            let tail = fleet.plan().apis[place].tail;
            let account = &mut fleet.accounts_mut()[place];
            let per_s = |count: u64| (elapsed > 0.0).then(|| count as f64 / elapsed);
            self.apis.push(ApiSignal {
                offered_per_s: per_s(since.attempts),
                admitted_per_s: per_s(since.admitted()),
                goodput_per_s: per_s(std::mem::take(&mut account.good_attempts)),
                tail_latency: account.tail(tail),
            });
            account.latencies.clear();
        }
        Observation { services: &self.services, apis: &self.apis }
    }
}

fn service_signal(fleet: &Fleet, place: usize, before: &Did, did: &Did, elapsed: f64) -> ServiceSignal {
    let (busy, there) = (did.busy_ns - before.busy_ns, did.worker_ns - before.worker_ns);
    let served = (did.served - before.served) as f64;
    let service = fleet.service(place);
    // An agent knows how many wait, how long a call takes a worker, and how many workers there are.
    let queue_delay = || {
        let waiting = f64::from(service.waiting());
        let call_ns = if served > 0.0 { busy / served } else { service.plan().time.mean_ns() };
        Nanos((waiting * call_ns / f64::from(service.workers().max(1))) as u64)
    };
    ServiceSignal {
        utilization: (there > 0.0).then(|| busy / there),
        queue_delay: fleet.plan().queues_seen.then(queue_delay),
        served_per_s: (elapsed > 0.0).then(|| served / elapsed),
    }
}
