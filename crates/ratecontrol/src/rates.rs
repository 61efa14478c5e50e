//! The rates in force, and every change of one with its reason.

use std::fmt;

use plimsoll_core::Nanos;

use crate::topology::{ApiId, ServiceId};

/// Why a rate was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The target is overloaded, and the API is the least important of those that call it.
    Relieve,
    /// Nothing on its path is overloaded any more, and it is the most important of those that were limited for the same service.
    Recover,
    /// The best rate for the whole cluster, as far as is known what services can do and APIs cost. The target is what binds it.
    Plan,
    /// Less is sent than it was limited to, and nothing on its path is overloaded.
    Unneeded,
    /// Nothing was heard for too long of the service for whose sake it was limited.
    Silence,
    /// It is no longer in the topology, or nothing is known of its path.
    Gone,
    /// More is promised by now than it was limited to, or so much is sent that less would be too little to see how it fares.
    Floor,
}

/// In the words that the operator knows.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Relieve => "least important caller of an overloaded service",
            Why::Recover => "nothing on its path is overloaded",
            Why::Plan => "best for its cluster",
            Why::Unneeded => "no longer needed",
            Why::Silence => "nothing was heard for too long",
            Why::Gone => "its path is not known",
            Why::Floor => "as little as it may be limited to",
        })
    }
}

/// A change of a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Whose rate.
    pub api: ApiId,
    /// The cluster that it was decided in; none where no service on the path is overloaded.
    pub cluster: Option<u32>,
    /// For the sake of which service.
    pub target: Option<ServiceId>,
    /// Requests a second that it was limited to before; none: it was not.
    pub before_per_s: Option<f64>,
    /// Requests a second that it is limited to from now on; none: it is not.
    pub rate_per_s: Option<f64>,
    /// The action: what part of the rate was added or, where negative, taken away. Zero where there was no rate before or is none now.
    pub action: f64,
    /// Why.
    pub why: Why,
}

/// As a line of a log; names are the host's to give.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: Option<f64>| rate.map_or("unlimited".to_owned(), |rate| format!("{rate:.1}/s"));
        write!(f, "{:?}: {} -> {}: ", self.api, rate(self.before_per_s), rate(self.rate_per_s))?;
        write!(f, "{}", self.why)?;
        if let Some(target) = self.target {
            write!(f, ", for {target:?}")?;
        }
        self.cluster.map_or(Ok(()), |cluster| write!(f, ", cluster {cluster}"))
    }
}

/// The limit of one API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub per_s: f64,
    /// For the sake of which service it was last set.
    pub target: Option<ServiceId>,
    /// Since when it has not bound.
    pub idle: Option<Nanos>,
}

/// The rates in force. All changes go through here, so none is below its floor and none is without a reason.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    limits: Vec<Option<Limit>>,
    rates: Vec<Option<f64>>,
    floors: Vec<f64>,
    decisions: Vec<Decision>,
}

/// Changes of less than this part of a rate are none: nobody wants to be told.
const NOTHING: f64 = 1e-6;

impl Rates {
    /// Begins a step: so many APIs, and how far down each may be limited.
    pub(crate) fn begin(&mut self, floors: impl ExactSizeIterator<Item = f64>) {
        self.limits.resize(floors.len(), None);
        self.rates.resize(floors.len(), None);
        self.floors.clear();
        self.floors.extend(floors);
        self.decisions.clear();
        for api in 0..self.limits.len() {
            // A promise may have been made since.
            let api = ApiId(api as u32);
            if let Some(limit) = self.get(api).filter(|&limit| limit < self.floor(api)) {
                self.set(api, limit, None, None, Why::Floor);
            }
        }
    }

    /// Requests a second that an API is limited to; none: it is not.
    pub fn get(&self, api: ApiId) -> Option<f64> {
        self.rates.get(api.index()).copied().flatten()
    }

    /// How far down an API may be limited, in requests a second: what it is promised, and as much as it takes to see how it fares.
    pub fn floor(&self, api: ApiId) -> f64 {
        self.floors.get(api.index()).copied().unwrap_or(f64::INFINITY)
    }

    /// Limits an API; never below its floor. What is no rate changes nothing.
    pub fn set(&mut self, api: ApiId, per_s: f64, cluster: Option<u32>, target: Option<ServiceId>, why: Why) {
        let Some(place) = self.limits.get_mut(api.index()).filter(|_| per_s.is_finite()) else { return };
        let per_s = per_s.max(self.floors[api.index()]);
        if !per_s.is_finite() {
            return;
        }
        let before = place.map(|limit| limit.per_s);
        let idle = place.and_then(|limit| limit.idle);
        *place = Some(Limit { per_s, target: target.or(place.and_then(|limit| limit.target)), idle });
        self.rates[api.index()] = Some(per_s);
        if before.is_some_and(|before| (before - per_s).abs() <= NOTHING * per_s) {
            return;
        }
        let action = before.map_or(0.0, |before| if before > 0.0 { per_s / before - 1.0 } else { 0.0 });
        let (before_per_s, rate_per_s) = (before, Some(per_s));
        self.decisions.push(Decision { api, cluster, target, before_per_s, rate_per_s, action, why });
    }

    /// Lets all of an API in.
    pub fn lift(&mut self, api: ApiId, cluster: Option<u32>, why: Why) {
        let Some(limit) = self.limits.get_mut(api.index()).and_then(Option::take) else { return };
        self.rates[api.index()] = None;
        let (before_per_s, target) = (Some(limit.per_s), limit.target);
        self.decisions.push(Decision {
            api,
            cluster,
            target,
            before_per_s,
            rate_per_s: None,
            action: 0.0,
            why,
        });
    }

    /// For the sake of which service an API was last limited.
    pub fn target(&self, api: ApiId) -> Option<ServiceId> {
        self.limits.get(api.index()).copied().flatten().and_then(|limit| limit.target)
    }

    pub(crate) fn limit_mut(&mut self, api: ApiId) -> Option<&mut Limit> {
        self.limits.get_mut(api.index()).and_then(Option::as_mut)
    }

    /// The APIs that are limited, in order.
    pub fn limited(&self) -> impl Iterator<Item = ApiId> + '_ {
        self.rates.iter().enumerate().filter(|(_, rate)| rate.is_some()).map(|(at, _)| ApiId(at as u32))
    }

    /// The rates in force, by place: requests a second; none where an API is not limited.
    pub fn all(&self) -> &[Option<f64>] {
        &self.rates
    }

    /// What was changed in this step, in the order in which it was.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }
}
