//! What became of every request of a run, kept by index, and whether it was refused though a lesser one was still in service. On its
//! own: it sees the events of the run and asks nobody who decides.

use plimsoll_core::{Grant, Limit, Nanos, Refusal};

use crate::engine::{Arrival, Observer, Request};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// Nobody has decided yet.
    Undecided,
    /// It was turned away.
    Refused {
        /// By which limit.
        limit: Limit,
        /// While a lesser one was in service, or waited for it, that had been let in before and not on a promise.
        inverted: bool,
    },
    /// It was let in and is not done.
    Admitted(Grant),
    /// It was done so long after it came.
    Served(Grant, Nanos),
}

/// A request and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// As it came.
    pub arrival: Arrival,
    /// What became of it.
    pub fate: Fate,
}

impl Seen {
    /// Whether it was let in.
    pub fn is_admitted(&self) -> bool {
        matches!(self.fate, Fate::Admitted(_) | Fate::Served(..))
    }

    /// What it took, if it is done.
    pub fn response(&self) -> Option<Nanos> {
        if let Fate::Served(_, response) = self.fate { Some(response) } else { None }
    }
}

/// Watches a run.
pub struct Watch {
    /// By index.
    pub requests: Vec<Seen>,
    /// By class, from 0, the most important.
    ranks: Vec<u16>,
    /// By rank: let in, not on a promise, and not done.
    inside: Vec<u32>,
}

impl Watch {
    /// Of a run of classes with these ranks.
    pub fn new(ranks: Vec<u16>) -> Watch {
        let levels = ranks.iter().max().map_or(0, |&last| usize::from(last) + 1);
        Watch { requests: Vec::new(), ranks, inside: vec![0; levels] }
    }

    fn rank(&self, arrival: &Arrival) -> usize {
        usize::from(self.ranks[arrival.class.index()])
    }

    /// A request that was inside is gone.
    fn leaves(&mut self, request: &Request) {
        if request.grant != Grant::Promise {
            let rank = self.rank(&request.arrival);
            self.inside[rank] -= 1;
        }
    }
}

impl Observer for Watch {
    fn arrived(&mut self, _index: u64, arrival: &Arrival) {
        self.requests.push(Seen { arrival: *arrival, fate: Fate::Undecided });
    }

    fn refused(&mut self, index: u64, arrival: &Arrival, refusal: &Refusal) {
        let lesser = &self.inside[self.rank(arrival) + 1..];
        let inverted = lesser.iter().any(|&n| n > 0);
        self.requests[index as usize].fate = Fate::Refused { limit: refusal.limit, inverted };
    }

    fn admitted(&mut self, request: &Request) {
        if request.grant != Grant::Promise {
            let rank = self.rank(&request.arrival);
            self.inside[rank] += 1;
        }
        self.requests[request.index as usize].fate = Fate::Admitted(request.grant);
    }

    fn dropped(&mut self, request: &Request, refusal: &Refusal, _now: Nanos) {
        self.leaves(request);
        let fate = Fate::Refused { limit: refusal.limit, inverted: false };
        self.requests[request.index as usize].fate = fate;
    }

    fn served(&mut self, request: &Request, _started: Nanos, now: Nanos) {
        self.leaves(request);
        self.requests[request.index as usize].fate = Fate::Served(request.grant, now - request.arrival.at);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{ClassId, Mechanism, Quantity};

    use super::*;

    fn request(index: u64, class: u16, grant: Grant) -> Request {
        let arrival = Arrival { at: Nanos(index), class: ClassId(class), service: Nanos(1) };
        Request { index, arrival, queued_at: Nanos(index), grant, expected_wait: Nanos::ZERO }
    }

    /// Whether a request of class 0, the more important, that is refused once `inside` were let in and `done` of them are, counts as
    /// refused beside a lesser one.
    fn inverted(inside: &[(u16, Grant)], done: usize) -> bool {
        let mut watch = Watch::new(vec![0, 1]);
        let requests: Vec<Request> =
            (0..).zip(inside).map(|(i, &(class, grant))| request(i, class, grant)).collect();
        for request in &requests {
            watch.arrived(request.index, &request.arrival);
            watch.admitted(request);
        }
        requests[..done].iter().for_each(|request| watch.served(request, Nanos(50), Nanos(60)));
        let last = request(requests.len() as u64, 0, Grant::Estimate);
        watch.arrived(last.index, &last.arrival);
        let refusal = Refusal {
            mechanism: Mechanism::Policing,
            limit: Limit::Mean,
            estimate: Quantity::Count(2),
            objective: Quantity::Count(1),
            retry_after: Nanos::ZERO,
        };
        watch.refused(last.index, &last.arrival, &refusal);
        matches!(watch.requests[requests.len()].fate, Fate::Refused { inverted: true, .. })
    }

    #[test]
    fn who_is_refused_beside_a_lesser_one_that_was_not_promised_is_inverted() {
        let (estimate, promise) = (Grant::Estimate, Grant::Promise);
        assert!(inverted(&[(1, estimate)], 0));
        assert!(!inverted(&[(1, estimate)], 1), "it is done");
        assert!(!inverted(&[(1, promise)], 0), "it was promised");
        assert!(!inverted(&[(0, estimate)], 0), "it is no lesser one");
        assert!(inverted(&[(1, promise), (1, estimate), (0, estimate)], 1));
    }
}
