//! What the traces of a fleet tell, when they do: as the receiver of the controller knows it.

use std::collections::VecDeque;

use plimsoll_core::Nanos;
use plimsoll_ratecontrol::{ApiId, OwnTime, ServiceId};

use super::engine::{Fleet, Worked};

/// How often the controller asks what was learned of traces.
const EVERY: Nanos = Nanos::from_secs(1);
/// How long a trace waits for its pieces ([`Limits::wait`](plimsoll_ratecontrol::paths::Limits::wait)).
const LATE: usize = 10;

/// What was told, and what is still under way. Spans begin when a worker does, as those of servers do that open them in their workers.
#[derive(Clone, Default)]
pub struct Traces {
    next: Nanos,
    under_way: VecDeque<Vec<Vec<Worked>>>,
}

impl Traces {
    /// How long services work for APIs, where there is news of that.
    pub fn tell(&mut self, fleet: &Fleet) -> Option<impl Iterator<Item = (ApiId, ServiceId, OwnTime)>> {
        if fleet.now() < self.next {
            return None;
        }
        self.next = fleet.now() + EVERY;
        self.under_way.push_back(fleet.worked().to_vec());
        if self.under_way.len() <= LATE {
            return None;
        }
        let told = self.under_way.pop_front()?;
        let own = |of: &Worked| OwnTime { mean_s: of.seconds / of.calls, calls: of.calls };
        Some((0..).zip(told).flat_map(move |(api, worked)| {
            worked.into_iter().map(move |of| (ApiId(api), ServiceId(of.service), own(&of)))
        }))
    }
}
