//! Which services each API calls, and what it is promised.

use std::fmt;

use plimsoll_core::Nanos;

/// A service: its place in the host's list of services.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// An external API: its place in the topology.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiId(pub u32);

impl ServiceId {
    /// As an index into arrays that hold one entry a service.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl ApiId {
    /// As an index into arrays that hold one entry an API.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service#{}", self.0)
    }
}
impl fmt::Debug for ApiId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "api#{}", self.0)
    }
}

/// One of the ways that an API's requests take. Which one a request takes nobody knows when it enters (section 4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its share of the API's requests. Shares need not add up to one; what is negative or no number counts as zero.
    pub share: f64,
    /// The services that it calls. One that is named twice is called twice. Order does not matter.
    pub services: Vec<ServiceId>,
}

/// How long a service works for an API, as the spans of traces tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnTime {
    /// The mean time of a call in seconds, without what the service waited for others in it.
    pub mean_s: f64,
    /// Calls that this is known by; those of long ago may count less.
    pub calls: f64,
}

/// An external API.
#[derive(Clone, Debug, PartialEq)]
pub struct Api {
    /// Its ways through the fleet. None: nothing is known of it yet, or it is gone; either way it is never limited.
    pub branches: Vec<Branch>,
    /// What its tail latency, the percentile that the host measures, shall not exceed.
    pub slo: Nanos,
    /// How important it is; 1 is the most important.
    pub priority: u32,
    /// Requests a second that it is promised: it is never limited to less.
    pub min_per_s: f64,
}

impl Api {
    /// An API that takes one way.
    pub fn along(services: impl IntoIterator<Item = u32>, slo: Nanos, priority: u32) -> Api {
        let services = services.into_iter().map(ServiceId).collect();
        Api { branches: vec![Branch { share: 1.0, services }], slo, priority, min_per_s: 0.0 }
    }
}

/// Which APIs call which services. It does not change; where paths are learned, services come or APIs go, a new one takes its place.
///
/// A [`RateControl`](crate::RateControl) knows services and APIs by their places, so a place belongs to the same one for as long as that
/// object lives. An API that is gone leaves an `Api` without branches behind, and its place may be taken once it was without for a step; that
/// of a service once nobody called it for a step.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    apis: Vec<Api>,
    services: usize,
    /// API by API what it uses: the service, and calls a request in the mean over its branches.
    uses: Vec<(ServiceId, f64)>,
    uses_from: Vec<u32>,
    /// Service by service who uses it, with the same numbers.
    users: Vec<(ApiId, f64)>,
    users_from: Vec<u32>,
    /// Where in `uses` each entry of `users` is.
    places: Vec<u32>,
    /// Service by service the tightest SLO of those who use it.
    tightest: Vec<Nanos>,
    /// By pair, how long the service works for the API; empty where nobody tells.
    own_times: Vec<OwnTime>,
}

impl Topology {
    /// A fleet of so many services and these APIs. A branch may name services beyond `services`; then there are more.
    pub fn new(services: usize, apis: Vec<Api>) -> Topology {
        let mut calls: Vec<(u32, f64)> = Vec::new();
        let (mut uses, mut uses_from) = (Vec::new(), vec![0]);
        for api in &apis {
            calls.clear();
            for branch in &api.branches {
                let share = branch_share(api, branch);
                calls.extend(branch.services.iter().map(|service| (service.0, share)));
            }
            calls.sort_by_key(|&(service, _)| service);
            for of_one in calls.chunk_by(|a, b| a.0 == b.0) {
                // A branch that nobody was seen to take is still a way that requests may go (section 4.2).
                uses.push((ServiceId(of_one[0].0), of_one.iter().map(|&(_, share)| share).sum()));
            }
            uses_from.push(uses.len() as u32);
        }
        let named = uses.iter().map(|(service, _)| service.index() + 1).max().unwrap_or(0);
        let services = services.max(named);
        let mut users_from = vec![0; services + 1];
        uses.iter().for_each(|(service, _)| users_from[service.index() + 1] += 1);
        (0..services).for_each(|at| users_from[at + 1] += users_from[at]);
        let (mut next, mut users) = (users_from.clone(), vec![(ApiId(0), 0.0); uses.len()]);
        let mut places = vec![0; uses.len()];
        let mut tightest = vec![Nanos::MAX; services];
        for api in 0..apis.len() {
            for place in uses_from[api]..uses_from[api + 1] {
                let (service, calls) = uses[place as usize];
                let slo = &mut tightest[service.index()];
                *slo = apis[api].slo.min(*slo);
                let next = &mut next[service.index()];
                users[*next as usize] = (ApiId(api as u32), calls);
                places[*next as usize] = place;
                *next += 1;
            }
        }
        let own_times = Vec::new();
        Topology { apis, services, uses, uses_from, users, users_from, places, tightest, own_times }
    }

    /// The same fleet, with how long services work for APIs. What makes no sense, or is of services that an API does not use, is left out.
    #[must_use]
    pub fn with_own_times(mut self, told: impl IntoIterator<Item = (ApiId, ServiceId, OwnTime)>) -> Topology {
        self.own_times.clear();
        for (api, service, own) in told {
            let is_sane = |number: f64| number.is_finite() && number > 0.0;
            let place = self.uses(api).binary_search_by_key(&service, |&(service, _)| service);
            if let Ok(place) = place
                && is_sane(own.mean_s)
                && is_sane(own.calls)
            {
                self.own_times.resize(self.uses.len(), OwnTime::default());
                let place = self.first_pair(api) + place;
                self.own_times[place] = own;
            }
        }
        self
    }

    /// What is known of how long services work for APIs, as [`Topology::with_own_times`] takes it.
    pub fn own_times(&self) -> impl Iterator<Item = (ApiId, ServiceId, OwnTime)> + '_ {
        let apis = (0..self.apis.len() as u32).map(ApiId);
        let pairs = apis.flat_map(|api| self.uses(api).iter().map(move |&(service, _)| (api, service)));
        pairs.zip(&self.own_times).map(|((api, service), own)| (api, service, *own))
    }

    /// How many services there are.
    pub fn services(&self) -> usize {
        self.services
    }

    /// All APIs, by place.
    pub fn apis(&self) -> &[Api] {
        &self.apis
    }

    /// An API; one that is not in here is one without branches.
    pub fn api(&self, api: ApiId) -> &Api {
        const GONE: Api = Api { branches: Vec::new(), slo: Nanos::MAX, priority: u32::MAX, min_per_s: 0.0 };
        static NOBODY: Api = GONE;
        self.apis.get(api.index()).unwrap_or(&NOBODY)
    }

    /// The services on any way of an API, in order, and how often a request calls each in the mean.
    pub fn uses(&self, api: ApiId) -> &[(ServiceId, f64)] {
        match self.uses_from.get(api.index()..api.index() + 2) {
            Some(&[from, to]) => &self.uses[from as usize..to as usize],
            _ => &[],
        }
    }

    /// The APIs that may call a service, in order, and how often a request of each does in the mean.
    pub fn users(&self, service: ServiceId) -> &[(ApiId, f64)] {
        match self.users_from.get(service.index()..service.index() + 2) {
            Some(&[from, to]) => &self.users[from as usize..to as usize],
            _ => &[],
        }
    }

    /// The tightest SLO of those who may call a service.
    pub fn tightest_slo(&self, service: ServiceId) -> Nanos {
        self.tightest.get(service.index()).copied().unwrap_or(Nanos::MAX)
    }

    /// How many pairs of an API and a service that it uses there are. Each has a place among them,
    pub(crate) fn pairs(&self) -> usize {
        self.uses.len()
    }

    /// those of an API one after the other from here on,
    pub(crate) fn first_pair(&self, api: ApiId) -> usize {
        self.uses_from[api.index()] as usize
    }

    /// and those of a service, in the order of its users, these.
    pub(crate) fn pairs_of(&self, service: ServiceId) -> &[u32] {
        let index = service.index();
        &self.places[self.users_from[index] as usize..self.users_from[index + 1] as usize]
    }

    /// How long the service of a pair works for the API; nothing is known where that is by no calls.
    pub(crate) fn own_time(&self, pair: u32) -> OwnTime {
        self.own_times.get(pair as usize).copied().unwrap_or_default()
    }
}

/// The share of a branch, such that all shares of an API add up to one.
fn branch_share(api: &Api, branch: &Branch) -> f64 {
    let positive = |share: f64| if share.is_finite() { share.max(0.0) } else { 0.0 };
    let all: f64 = api.branches.iter().map(|branch| positive(branch.share)).sum();
    if all > 0.0 { positive(branch.share) / all } else { 1.0 / api.branches.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Nanos = Nanos::from_secs(1);

    #[test]
    fn calls_are_means_over_the_branches() {
        let branch = |share, services: &[u32]| Branch {
            share,
            services: services.iter().copied().map(ServiceId).collect(),
        };
        let branches = vec![branch(3.0, &[2, 0, 2]), branch(1.0, &[0, 1]), branch(f64::NAN, &[3])];
        let topology =
            Topology::new(2, vec![Api { branches, ..Api::along([], SLO, 1) }, Api::along([0], SLO, 2)]);
        assert_eq!(topology.services(), 4);
        let uses = [(ServiceId(0), 1.0), (ServiceId(1), 0.25), (ServiceId(2), 1.5), (ServiceId(3), 0.0)];
        assert_eq!(topology.uses(ApiId(0)), uses);
        assert_eq!(topology.users(ServiceId(0)), [(ApiId(0), 1.0), (ApiId(1), 1.0)]);
        assert_eq!(topology.users(ServiceId(2)), [(ApiId(0), 1.5)]);
    }

    #[test]
    fn own_times_are_kept_for_who_is_called() {
        let own = |mean_s, calls| OwnTime { mean_s, calls };
        let topology = Topology::new(2, vec![Api::along([0, 1], SLO, 1), Api::along([1], SLO, 1)]);
        assert_eq!(topology.own_time(2), OwnTime::default());
        let told = [
            (ApiId(0), ServiceId(1), own(0.02, 9.0)),
            (ApiId(1), ServiceId(0), own(0.5, 9.0)),
            (ApiId(1), ServiceId(1), own(f64::NAN, 9.0)),
            (ApiId(0), ServiceId(0), own(0.02, -1.0)),
            (ApiId(7), ServiceId(0), own(0.02, 1.0)),
        ];
        let topology = topology.with_own_times(told);
        let pairs: Vec<OwnTime> =
            topology.pairs_of(ServiceId(1)).iter().map(|&pair| topology.own_time(pair)).collect();
        assert_eq!(pairs, [own(0.02, 9.0), OwnTime::default()]);
        assert_eq!(topology.own_time(topology.pairs_of(ServiceId(0))[0]), OwnTime::default());
        let again = Topology::new(2, topology.apis().to_vec()).with_own_times(topology.own_times());
        assert_eq!(format!("{again:?}"), format!("{topology:?}"));
    }

    #[test]
    fn who_is_not_there_uses_nothing() {
        let topology = Topology::new(1, vec![Api { branches: Vec::new(), ..Api::along([], SLO, 1) }]);
        assert!(topology.uses(ApiId(0)).is_empty() && topology.uses(ApiId(9)).is_empty());
        assert!(topology.users(ServiceId(0)).is_empty() && topology.users(ServiceId(9)).is_empty());
        assert!(topology.api(ApiId(9)).branches.is_empty());
    }
}
