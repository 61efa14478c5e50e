//! `Server-Timing: cpu;dur=12.3, db;dur=5;desc="orders"`, in milliseconds (W3C, Server Timing): for servers that report to browsers
//! already, or whose framework does.

use http::header::{HeaderMap, HeaderName};

use super::{MAX_REPORT, Nonsense, Report, time};
use plimsoll_core::Nanos;

/// The header.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What a request may wait for. Other metrics are not read: many overlap, such as `total` and its parts.
const DATA: [&str; 6] = ["data", "db", "sql", "cache", "io", "disk"];

/// Reads the header, if it is there. Metrics of one name add up.
#[inline]
pub fn read(headers: &HeaderMap) -> Option<Result<Report, Nonsense>> {
    headers.contains_key(&SERVER_TIMING).then(|| {
        let mut report = Report::default();
        let mut length = 0;
        for line in headers.get_all(&SERVER_TIMING) {
            length += line.len();
            if length > MAX_REPORT {
                return Err(Nonsense);
            }
            let line = std::str::from_utf8(line.as_bytes()).map_err(|_| Nonsense)?;
            line.split(unquoted(',')).try_for_each(|metric| add(&mut report, metric))?;
        }
        Ok(report)
    })
}

fn add(report: &mut Report, metric: &str) -> Result<(), Nonsense> {
    let mut parts = metric.split(unquoted(';'));
    let name = parts.next().unwrap_or_default().trim();
    let sum = if name.eq_ignore_ascii_case("cpu") {
        &mut report.cpu
    } else if DATA.iter().any(|data| name.eq_ignore_ascii_case(data)) {
        &mut report.data
    } else {
        return Ok(());
    };
    // A metric without a duration says that something happened, not how long it took.
    let Some(ms) = parts.find_map(duration) else { return Ok(()) };
    let took = time(ms? / 1e3)?;
    *sum = Some(sum.unwrap_or(Nanos::ZERO) + took);
    Ok(())
}

/// The milliseconds of a parameter, if it is the duration.
fn duration(parameter: &str) -> Option<Result<f64, Nonsense>> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("dur") {
        return None;
    }
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Some(quoted.unwrap_or(value).parse().map_err(|_| Nonsense))
}

/// Finds a separator that is not within quotes.
fn unquoted(separator: char) -> impl FnMut(char) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    move |c| {
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && c == '\\' && !escaped;
        c == separator && !quoted
    }
}
