//! Numbers with units: durations, rates and sizes.

use std::fmt;
use std::str::FromStr;

use super::value::text;
use crate::Nanos;

/// How often something happens, per second. Written "20/s", "90/m" or "1000/h".
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate {
    /// Events a second: finite, not negative.
    pub per_s: f64,
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong =
            || format!("\"{text}\" is not a rate; write a number a unit of time, as in \"20/s\" or \"90/m\"");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let unit_s = match unit.trim() {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        if !(0.0..=1e12).contains(&number) {
            return Err(format!("\"{text}\" is out of range; a rate is between 0 and 1e12"));
        }
        Ok(Rate { per_s: number / unit_s })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.per_s)
    }
}

/// A number of bytes. Written "512B", "64KiB", "1MiB" or "2GiB".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// The bytes.
    pub bytes: u64,
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || {
            format!("\"{text}\" is not a size; write a whole number and B, KiB, MiB or GiB, as in \"64KiB\"")
        };
        let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(split);
        let shift = match unit {
            "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(wrong()),
        };
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("\"{text}\" is out of range"))?;
        Ok(Size { bytes })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.bytes > 0 && self.bytes.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.bytes >> shift),
            None => write!(f, "{}B", self.bytes),
        }
    }
}

text! {
    Nanos: "a duration", "18ms", { "pattern": r"^\s*[0-9.]+\s*(ns|us|ms|s|m|h)\s*$" }, str::parse;
    Rate: "a rate", "20/s", { "pattern": r"^\s*[0-9.]+\s*/\s*[smh]\s*$" }, str::parse;
    Size: "a size", "64KiB", { "pattern": r"^[0-9]+\s*([KMG]i)?B$" }, str::parse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_read_and_print() {
        for (text, per_s) in [("20/s", 20.0), ("90/m", 1.5), ("0/s", 0.0), ("3600 / h", 1.0)] {
            assert_eq!(text.parse::<Rate>().unwrap().per_s, per_s);
        }
        for (text, bytes) in [("64KiB", 65_536), ("0B", 0), ("3B", 3), ("2GiB", 2 << 30)] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes, size.to_string().as_str()), (bytes, text));
        }
        for bad in ["20", "/s", "-1/s", "nan/s", "inf/s", "1/d", ""] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        for bad in ["64", "64KB", "1.5MiB", "-1B", "99999999999GiB", ""] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
