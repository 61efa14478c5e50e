//! The rate limit quota service: whatever a controller says, a limit is a number and ends; whatever data planes say, no more is given
//! away than there is, and nothing grows without bound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::Nanos;
use plimsoll_rlqs::assignment::{Limit, read};
use plimsoll_rlqs::fleet::Fleet;
use plimsoll_rlqs::messages::{QuotaResponse, UsageReports};
use prost::Message;

const RATE: f64 = 1_000.0;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(response) = QuotaResponse::decode(bytes) {
        for (_, assignment) in response.bucket_action.iter().filter_map(|action| read(action).ok()) {
            assert!(assignment.holds_for <= Nanos::from_secs(60));
            if let Limit::Rate { per_s, .. } = assignment.limit {
                assert!((0.0..=1e9).contains(&per_s), "{assignment:?}");
            }
        }
    }
    // Each byte says how long the message after it is, of one of two streams, a quarter of a second after the one before.
    let mut fleet = Fleet::new(["class".to_owned(), "a".to_owned()]);
    let streams = [fleet.open(false), fleet.open(true)];
    let mut now = Nanos::ZERO;
    let mut rest = bytes;
    for i in 0..64 {
        let Some((&length, after)) = rest.split_first() else { break };
        let (message, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        let Ok(reports) = UsageReports::decode(message) else { continue };
        now += Nanos::from_millis(250);
        fleet.report(streams[i % 2], reports.bucket_quota_usages, now);
        let mut given = [0.0; 2];
        for (_, response) in fleet.assign(&[Some(RATE), Some(RATE)], now) {
            assert!(response.encoded_len() < 2_048 * 2_048, "no bucket's id is longer than it may be");
            for action in &response.bucket_action {
                let (class, assignment) = read(action).expect("what we say we understand");
                if let Limit::Rate { per_s, .. } = assignment.limit {
                    given[usize::from(class == "a")] += per_s;
                }
            }
        }
        assert!(given.iter().all(|given| *given <= RATE * (1.0 + 1e-9)), "{given:?}");
    }
    for flow in fleet.demand().into_iter().flat_map(|demand| [demand.latest, demand.steady]) {
        assert!(flow.offered_per_s.is_finite() && flow.admitted_per_s <= flow.offered_per_s);
    }
});
