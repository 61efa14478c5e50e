//! What happened over time, drawn as the paper draws it.

use plimsoll_core::{ClassId, Nanos};

use super::Ran;
use super::checks::{admitted_pct, p95s, windows};
use super::watch::Seen;
use crate::figures::{Chart, Line};

/// Points a chart has, about.
const POINTS: u64 = 120;

/// Arrival rates, by class.
pub fn arrivals(ran: &Ran) -> Chart {
    by_class(ran, "arrivals", "requests/s", |window, length_s| Some(window.len() as f64 / length_s))
}

/// Admission rates, by class.
pub fn admissions(ran: &Ran) -> Chart {
    let rate = |window: &[&Seen], length_s| {
        Some(window.iter().filter(|seen| seen.is_admitted()).count() as f64 / length_s)
    };
    by_class(ran, "admitted", "requests/s", rate)
}

/// The share that was let in, by class.
pub fn fractions(ran: &Ran) -> Chart {
    by_class(ran, "share admitted", "%", |window, _| admitted_pct(window.iter().copied()))
}

/// The 95th percentile of all that was let in, beside the target.
pub fn response_times(ran: &Ran, title: &str, target: Nanos) -> Chart {
    let points = p95s(&ran.requests, length(ran));
    let point = |(at, time): (Nanos, Nanos)| (at.as_secs_f64(), time.as_millis_f64());
    let line = Line { name: "p95".to_owned(), points: points.into_iter().map(point).collect() };
    Chart::new(title, "s", "ms", vec![line]).with_level("target", target.as_millis_f64())
}

fn length(ran: &Ran) -> Nanos {
    let end = ran.requests.last().map_or(Nanos::ZERO, |last| last.arrival.at);
    Nanos::from_secs((end.0 / 1_000_000_000 / POINTS).max(1))
}

fn by_class(ran: &Ran, title: &str, unit: &str, of: impl Fn(&[&Seen], f64) -> Option<f64>) -> Chart {
    let length = length(ran);
    let windows = windows(&ran.requests, length);
    let line = |(class, name): (u16, &String)| {
        let point = |(i, window): (usize, &&[Seen])| {
            let of_class: Vec<&Seen> =
                window.iter().filter(|seen| seen.arrival.class == ClassId(class)).collect();
            let value = of(&of_class, length.as_secs_f64())?;
            Some((i as f64 * length.as_secs_f64(), value))
        };
        Line { name: name.clone(), points: windows.iter().enumerate().filter_map(point).collect() }
    };
    Chart::new(title, "s", unit, (0..).zip(ran.names()).map(line).collect())
}
