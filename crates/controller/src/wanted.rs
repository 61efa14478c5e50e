//! What would come to each service of the fleet if all that is sent were let in. Whoever scales a service sees only what was; this is the
//! rest of the demand.

use plimsoll_ratecontrol::{ServiceId, Topology};
use plimsoll_rlqs::fleet::Flow;
use serde::Serialize;

/// Calls of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wanted {
    /// Calls a second that there would be.
    pub offered_per_s: f64,
    /// Calls a second that come of what is let in.
    pub admitted_per_s: f64,
    /// The first over the second, at least one: by how much more of the service would take all of it.
    pub ratio: f64,
}

impl Wanted {
    /// Of a service, as far as is known what its callers send and what of that is let in.
    pub fn of(topology: &Topology, service: ServiceId, apis: &[Flow]) -> Wanted {
        let (mut offered_per_s, mut admitted_per_s) = (0.0, 0.0);
        for &(api, calls) in topology.users(service) {
            let Some(flow) = apis.get(api.index()) else { continue };
            offered_per_s += calls * flow.offered_per_s;
            admitted_per_s += calls * flow.admitted_per_s;
        }
        let ratio = if admitted_per_s > 0.0 { (offered_per_s / admitted_per_s).max(1.0) } else { 1.0 };
        Wanted { offered_per_s, admitted_per_s, ratio }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Nanos;
    use plimsoll_ratecontrol::Api;

    use super::*;

    #[test]
    fn a_service_is_wanted_by_all_who_call_it_limited_or_not() {
        let api = |services: &[u32]| Api::along(services.iter().copied(), Nanos::from_secs(1), 1);
        let topology = Topology::new(3, vec![api(&[0, 1, 1]), api(&[0])]);
        let flow = |offered_per_s, admitted_per_s| Flow { offered_per_s, admitted_per_s };
        let apis = [flow(100.0, 40.0), flow(20.0, 20.0)];
        let of = |service| Wanted::of(&topology, ServiceId(service), &apis);
        let wanted = |offered_per_s, admitted_per_s, ratio| Wanted { offered_per_s, admitted_per_s, ratio };
        assert_eq!(of(0), wanted(120.0, 60.0, 2.0));
        assert_eq!(of(1), wanted(200.0, 80.0, 2.5), "called twice a request");
        assert_eq!(of(2), wanted(0.0, 0.0, 1.0));
        assert_eq!(Wanted::of(&topology, ServiceId(0), &[]), wanted(0.0, 0.0, 1.0), "nothing is known");
    }
}
