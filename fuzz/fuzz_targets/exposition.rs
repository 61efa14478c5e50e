//! The text format of metrics: whatever a page holds, its samples are parts of it and can be read to the last label.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_controller::telemetry::usage::exposition::samples;

fuzz_target!(|page: &str| {
    let mut found = 0;
    for sample in samples(page) {
        found += 1;
        assert!(!sample.name.is_empty() && page.contains(sample.name));
        assert!(sample.at_s.is_none_or(f64::is_finite));
        for (name, value) in sample.labels().take(1_000) {
            assert!(name.len() + value.len() < page.len());
        }
    }
    assert!(found <= page.lines().count());
});
