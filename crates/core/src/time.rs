//! Time as the policies see it: nanoseconds since an origin that nobody may rely on.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// A point in time or a span of it, in nanoseconds. As a point its origin is arbitrary (a host uses its
/// start, the simulator zero); policies only ever compare and subtract.
///
/// Arithmetic saturates: an estimate that overflows is "for ever", never a small number.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, or an empty span.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than anything: about 584 years.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of whole microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }
    /// A span of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }
    /// A span of whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }
    /// A span in seconds; negative and NaN become zero, what is too long becomes [`Nanos::MAX`].
    pub fn from_secs_f64(s: f64) -> Nanos {
        Nanos((s * 1e9) as u64)
    }
    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The span in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// From `earlier` to here, zero where `earlier` is later: clocks of different cores may disagree a little.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}
impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}
impl From<Duration> for Nanos {
    fn from(d: Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}
impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Duration {
        Duration::from_nanos(n.0)
    }
}

/// In the largest unit that leaves a number of at least one, with at most three decimals: `18ms`, `1.5s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{}ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        // In whole numbers: refusals print durations, and floating-point formatting was 4 % of refusing.
        let thousandths = self.0.saturating_add(unit / 2_000) / (unit / 1_000);
        let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
        match rest {
            0 => write!(f, "{whole}{name}"),
            _ if rest % 100 == 0 => write!(f, "{whole}.{}{name}", rest / 100),
            _ if rest % 10 == 0 => write!(f, "{whole}.{:02}{name}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}{name}"),
        }
    }
}
impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses what the config calls a duration: a number and one of `ns us ms s m h`.
impl FromStr for Nanos {
    type Err = String;
    fn from_str(text: &str) -> Result<Nanos, String> {
        let wrong =
            || format!("`{text}` is not a duration; write a number and a unit, as in \"18ms\" or \"1.5s\"");
        let text = text.trim();
        let split = text.find(char::is_alphabetic).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(split);
        let unit_ns = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        if !number.is_finite() || number < 0.0 || number * unit_ns > 1e18 {
            return Err(format!("`{text}` is out of range; a duration is between 0 and 30 years"));
        }
        Ok(Nanos((number * unit_ns).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, ns) in [("18ms", 18_000_000), ("1.5s", 1_500_000_000), ("250us", 250_000), ("0s", 0)] {
            let parsed: Nanos = text.parse().unwrap();
            assert_eq!(parsed, Nanos(ns));
            assert_eq!(parsed.to_string(), text);
        }
        for (ns, text) in
            [(999, "999ns"), (1_005_000, "1.005ms"), (61_020_400, "61.02ms"), (999_999_999, "1000ms")]
        {
            assert_eq!(Nanos(ns).to_string(), text);
        }
        assert!(!Nanos::MAX.to_string().is_empty());
        assert_eq!("2m".parse::<Nanos>().unwrap(), Nanos::from_secs(120));
        assert_eq!("3µs".parse::<Nanos>().unwrap(), Nanos::from_micros(3));
        for bad in ["", "18", "ms", "-1s", "1 parsec", "nan s", "1e30s"] {
            assert!(bad.parse::<Nanos>().is_err(), "{bad}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
    }
}
