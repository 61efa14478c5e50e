//! Deadlines that requests bring along: `grpc-timeout`, and a header of the operator's choice.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::Nanos;

/// The header of gRPC.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// How a deadline was written, so that what is left of it goes on in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Grpc,
    /// A number of milliseconds.
    Millis(HeaderName),
    /// A number and a unit, as in the config.
    Duration(HeaderName),
}

/// When the client stops waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The point in time.
    pub at: Nanos,
    form: Form,
}

impl Deadline {
    /// The deadline of a request that arrives now, if it has one. What cannot be read is no deadline: the
    /// server sees the header as it came.
    pub fn of(headers: &HeaderMap, header: Option<&HeaderName>, now: Nanos) -> Option<Deadline> {
        if let Some(value) = headers.get(GRPC_TIMEOUT) {
            return Some(Deadline { at: now + parse_grpc(value.as_bytes())?, form: Form::Grpc });
        }
        let name = header?;
        let text = headers.get(name)?.to_str().ok()?.trim();
        if text.bytes().all(|b| b.is_ascii_digit()) {
            let left = Nanos::from_millis(text.parse().ok()?);
            return Some(Deadline { at: now + left, form: Form::Millis(name.clone()) });
        }
        Some(Deadline { at: now + text.parse().ok()?, form: Form::Duration(name.clone()) })
    }

    /// Tells the next in line how much is left.
    pub fn forward(&self, headers: &mut HeaderMap, now: Nanos) {
        let left = self.at.since(now);
        let (name, text) = match &self.form {
            Form::Grpc => (GRPC_TIMEOUT, format_grpc(left)),
            Form::Millis(name) => (name.clone(), left.0.div_ceil(1_000_000).to_string()),
            Form::Duration(name) => (name.clone(), format!("{}us", left.0.div_ceil(1_000))),
        };
        if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(text)) {
            headers.insert(name, value);
        }
    }
}

/// At most eight digits and a unit.
fn parse_grpc(value: &[u8]) -> Option<Nanos> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
    Some(match unit {
        b'n' => Nanos(number),
        b'u' => Nanos::from_micros(number),
        b'm' => Nanos::from_millis(number),
        b'S' => Nanos::from_secs(number),
        b'M' => Nanos::from_secs(number * 60),
        b'H' => Nanos::from_secs(number * 3600),
        _ => return None,
    })
}

/// In the finest unit that eight digits have room for, rounded up.
fn format_grpc(left: Nanos) -> String {
    const UNITS: [(u64, char); 5] =
        [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    for (unit, letter) in UNITS {
        let number = left.0.div_ceil(unit);
        if number <= 99_999_999 {
            return format!("{number}{letter}");
        }
    }
    "99999999M".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(100);

    fn of(name: &'static str, value: &'static str) -> Option<Deadline> {
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
        Deadline::of(&headers, Some(&HeaderName::from_static("x-deadline")), NOW)
    }

    #[test]
    fn deadlines_are_read() {
        for (name, value, left) in [
            ("grpc-timeout", "250m", Nanos::from_millis(250)),
            ("grpc-timeout", "1H", Nanos::from_secs(3600)),
            ("grpc-timeout", "99999999n", Nanos(99_999_999)),
            ("grpc-timeout", "99999999H", Nanos::from_secs(99_999_999 * 3600)),
            ("x-deadline", "250", Nanos::from_millis(250)),
            ("x-deadline", " 1.5s", Nanos::from_millis(1_500)),
        ] {
            assert_eq!(of(name, value).map(|d| d.at), Some(NOW + left), "{name}: {value}");
        }
        for (name, value) in [
            ("grpc-timeout", ""),
            ("grpc-timeout", "m"),
            ("grpc-timeout", "100000000n"),
            ("grpc-timeout", "-1m"),
            ("grpc-timeout", "1s"),
            ("x-deadline", ""),
            ("x-deadline", "soon"),
            ("x-deadline", "99999999999999999999"),
            ("x-other", "1s"),
        ] {
            assert_eq!(of(name, value), None, "{name}: {value}");
        }
    }

    #[test]
    fn what_is_left_goes_on_in_the_same_form() {
        for (name, value, left) in [
            ("grpc-timeout", "2S", "1500000u"),
            ("grpc-timeout", "600m", "99999999n"),
            ("grpc-timeout", "99999999H", "99999999M"),
            ("x-deadline", "2000", "1500"),
            ("x-deadline", "2s", "1500000us"),
            ("x-deadline", "1ms", "0us"),
        ] {
            let later =
                if value == "600m" { NOW + Nanos(500_000_001) } else { NOW + Nanos::from_millis(500) };
            let mut headers = HeaderMap::new();
            of(name, value).unwrap().forward(&mut headers, later);
            assert_eq!(headers[name], left, "{name}: {value}");
        }
    }
}
