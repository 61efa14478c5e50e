//! Service-level objectives: the only thing a user must set.

use std::fmt;
use std::str::FromStr;

use crate::Nanos;

/// A percentile in thousandths of a per cent, so that `p99.9` is exact and comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentile(u32);

impl Percentile {
    /// The median.
    pub const P50: Percentile = Percentile(50_000);
    /// The 90th percentile.
    pub const P90: Percentile = Percentile(90_000);
    /// The 99th percentile.
    pub const P99: Percentile = Percentile(99_000);

    /// The share of values at or below it, in 0..1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }
}

/// Prints as the config writes it: `p50`, `p99.9`.
impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", f64::from(self.0) / 1_000.0)
    }
}
impl fmt::Debug for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses `p50`, `p99.9`: above p0, below p100, at most three decimals.
impl FromStr for Percentile {
    type Err = String;
    fn from_str(text: &str) -> Result<Percentile, String> {
        let wrong = || format!("`{text}` is not a percentile; write for example p50, p90 or p99.9");
        let number = text.strip_prefix('p').ok_or_else(wrong)?;
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let thousandths = (value * 1_000.0).round();
        if !(1.0..100_000.0).contains(&thousandths) {
            return Err(format!("`{text}` is out of range; a percentile lies between p0 and p100"));
        }
        Ok(Percentile(thousandths as u32))
    }
}

/// What of the response times an objective is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    /// So many of them are at or below it.
    Percentile(Percentile),
    /// Their mean (the SLA of Cataclysm, Eq. 1).
    Mean,
}

impl From<Percentile> for Statistic {
    fn from(percentile: Percentile) -> Statistic {
        Statistic::Percentile(percentile)
    }
}

/// Prints as the config writes it: `p50`, `mean`.
impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Percentile(percentile) => fmt::Display::fmt(percentile, f),
            Statistic::Mean => f.write_str("mean"),
        }
    }
}

/// Parses `mean`, and what [`Percentile`] does.
impl FromStr for Statistic {
    type Err = String;
    fn from_str(text: &str) -> Result<Statistic, String> {
        if text == "mean" { Ok(Statistic::Mean) } else { text.parse().map(Statistic::Percentile) }
    }
}

/// Response-time objectives of one class: any set of percentiles, in rising order, and then the mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    targets: Vec<(Statistic, Nanos)>,
}

impl Slo {
    /// An objective from percentiles, or the mean, and their limits.
    ///
    /// # Errors
    /// Where one comes twice, a limit is zero, or a higher percentile has a lower limit.
    pub fn new<S: Into<Statistic>>(targets: impl IntoIterator<Item = (S, Nanos)>) -> Result<Slo, String> {
        let mut targets: Vec<(Statistic, Nanos)> =
            targets.into_iter().map(|(statistic, limit)| (statistic.into(), limit)).collect();
        targets.sort_unstable_by_key(|&(statistic, _)| statistic);
        for &(p, limit) in &targets {
            if limit == Nanos::ZERO {
                return Err(format!("{p} is zero, which no request can meet; write a duration above zero"));
            }
        }
        for pair in targets.windows(2) {
            let [(low, low_limit), (high, high_limit)] = [pair[0], pair[1]];
            if low == high {
                return Err(format!("{low} is given twice"));
            }
            // What a mean may be beside percentiles depends on the distribution.
            if low_limit > high_limit && high != Statistic::Mean {
                return Err(format!(
                    "{low} = {low_limit} is above {high} = {high_limit}; raise {high} or lower {low}"
                ));
            }
        }
        Ok(Slo { targets })
    }

    /// Statistics and limits: percentiles in rising order, and then the mean.
    pub fn targets(&self) -> &[(Statistic, Nanos)] {
        &self.targets
    }

    /// The mean response time that is promised, if any is.
    pub fn mean(&self) -> Option<Nanos> {
        self.targets.iter().find(|(statistic, _)| *statistic == Statistic::Mean).map(|&(_, limit)| limit)
    }

    /// What one request is held to where its own size is known: the mean, or the highest percentile where none was promised.
    pub fn owed(&self) -> Option<Nanos> {
        self.mean().or(self.targets.last().map(|&(_, limit)| limit))
    }

    /// No objective at all: such a class is only bounded by `max_queue` and deadlines.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_read_and_print() {
        for text in ["p50", "p90", "p99.9", "p99.999"] {
            assert_eq!(text.parse::<Percentile>().unwrap().to_string(), text);
        }
        for bad in ["50", "p", "p0", "p100", "p-1", "pinf", "p+5"] {
            assert!(bad.parse::<Percentile>().is_err(), "{bad}");
        }
    }

    #[test]
    fn contradictory_objectives_are_refused() {
        let ms = Nanos::from_millis;
        assert!(Slo::new([(Percentile::P90, ms(50)), (Percentile::P50, ms(18))]).is_ok());
        assert!(
            Slo::new([(Percentile::P50, ms(60)), (Percentile::P90, ms(50))]).unwrap_err().contains("above")
        );
        assert!(Slo::new([(Percentile::P50, ms(60)), (Percentile::P50, ms(60))]).is_err());
        assert!(Slo::new([(Percentile::P50, ms(0))]).is_err());
    }

    #[test]
    fn a_mean_stands_beside_percentiles() {
        let ms = Nanos::from_millis;
        let slo = Slo::new([(Statistic::Mean, ms(30)), (Percentile::P90.into(), ms(50))]).unwrap();
        assert_eq!((slo.mean(), slo.owed()), (Some(ms(30)), Some(ms(30))));
        let percentiles = Slo::new([(Percentile::P50, ms(30)), (Percentile::P90, ms(50))]).unwrap();
        assert_eq!((percentiles.mean(), percentiles.owed()), (None, Some(ms(50))));
        assert_eq!(slo.targets()[0], (Percentile::P90.into(), ms(50)));
        assert_eq!("mean".parse::<Statistic>().unwrap().to_string(), "mean");
        assert!(Slo::new([(Statistic::Mean, ms(30)), (Statistic::Mean, ms(40))]).is_err());
    }
}
