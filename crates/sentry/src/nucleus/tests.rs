use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::HeaderValue;
use proptest::prelude::*;
use prost::Message;

use super::orca::{LOAD, LOAD_BIN, LoadReport};
use super::server_timing::SERVER_TIMING;
use super::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// What is heard in these headers, and how many of them were used and ignored.
fn heard(lines: &[(&str, &str)]) -> (Report, [u64; 2]) {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = http::HeaderName::try_from(*name).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let counts = Counts::default();
    let report = hear(&mut headers, &counts);
    assert!(!headers.contains_key(LOAD) && !headers.contains_key(LOAD_BIN), "{headers:?}");
    assert_eq!(
        headers.contains_key(SERVER_TIMING),
        lines.iter().any(|(name, _)| name.eq_ignore_ascii_case("server-timing"))
    );
    let [(_, used), (_, ignored), (_, 0)] = counts.all() else { panic!("{counts:?}") };
    (report, [used, ignored])
}

/// What is read of one header.
fn used(name: &str, value: &str) -> Report {
    let (report, counts) = heard(&[(name, value)]);
    assert_eq!(counts, [1, 0], "{name}: {value}");
    report
}

#[test]
fn all_three_forms_say_the_same() {
    let report = Report {
        cpu: Some(MS(12)),
        data: Some(MS(5)),
        queue_delay: Some(Nanos::from_micros(3_500)),
        in_service: Some(4.0),
        cpu_utilization: Some(0.25),
    };
    let text = "TEXT cpu_utilization=0.25, mem_utilization=0.8,request_cost.cpu=0.012, request_cost.data = 5e-3,\
                named_metrics.queue_delay_ms:3.5,named_metrics.in_service=4, utilization.gpu=1";
    assert_eq!(used("endpoint-load-metrics", text), report);
    let json = r#"JSON {"cpu_utilization": 0.25, "rps": "12", "request_cost": {"cpu": 0.012, "data": 0.005},
        "namedMetrics": {"queue_delay_ms": 3.5, "in_service": 4, "custom": -1}, "eps": 1}"#;
    assert_eq!(used("endpoint-load-metrics", &json.replace('\n', "")), report);
    // The message byte by byte: `utilization` and `rps_fractional` among what is read.
    let entry = |tag: u8, name: &str, number: f64| {
        let mut bytes = vec![tag, name.len() as u8 + 11, 0x0a, name.len() as u8];
        bytes.extend(name.bytes());
        bytes.push(0x11);
        bytes.extend(number.to_le_bytes());
        bytes
    };
    let message = [
        [&[0x09][..], &0.25f64.to_le_bytes()].concat(),
        entry(0x22, "cpu", 0.012),
        entry(0x2a, "gpu", 0.5),
        entry(0x22, "data", 0.005),
        [&[0x31][..], &10f64.to_le_bytes()].concat(),
        entry(0x42, "queue_delay_ms", 3.5),
        entry(0x42, "in_service", 4.0),
    ]
    .concat();
    for base64 in [STANDARD.encode(&message), STANDARD_NO_PAD.encode(&message)] {
        assert_eq!(used("endpoint-load-metrics-bin", &base64), report);
        assert_eq!(used("endpoint-load-metrics", &format!("BIN {base64}")), report);
    }
}

#[test]
fn the_example_of_envoys_documentation_is_understood() {
    let example = "CZqZmZmZmbk/MQAAAAAAAABAQg4KA2ZvbxGamZmZmZm5P0IOCgNiYXIRmpmZmZmZyT8=";
    let report = Report { cpu_utilization: Some(0.1), ..Report::default() };
    assert_eq!(used("endpoint-load-metrics-bin", example), report);
}

#[test]
fn the_manuals_examples_are_understood() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nucleus.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let headers = manual.lines().filter_map(|line| line.split_once(": "));
    let names = ["endpoint-load-metrics", "endpoint-load-metrics-bin", "Server-Timing"];
    let examples: Vec<_> = headers.filter(|(name, _)| names.contains(name)).collect();
    assert_eq!(examples.len(), 4, "{examples:?}");
    assert!(examples.iter().all(|(name, value)| used(name, value).cpu.is_some()), "{examples:?}");
}

#[test]
fn server_timing_is_read_as_browsers_do() {
    let of = |value: &str| {
        let Report { cpu, data, .. } = used("server-timing", value);
        (cpu.map(Nanos::as_millis_f64), data.map(Nanos::as_millis_f64))
    };
    assert_eq!(of("cpu;dur=12.5, db;dur=5"), (Some(12.5), Some(5.0)));
    assert_eq!(
        of("total;dur=40,DB ; desc=\"a, b; dur=9\";Dur=\"1.5\" , cache;desc=hit, io;dur=2"),
        (None, Some(3.5))
    );
    assert_eq!(of(r#"cpu;desc="a \"quoted\", \\";dur=1;dur=2"#), (Some(1.0), None));
    let (report, counts) =
        heard(&[("server-timing", "cpu;dur=1"), ("server-timing", "cpu;dur=2, sql;dur=4")]);
    assert_eq!((report.cpu, report.data, counts), (Some(MS(3)), Some(MS(4)), [1, 0]));
}

#[test]
fn of_two_reports_the_first_goes_before_the_second() {
    let (report, counts) = heard(&[
        ("server-timing", "cpu;dur=9, db;dur=5"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=0.001"),
    ]);
    assert_eq!((report.cpu, report.data, counts), (Some(MS(1)), Some(MS(5)), [2, 0]));
    let (report, counts) = heard(&[
        ("endpoint-load-metrics", "TEXT cpu_utilization=0.5"),
        ("endpoint-load-metrics-bin", "CQAAAAAAAOg/"),
    ]);
    assert_eq!((report.cpu_utilization, counts), (Some(0.75), [1, 0]));
}

#[test]
fn what_says_nothing_counts_as_nothing() {
    for (name, value) in [
        ("server-timing", "app;dur=5, cache;desc=hit"),
        ("server-timing", ""),
        ("endpoint-load-metrics", "TEXT mem_utilization=0.5,named_metrics.other=-7"),
        ("endpoint-load-metrics", "JSON {}"),
        ("endpoint-load-metrics-bin", ""),
    ] {
        assert_eq!(heard(&[(name, value)]), (Report::default(), [0, 0]), "{name}: {value}");
    }
    assert_eq!(heard(&[]), (Report::default(), [0, 0]));
}

#[test]
fn nonsense_is_ignored_and_counted() {
    let long = format!("TEXT cpu_utilization=0.5,{}", "mem_utilization=0.5,".repeat(300));
    let timing = format!("cpu;dur=1, {}", "a,".repeat(3_000));
    let negative = STANDARD.encode([&[0x09][..], &(-1f64).to_le_bytes()].concat());
    for (name, value) in [
        ("endpoint-load-metrics", ""),
        ("endpoint-load-metrics", "cpu_utilization=0.5"),
        ("endpoint-load-metrics", "TEXT "),
        ("endpoint-load-metrics", "TEXT cpu_utilization"),
        ("endpoint-load-metrics", "TEXT cpu_utilization=0.5,"),
        ("endpoint-load-metrics", "TEXT cpu_utilization=\"0.5\""),
        ("endpoint-load-metrics", "TEXT cpu_utilization=0.5,cpu_utilization=0.5"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=0.5,request_cost.cpu=0.5"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=-0.001"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=nan"),
        ("endpoint-load-metrics", "TEXT request_cost.data=inf"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=3601"),
        ("endpoint-load-metrics", "TEXT named_metrics.queue_delay_ms=1e300"),
        ("endpoint-load-metrics", "TEXT named_metrics.in_service=1000001"),
        ("endpoint-load-metrics", "TEXT cpu_utilization=1e4"),
        ("endpoint-load-metrics", "TEXT request_cost.cpu=0.001,mem_utilization=much"),
        ("endpoint-load-metrics", "JSON {\"cpu_utilization\": -1}"),
        ("endpoint-load-metrics", "JSON {\"cpu_utilization\": 0.5"),
        ("endpoint-load-metrics", "JSON {\"request_cost\": {\"cpu\": 1e400}}"),
        ("endpoint-load-metrics", "JSON [[[["),
        ("endpoint-load-metrics", "YAML a: 1"),
        ("endpoint-load-metrics", "BIN ?"),
        ("endpoint-load-metrics", "TEXT cpu_utilization=0.5\u{e9}"),
        ("endpoint-load-metrics", &long),
        ("endpoint-load-metrics-bin", "CQ"),
        ("endpoint-load-metrics-bin", "////"),
        ("endpoint-load-metrics-bin", &negative),
        ("server-timing", "db;dur=5, cpu;dur=-1"),
        ("server-timing", "cpu;dur=fast"),
        ("server-timing", "cpu;dur=NaN"),
        ("server-timing", "db;dur=1e300"),
        ("server-timing", "db;dur="),
        ("server-timing", &timing),
    ] {
        assert_eq!(heard(&[(name, value)]), (Report::default(), [0, 1]), "{name}: {value}");
    }
    let twice = ("endpoint-load-metrics", "TEXT cpu_utilization=0.5");
    assert_eq!(heard(&[twice, twice]), (Report::default(), [0, 1]), "which of them?");
}

/// The three headers with this report; of times, what is left of them by seconds and milliseconds that are no whole numbers.
fn forms(report: &Report) -> Vec<(&'static str, String)> {
    let cost = [("cpu", report.cpu), ("data", report.data)];
    let cost = cost.into_iter().filter_map(|(name, time)| Some((name.to_owned(), time?.as_secs_f64())));
    let named = [
        ("queue_delay_ms", report.queue_delay.map(Nanos::as_millis_f64)),
        ("in_service", report.in_service.map(f64::from)),
    ];
    let named = named.into_iter().filter_map(|(name, number)| Some((name.to_owned(), number?)));
    let message = LoadReport {
        cpu_utilization: report.cpu_utilization.map(f64::from),
        request_cost: cost.collect(),
        named_metrics: named.collect(),
    };
    let pairs = |map: &'static str, entries: &std::collections::BTreeMap<String, f64>| {
        entries.iter().map(|(name, number)| format!("{map}.{name}={number}")).collect::<Vec<_>>()
    };
    let mut text = pairs("request_cost", &message.request_cost);
    text.extend(pairs("named_metrics", &message.named_metrics));
    text.extend(message.cpu_utilization.map(|number| format!("cpu_utilization={number}")));
    let json = serde_json::json!({
        "cpu_utilization": message.cpu_utilization, "request_cost": message.request_cost,
        "named_metrics": message.named_metrics,
    });
    vec![
        ("endpoint-load-metrics", format!("TEXT {}", text.join(","))),
        ("endpoint-load-metrics", format!("JSON {json}")),
        ("endpoint-load-metrics-bin", STANDARD_NO_PAD.encode(message.encode_to_vec())),
    ]
}

fn reports() -> impl Strategy<Value = Report> {
    let time = || prop::option::of((0..3_600_000_000_000_u64).prop_map(Nanos));
    let number = |most: f32| prop::option::of(0.0..most);
    (time(), time(), time(), number(1e6), number(1e3)).prop_map(
        |(cpu, data, queue_delay, in_service, cpu_utilization)| Report {
            cpu,
            data,
            queue_delay,
            in_service,
            cpu_utilization,
        },
    )
}

/// Times go through a number of seconds, which may cost them a few nanoseconds.
fn alike(a: &Report, b: &Report) -> bool {
    let near = |a: Option<Nanos>, b: Option<Nanos>| match (a, b) {
        (Some(a), Some(b)) => a.0.abs_diff(b.0) <= 2,
        (a, b) => a == b,
    };
    near(a.cpu, b.cpu)
        && near(a.data, b.data)
        && near(a.queue_delay, b.queue_delay)
        && (a.in_service, a.cpu_utilization) == (b.in_service, b.cpu_utilization)
}

proptest! {
    #[test]
    fn what_is_written_is_read(report in reports().prop_filter("says something", |r| *r != Report::default())) {
        for (name, value) in forms(&report) {
            let read = used(name, &value);
            prop_assert!(alike(&read, &report), "{}: {}: {:?}", name, value, read);
        }
    }

    #[test]
    fn quotes_hide_what_they_hold(description in "[ -~]{0,40}", cpu in 0..100_000_u64, db in 0..100_000_u64) {
        let quoted = description.replace('\\', "\\\\").replace('"', "\\\"");
        let value = format!("other;desc=\"{quoted}\", cpu;desc=\"{quoted}\";dur={cpu}, db;dur={db};desc=\"{quoted}\"");
        let read = used("server-timing", &value);
        let said = Report { cpu: Some(MS(cpu)), data: Some(MS(db)), ..Report::default() };
        prop_assert!(alike(&read, &said), "{}: {:?}", value, read);
    }

    #[test]
    fn whatever_is_said_is_within_limits(
        load in prop_oneof!["(TEXT|JSON|BIN) [ -~]{0,60}", "TEXT (request_cost\\.cpu[=:][0-9a-z.+-]{1,8},?){1,3}"],
        bin in "[A-Za-z0-9+/]{0,60}=?",
        timing in "((cpu|db|x)(;(dur|desc)=[ -~]{0,9}){0,3},?){0,4}",
    ) {
        for lines in [
            &[("endpoint-load-metrics", &*load), ("server-timing", &*timing)][..],
            &[("endpoint-load-metrics-bin", &*bin)],
        ] {
            let (report, [used, ignored]) = heard(lines);
            prop_assert!(used + ignored <= lines.len() as u64);
            prop_assert!(report == Report::default() || used > 0);
            let times = [report.cpu, report.data, report.queue_delay];
            // Metrics of one name add up.
            prop_assert!(times.into_iter().flatten().all(|time| time <= Nanos::from_secs(4 * 3_600)));
            prop_assert!(report.in_service.is_none_or(|n| REQUESTS.contains(&f64::from(n))));
            prop_assert!(report.cpu_utilization.is_none_or(|n| UTILISATION.contains(&f64::from(n))));
        }
    }
}
