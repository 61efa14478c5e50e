//! What sets the rates of a cluster.

use plimsoll_core::Nanos;

use crate::clusters::Cluster;
use crate::learned::guard::Handover;
use crate::observation::Memory;
use crate::overload::{Overload, Thresholds, patience};
use crate::rates::Rates;
use crate::topology::{ApiId, ServiceId, Topology};

/// What a controller may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// When this step is.
    pub now: Nanos,
    /// How long ago the last one was; zero in the first.
    pub elapsed: Nanos,
    /// What is older than this is no longer believed, unless words of it are always as far apart.
    pub freeze: Nanos,
    /// From then on limits that it was the reason for double in every such time,
    pub relax: Nanos,
    /// and what is older than this is no reason any more.
    pub release: Nanos,
    /// When services count as overloaded.
    pub thresholds: &'a Thresholds,
    /// The fleet.
    pub topology: &'a Topology,
    /// What was seen of it.
    pub memory: &'a Memory,
}

impl View<'_> {
    /// Whether what is known of a service may be believed.
    pub fn knows(&self, service: ServiceId) -> bool {
        self.memory.believes(service, self.now, self.freeze, self.release)
    }

    /// Whether limits for the sake of a service that nothing is heard of may still be in force.
    pub fn remembers(&self, service: ServiceId) -> bool {
        self.memory.service_heard(service).is_some_and(|heard| self.now.since(heard) <= self.release)
    }

    /// By how much limits grow in this step that nobody is heard of any more who was the reason for them.
    pub fn relaxed(&self) -> f64 {
        (self.elapsed.as_secs_f64() / self.relax.as_secs_f64().max(1e-3)).min(60.0).exp2()
    }

    /// The service that an API is limited for; where nothing was heard of that, all on its path of which something was.
    fn reasons(&self, api: ApiId, target: Option<ServiceId>) -> impl Iterator<Item = (ServiceId, Nanos)> {
        let heard = |service| Some((service, self.memory.service_heard(service)?));
        let path = move || self.topology.uses(api).iter().filter_map(move |&(service, _)| heard(service));
        let target = target.filter(|&target| path().any(|(service, _)| service == target));
        path().filter(move |&(service, _)| target.is_none_or(|target| service == target))
    }

    /// When anything was last heard of what an API is limited for.
    pub fn heard_for(&self, api: ApiId, target: Option<ServiceId>) -> Option<Nanos> {
        self.reasons(api, target).map(|(_, heard)| heard).max()
    }

    /// Whether that may be believed.
    pub fn believes_for(&self, api: ApiId, target: Option<ServiceId>) -> bool {
        self.reasons(api, target).any(|(service, _)| self.knows(service))
    }

    /// How long requests may wait at a service before it counts as overloaded.
    pub fn patience(&self, service: ServiceId) -> Nanos {
        patience(self.topology, service, self.thresholds)
    }

    /// Requests a second that enter, as far as is known: what was let in, or else what was sent.
    pub fn admitted(&self, api: ApiId) -> Option<f64> {
        let signal = self.memory.api(api);
        signal.admitted_per_s.or(signal.offered_per_s)
    }
}

/// What sets the rates of clusters.
///
/// It lowers rates only in [`control`](RateController::control), so only where a service on the path is overloaded, and raises them
/// only in what [`recover`](RateController::recover) is given or where it knows that nothing will be overloaded for it.
pub trait RateController: Send {
    /// Its name, as in reports.
    fn name(&self) -> &'static str;

    /// Once a step, before all else: learns from what was seen. It may keep a service among the overloaded that would be again if the
    /// limits went that relieved it.
    fn learn(&mut self, view: &View<'_>, rates: &Rates, overload: &mut Overload) {
        let _ = (view, rates, overload);
    }

    /// Sets the rates of one cluster.
    fn control(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &mut Rates);

    /// Raises the rates of APIs that are limited, though nothing on their paths is overloaded. Something was heard of each of them.
    fn recover(&mut self, freed: &[ApiId], view: &View<'_>, rates: &mut Rates);

    /// Which APIs came into other hands in this step, where there are several.
    fn handovers(&self) -> &[Handover] {
        &[]
    }
}

impl<C: RateController + ?Sized> RateController for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn learn(&mut self, view: &View<'_>, rates: &Rates, overload: &mut Overload) {
        (**self).learn(view, rates, overload);
    }

    fn control(&mut self, cluster: Cluster<'_>, view: &View<'_>, rates: &mut Rates) {
        (**self).control(cluster, view, rates);
    }

    fn recover(&mut self, freed: &[ApiId], view: &View<'_>, rates: &mut Rates) {
        (**self).recover(freed, view, rates);
    }

    fn handovers(&self) -> &[Handover] {
        (**self).handovers()
    }
}
