//! The files of the simulator and of the load generator: read or refused with a reason, with shares that sum to one.
#![no_main]

mod findings;

use libfuzzer_sys::fuzz_target;
use plimsoll_core::config::mix::Mix;
use plimsoll_core::config::workload::Workload;

fuzz_target!(|text: &str| {
    if let Some(workload) = findings::read::<Workload>(text) {
        assert_whole(workload.classes.iter().map(|class| class.share));
    }
    if let Some(mix) = findings::read::<Mix>(text) {
        assert_whole(mix.requests.iter().map(|request| request.share));
    }
});

fn assert_whole(shares: impl Iterator<Item = f64>) {
    let sum: f64 = shares.sum();
    assert!((sum - 1.0).abs() < 1e-6, "the shares sum to {sum}");
}
