//! For how long services are asked for more than they can do.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

/// How much more than a service can do it may be asked for before that is an overshoot.
const TOO_MUCH: f64 = 1.1;
/// Counts of random arrivals scatter by their square root: so many of these are no sign of anything.
const SIGMAS: f64 = 3.0;
const SECOND: Nanos = Nanos::from_secs(1);

/// Watches what services are asked for, over a second or from one look to the next, whichever is longer.
pub struct Overshoot {
    /// By service, all work that was asked for, at the looks of that time.
    asked: Vec<VecDeque<(Nanos, f64)>>,
    span: Nanos,
    last_look: Nanos,
    lasted: Nanos,
}

/// What a service was asked for since the beginning, in calls that cost 1, and how many of these it can do a second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls.
    pub asked: f64,
    /// Calls a second.
    pub can_per_s: f64,
}

impl Overshoot {
    /// Of so many services, looked at so often.
    pub fn new(services: usize, every: Nanos) -> Overshoot {
        let asked = vec![VecDeque::from([(Nanos::ZERO, 0.0)]); services];
        Overshoot { asked, span: SECOND.max(every), last_look: Nanos::ZERO, lasted: Nanos::ZERO }
    }

    /// Looks at all services. Where any of them is asked for too much, the time since the last look counts, if that `counts` at all.
    pub fn look(&mut self, now: Nanos, counts: bool, mut load: impl FnMut(usize) -> Load) {
        let mut over = false;
        for (place, asked) in self.asked.iter_mut().enumerate() {
            let load = load(place);
            asked.push_back((now, load.asked));
            while asked.len() > 2 && asked[1].0 + self.span <= now {
                asked.pop_front();
            }
            let ((from, before), (_, after)) = (asked[0], asked[asked.len() - 1]);
            let can = load.can_per_s * now.since(from).as_secs_f64();
            over |= after - before > TOO_MUCH * can + SIGMAS * can.sqrt();
        }
        if over && counts {
            self.lasted += now.since(self.last_look);
        }
        self.last_look = now;
    }

    /// Begins to count again.
    pub fn forget(&mut self) {
        self.lasted = Nanos::ZERO;
    }

    /// For how long it was so.
    pub fn lasted(&self) -> Nanos {
        self.lasted
    }
}
