//! What was seen of services and APIs since the last step, and what is remembered of it.
//!
//! Everything is optional: signals come from agents and sentries several times a second, from Prometheus once, or not at all. What is
//! absent was not heard of in this step. What is no number, negative or beyond sense counts as absent.

use plimsoll_core::Nanos;

use crate::topology::{ApiId, ServiceId};

/// What was seen of a service since the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceSignal {
    /// The part of its workers, or of the CPU that it may use, that was in use: 0..1, in the mean over the time since it was last told.
    pub utilization: Option<f64>,
    /// How long a request that arrives now waits before a worker takes it. Agents and sentries know it. It sees an overload sooner than
    /// the utilisation, which knows no more than "all".
    pub queue_delay: Option<Nanos>,
    /// Requests a second that it finished, of whatever API, in the mean over the same time as the utilisation.
    pub served_per_s: Option<f64>,
}

/// What was seen of an API since the last step, where its requests enter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApiSignal {
    /// Requests a second that clients sent, admitted or not.
    pub offered_per_s: Option<f64>,
    /// Requests a second that were let in.
    pub admitted_per_s: Option<f64>,
    /// Requests a second that were answered well and within the SLO.
    pub goodput_per_s: Option<f64>,
    /// The tail latency of what was answered: the percentile that the SLO is on.
    pub tail_latency: Option<Nanos>,
}

/// What was seen in one step, by place in the topology. A slice may be shorter than there are services or APIs: of the rest nothing was
/// seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation<'a> {
    /// Of each service.
    pub services: &'a [ServiceSignal],
    /// Of each API.
    pub apis: &'a [ApiSignal],
}

/// More requests a second than this nobody sends; more is an error of measurement.
const MOST_PER_S: f64 = 1e12;

/// A number from 0 to `most`; what lies above counts as `cap`, if that is any sense.
fn sane(value: Option<f64>, most: f64) -> Option<f64> {
    value.filter(|value| (0.0..=most).contains(value))
}

/// For so many times as long as words were apart nobody has fallen silent.
const TIMES_APART: u64 = 2;

/// When something was heard.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    at: Option<Nanos>,
    /// How long the last three were apart.
    apart: [Nanos; 2],
}

impl Words {
    fn hear(&mut self, now: Nanos) {
        if let Some(before) = self.at.replace(now) {
            self.apart = [now.since(before), self.apart[0]];
        }
    }

    /// Whether it may still be believed, which is so for as long as `freeze`; and longer where it is told more seldom, as by a Prometheus that
    /// looks four times a minute. One long silence does not make it so.
    fn hold(&self, now: Nanos, freeze: Nanos, release: Nanos) -> bool {
        let usual = self.apart[0].min(self.apart[1]);
        let longest = Nanos(usual.0.saturating_mul(TIMES_APART)).min(release);
        self.at.is_some_and(|at| now.since(at) <= freeze.max(longest))
    }
}

/// The last that was heard of something, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Heard<T> {
    /// What was last heard, signal by signal.
    last: T,
    /// When anything was.
    words: Words,
    /// What was heard in this step, without what makes no sense.
    now: T,
}

/// What is remembered of all observations.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    services: Vec<Heard<ServiceSignal>>,
    /// When it was last heard how busy each service is, or how long its queue.
    loads: Vec<Words>,
    apis: Vec<Heard<ApiSignal>>,
}

impl Memory {
    /// Takes in what was seen.
    pub(crate) fn take(&mut self, now: Nanos, services: usize, apis: usize, seen: &Observation<'_>) {
        self.services.resize(services, Heard::default());
        self.loads.resize(services, Words::default());
        self.apis.resize(apis, Heard::default());
        for (at, heard) in self.services.iter_mut().enumerate() {
            let signal = seen.services.get(at).copied().unwrap_or_default();
            heard.now = ServiceSignal {
                // Counters that are read at slightly different times give a little more than all.
                utilization: sane(signal.utilization, 2.0).map(|utilization| utilization.min(1.0)),
                queue_delay: signal.queue_delay,
                served_per_s: sane(signal.served_per_s, MOST_PER_S),
            };
            if heard.now.utilization.is_some() || heard.now.queue_delay.is_some() {
                self.loads[at].hear(now);
            }
            if heard.now != ServiceSignal::default() {
                heard.words.hear(now);
                heard.last = ServiceSignal {
                    utilization: heard.now.utilization.or(heard.last.utilization),
                    queue_delay: heard.now.queue_delay.or(heard.last.queue_delay),
                    served_per_s: heard.now.served_per_s.or(heard.last.served_per_s),
                };
            }
        }
        for (at, heard) in self.apis.iter_mut().enumerate() {
            let signal = seen.apis.get(at).copied().unwrap_or_default();
            heard.now = ApiSignal {
                offered_per_s: sane(signal.offered_per_s, MOST_PER_S),
                admitted_per_s: sane(signal.admitted_per_s, MOST_PER_S),
                goodput_per_s: sane(signal.goodput_per_s, MOST_PER_S),
                tail_latency: signal.tail_latency,
            };
            if heard.now != ApiSignal::default() {
                heard.words.hear(now);
                heard.last = ApiSignal {
                    offered_per_s: heard.now.offered_per_s.or(heard.last.offered_per_s),
                    admitted_per_s: heard.now.admitted_per_s.or(heard.last.admitted_per_s),
                    goodput_per_s: heard.now.goodput_per_s.or(heard.last.goodput_per_s),
                    tail_latency: heard.now.tail_latency.or(heard.last.tail_latency),
                };
            }
        }
    }

    /// What was heard of a service in this step.
    pub fn service_now(&self, service: ServiceId) -> ServiceSignal {
        self.services.get(service.index()).map(|heard| heard.now).unwrap_or_default()
    }

    /// What was last heard of a service, however long ago.
    pub fn service(&self, service: ServiceId) -> ServiceSignal {
        self.services.get(service.index()).map(|heard| heard.last).unwrap_or_default()
    }

    /// When anything was last heard of a service.
    pub fn service_heard(&self, service: ServiceId) -> Option<Nanos> {
        self.services.get(service.index()).and_then(|heard| heard.words.at)
    }

    /// Whether what was heard of a service may still be believed: it is not older than `freeze`, or than twice what words of it are apart, but
    /// never older than `release`.
    pub fn believes(&self, service: ServiceId, now: Nanos, freeze: Nanos, release: Nanos) -> bool {
        self.services.get(service.index()).is_some_and(|heard| heard.words.hold(now, freeze, release))
    }

    /// The same of how busy it is, or how long its queue: what it gets done tells neither.
    pub fn believes_load(&self, service: ServiceId, now: Nanos, freeze: Nanos, release: Nanos) -> bool {
        self.loads.get(service.index()).is_some_and(|words| words.hold(now, freeze, release))
    }

    /// When it was last heard how busy a service is, or how long its queue.
    pub fn load_heard(&self, service: ServiceId) -> Option<Nanos> {
        self.loads.get(service.index()).and_then(|words| words.at)
    }

    /// What was heard of an API in this step.
    pub fn api_now(&self, api: ApiId) -> ApiSignal {
        self.apis.get(api.index()).map(|heard| heard.now).unwrap_or_default()
    }

    /// What was last heard of an API, however long ago.
    pub fn api(&self, api: ApiId) -> ApiSignal {
        self.apis.get(api.index()).map(|heard| heard.last).unwrap_or_default()
    }

    /// When anything was last heard of an API.
    pub fn api_heard(&self, api: ApiId) -> Option<Nanos> {
        self.apis.get(api.index()).and_then(|heard| heard.words.at)
    }
}
