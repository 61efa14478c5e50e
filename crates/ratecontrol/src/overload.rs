//! Which services are overloaded: by utilisation (section 4.2), and better by queueing.
//!
//! A service that is just as busy as can be is used well; one in front of which requests wait is overloaded. So where the wait is known
//! it alone decides about entering, and the utilisation only where it is not.

use plimsoll_core::Nanos;

use crate::observation::Memory;
use crate::topology::{ServiceId, Topology};

/// When a service is overloaded, and when it no longer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// It is from this utilisation on where its queue is not known. The paper takes 0.8 of the CPU; what is left is given away.
    pub utilization: f64,
    /// It no longer is below this utilisation, and
    pub relieved: f64,
    /// It is when requests wait for longer than this part of the tightest SLO of those who call it.
    pub wait: f64,
    /// when they wait for less than this part of that wait.
    pub short: f64,
    /// But not while they wait for less than this: one step's noise.
    pub least_wait: Nanos,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            utilization: 0.95,
            relieved: 0.85,
            wait: 0.1,
            short: 0.5,
            least_wait: Nanos::from_millis(5),
        }
    }
}

/// What is known of all services, in this respect.
#[derive(Clone, Debug, Default)]
pub struct Overload {
    /// What was seen to be, and what is counted as overloaded beside that in this step alone.
    overloaded: Vec<bool>,
    held: Vec<bool>,
}

impl Overload {
    /// Looks at what was last heard, as long as that is [believed](Memory::believes): a service that nothing is heard of is not overloaded.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        topology: &Topology,
        memory: &Memory,
        at: &Thresholds,
        freeze: Nanos,
        release: Nanos,
    ) {
        self.overloaded.resize(topology.services(), false);
        self.held.clear();
        self.held.resize(topology.services(), false);
        for (index, overloaded) in self.overloaded.iter_mut().enumerate() {
            let service = ServiceId(index as u32);
            if !memory.believes_load(service, now, freeze, release) {
                *overloaded = false;
            }
            if memory.load_heard(service) != Some(now) {
                continue;
            }
            let signal = memory.service_now(service);
            let busy = |limit: f64| signal.utilization.is_some_and(|utilization| utilization >= limit);
            let patience = patience(topology, service, at);
            *overloaded = match signal.queue_delay {
                Some(wait) if *overloaded => {
                    busy(at.relieved) || wait > Nanos((patience.0 as f64 * at.short) as u64)
                }
                Some(wait) => wait > patience,
                None if *overloaded => busy(at.relieved),
                None => busy(at.utilization),
            };
        }
    }

    /// Counts a service as overloaded in this step, whatever it looks like.
    pub(crate) fn hold(&mut self, service: ServiceId) {
        if let Some(held) = self.held.get_mut(service.index()) {
            *held = true;
        }
    }

    /// Whether a service is overloaded.
    pub fn is(&self, service: ServiceId) -> bool {
        let of = |list: &[bool]| list.get(service.index()).copied().unwrap_or(false);
        of(&self.overloaded) || of(&self.held)
    }

    /// The overloaded services, in order.
    pub fn iter(&self) -> impl Iterator<Item = ServiceId> + '_ {
        (0..self.overloaded.len()).map(|at| ServiceId(at as u32)).filter(|&service| self.is(service))
    }

    /// Whether any service on any way of an API is overloaded.
    pub fn on_path(&self, topology: &Topology, api: crate::topology::ApiId) -> bool {
        topology.uses(api).iter().any(|&(service, _)| self.is(service))
    }
}

/// How long requests may wait at a service.
pub fn patience(topology: &Topology, service: ServiceId, at: &Thresholds) -> Nanos {
    Nanos::from_secs_f64(topology.tightest_slo(service).as_secs_f64() * at.wait).max(at.least_wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Observation, ServiceSignal};
    use crate::topology::Api;

    /// Whether a service is overloaded after each of these signals, one a second. Its callers' SLO is one second, so 100 ms are too long.
    fn after(signals: &[(Option<f64>, Option<u64>)]) -> Vec<bool> {
        after_serving(None, signals)
    }

    /// As [`after`], where it is told of each second how much was done.
    fn after_serving(served_per_s: Option<f64>, signals: &[(Option<f64>, Option<u64>)]) -> Vec<bool> {
        let topology = Topology::new(1, vec![Api::along([0], Nanos::from_secs(1), 1)]);
        let (mut memory, mut overload, at) = (Memory::default(), Overload::default(), Thresholds::default());
        let mut now = Nanos::ZERO;
        let mut look = |&(utilization, wait_ms): &(Option<f64>, Option<u64>)| {
            now += Nanos::from_secs(1);
            let queue_delay = wait_ms.map(Nanos::from_millis);
            let services = [ServiceSignal { utilization, queue_delay, served_per_s }];
            memory.take(now, 1, 1, &Observation { services: &services, apis: &[] });
            overload.look(now, &topology, &memory, &at, Nanos::from_secs(3), Nanos::from_secs(60));
            overload.is(ServiceId(0))
        };
        signals.iter().map(&mut look).collect()
    }

    #[test]
    fn by_utilisation_with_hysteresis() {
        let signals = [0.90, 0.95, 0.90, 0.86, 0.84, 0.90].map(|utilization| (Some(utilization), None));
        assert_eq!(after(&signals), [false, true, true, true, false, false]);
    }

    #[test]
    fn by_queue_where_it_is_known_however_busy() {
        let signals = [(0.99, 20), (0.99, 101), (0.99, 20), (0.5, 80), (0.5, 20), (0.99, 99)];
        let signals = signals.map(|(utilization, wait)| (Some(utilization), Some(wait)));
        assert_eq!(after(&signals), [false, true, true, true, false, false]);
        assert_eq!(after(&[(None, Some(101)), (None, Some(60)), (None, Some(40))]), [true, true, false]);
    }

    #[test]
    fn what_is_not_heard_of_stays_for_a_while_as_it_was() {
        let nothing = (None, None);
        for served_per_s in [None, Some(7.0)] {
            assert_eq!(
                after_serving(served_per_s, &[(Some(1.0), None), nothing, nothing, nothing, nothing]),
                [true, true, true, true, false],
                "what it gets done does not tell whether it is relieved"
            );
        }
        assert_eq!(after(&[(Some(f64::NAN), None), (Some(-1.0), None), (Some(9.0), None)]), [false; 3]);
    }
}
