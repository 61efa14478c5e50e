//! What a Prometheus answers: whatever it is, it is read or refused in few words, and what was scraped has a time that can be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_controller::telemetry::usage::What;
use plimsoll_controller::telemetry::usage::query::{mark, parse, times};

fuzz_target!(|answers: &[u8]| {
    // Two answers, one after the other.
    let mut both = answers.splitn(2, |&byte| byte == b'\n');
    let [values, scraped] = [both.next(), both.next()].map(Option::unwrap_or_default);
    let now = times(scraped, "service");
    assert!(now.values().all(|at_s| at_s.is_finite()));
    let mut told = match parse(values, "service", What::Serves) {
        Ok(told) => told,
        Err(error) => return assert!(!error.is_empty() && error.chars().count() <= 300),
    };
    mark(&mut told, &now, &now);
    assert!(told.iter().all(|told| told.is_new != Some(true)), "nothing was scraped anew");
});
