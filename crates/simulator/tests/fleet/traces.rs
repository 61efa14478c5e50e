//! What traces tell a controller: how long services work for each API, as late as the receiver knows it.

use plimsoll_core::Nanos;
use plimsoll_ratecontrol::{ApiId, ServiceId};
use plimsoll_simulator::fleet::engine::Fleet;
use plimsoll_simulator::fleet::service::Guards;
use plimsoll_simulator::fleet::traces::Traces;

use super::plan;

#[test]
fn own_times_are_what_calls_cost_and_come_ten_seconds_late() {
    let text = "
        duration = \"60s\"
        [service.shop]
        workers = 4
        service = { dist = \"constant\", mean = \"10ms\" }
        [service.stock]
        workers = 4
        service = { dist = \"exponential\", mean = \"5ms\" }
        [api.cheap]
        path = [\"shop\"]
        offered = \"50/s\"
        [api.dear]
        path = [\"shop\", \"stock\"]
        cost = { shop = 3.0 }
        offered = \"50/s\"
    ";
    let (mut fleet, mut traces) = (Fleet::new(plan(text), Guards::None, 1), Traces::default());
    let mut last = Vec::new();
    for second in 1..=40 {
        fleet.advance(Nanos::from_secs(second));
        let told = traces.tell(&fleet).map(Vec::from_iter);
        assert_eq!(told.is_some(), second > 10, "after {second} s");
        last = told.unwrap_or_default();
    }
    let pairs: Vec<(ApiId, ServiceId)> = last.iter().map(|&(api, service, _)| (api, service)).collect();
    assert_eq!(pairs, [(0, 0), (1, 0), (1, 1)].map(|(api, service)| (ApiId(api), ServiceId(service))));
    for ((_, _, own), mean_s) in last.iter().zip([0.010, 0.030, 0.005]) {
        assert!((own.mean_s / mean_s - 1.0).abs() < 0.1, "{own:?} instead of {mean_s} s");
        assert!((own.calls / (50.0 * 30.0) - 1.0).abs() < 0.1, "{own:?}: of the first thirty seconds");
    }
}
