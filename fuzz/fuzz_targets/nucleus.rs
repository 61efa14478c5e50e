//! Servers' reports: whatever a header holds, what is read of it is within limits, and written again it is read as the same. Load
//! reports are gone afterwards, all else is as it was.
//!
//! The input is lines of `NAME: VALUE`.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use plimsoll_core::Nanos;
use plimsoll_sentry::nucleus::orca::{LOAD, LOAD_BIN};
use plimsoll_sentry::nucleus::{Counts, Report, hear};

const HOUR: Nanos = Nanos::from_secs(3_600);

fuzz_target!(|bytes: &[u8]| {
    let mut headers: HeaderMap = bytes.split(|&b| b == b'\n').take(64).filter_map(header).collect();
    let mut rest = headers.clone();
    let counts = Counts::default();
    let report = hear(&mut headers, &counts);
    rest.remove(LOAD);
    rest.remove(LOAD_BIN);
    assert_eq!(headers, rest);

    let [(_, used), (_, ignored), (_, implausible)] = counts.all();
    assert!(used + ignored <= 2 && implausible == 0, "{counts:?}");
    assert!(used > 0 || report == Report::default(), "{report:?}");
    assert!(report.queue_delay.is_none_or(|delay| delay <= HOUR), "{report:?}");
    assert!(report.in_service.is_none_or(|n| (0.0..=1e6).contains(&n)), "{report:?}");
    assert!(report.cpu_utilization.is_none_or(|n| (0.0..=1e3).contains(&n)), "{report:?}");
    if used > 0 {
        reads_as_written(&report);
    }
});

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.windows(2).position(|pair| pair == b": ")?;
    Some((HeaderName::from_bytes(&line[..colon]).ok()?, HeaderValue::from_bytes(&line[colon + 2..]).ok()?))
}

fn reads_as_written(report: &Report) {
    // Metrics of one name in `Server-Timing` add up, and a load report has one.
    let fits = |time: &Nanos| *time <= HOUR;
    let seconds = |time: Option<Nanos>| time.filter(fits).map(Nanos::as_secs_f64);
    let numbers = [
        ("request_cost.cpu", seconds(report.cpu)),
        ("request_cost.data", seconds(report.data)),
        ("named_metrics.queue_delay_ms", report.queue_delay.map(Nanos::as_millis_f64)),
        ("named_metrics.in_service", report.in_service.map(f64::from)),
        ("cpu_utilization", report.cpu_utilization.map(f64::from)),
    ];
    let said = numbers.iter().filter_map(|(name, number)| Some(format!("{name}={}", (*number)?)));
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        return;
    }
    let value = HeaderValue::try_from(format!("TEXT {}", said.join(","))).unwrap();
    let read = hear(&mut HeaderMap::from_iter([(LOAD, value)]), &Counts::default());
    let near = |a: Option<Nanos>, b: Option<Nanos>| match (a.filter(fits), b) {
        (Some(a), Some(b)) => a.0.abs_diff(b.0) <= 2,
        (a, b) => a == b,
    };
    let times = [(report.cpu, read.cpu), (report.data, read.data), (report.queue_delay, read.queue_delay)];
    assert!(times.into_iter().all(|(a, b)| near(a, b)), "{report:?} is read as {read:?}");
    assert_eq!(
        (report.in_service, report.cpu_utilization),
        (read.in_service, read.cpu_utilization),
        "{report:?} is read as {read:?}"
    );
}
