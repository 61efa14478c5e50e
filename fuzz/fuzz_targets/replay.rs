//! Access logs: read or refused with a reason; what was read replays in order, and the workload that is suggested
//! from it is one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::Nanos;
use plimsoll_core::config::parse;
use plimsoll_core::config::workload::Workload;
use plimsoll_simulator::access_log::{self, MAX_NAMES};
use plimsoll_simulator::replay::Log;
use plimsoll_simulator::suggest::suggest;

fuzz_target!(|bytes: &[u8]| {
    let log = match access_log::read(bytes, "a.csv") {
        Ok(log) => log,
        Err(error) => return assert!(error.starts_with("a.csv:"), "{error}"),
    };
    assert!(log.names.len() <= MAX_NAMES + 1);
    assert_eq!(log.records[0].at, Nanos::ZERO);
    assert!(log.records.is_sorted_by_key(|record| record.at));
    for record in &log.records {
        assert!(usize::from(record.name) < log.names.len());
        assert!(record.service > Nanos::ZERO);
    }
    let suggestion = suggest(&log, None).to_string();
    parse::<Workload>(&suggestion, "suggested").unwrap_or_else(|errors| panic!("{errors}\n{suggestion}"));
    let classes = ["product-id", "default"].map(String::from);
    let requests = log.records.len();
    let replay = Log::new(log, &classes);
    assert_eq!(
        replay.at_speed(3.0).filter(|arrival| arrival.class.index() < classes.len()).count(),
        requests
    );
});
