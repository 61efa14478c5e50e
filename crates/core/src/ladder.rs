//! The SLA ladder: what mean response time is owed at which arrival rate (Cataclysm, Eq. 1 and Table 1). More load may be
//! answered more slowly, so that more of it can be answered.

use crate::Nanos;

/// Mean response times by bands of the arrival rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// Upper ends of the bands, requests a second, rising, and what is owed below them.
    bands: Vec<(f64, Nanos)>,
    /// What is owed above the last.
    beyond: Nanos,
}

impl Ladder {
    /// `bands` are `(below, mean)`, by rising rates; `beyond` is owed above all of them.
    ///
    /// # Errors
    /// Rates that do not rise, and means that fall while the rates rise: the index of the band and what is wrong with it.
    pub fn new(bands: Vec<(f64, Nanos)>, beyond: Nanos) -> Result<Ladder, (usize, String)> {
        let mut last = (0.0, Nanos::ZERO);
        for (i, &(below, mean)) in bands.iter().enumerate() {
            if below.is_nan() || below <= last.0 {
                let before = match i {
                    0 => "zero".to_owned(),
                    _ => format!("{}/s, where the band before it ends: they overlap", last.0),
                };
                return Err((i, format!("{below}/s is not above {before}; write the bands by rising rates")));
            }
            if mean < last.1 {
                return Err((
                    i,
                    format!(
                        "{mean} is less than the {} of the band before it; more load is not answered faster",
                        last.1
                    ),
                ));
            }
            last = (below, mean);
        }
        if beyond < last.1 {
            return Err((
                bands.len(),
                format!(
                    "{beyond} is less than the {} of the band before it; more load is not answered faster",
                    last.1
                ),
            ));
        }
        Ok(Ladder { bands, beyond })
    }

    /// What is owed at this arrival rate in requests a second.
    pub fn owed_at(&self, per_s: f64) -> Nanos {
        let band = self.bands.partition_point(|&(below, _)| below <= per_s);
        self.bands.get(band).map_or(self.beyond, |&(_, mean)| mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    #[test]
    fn table_1() {
        let ladder = Ladder::new(vec![(1_000.0, S(1)), (10_000.0, S(2))], S(3)).unwrap();
        let owed = [0.0, 999.0, 1_000.0, 9_999.0, 10_000.0, 1e9].map(|rate| ladder.owed_at(rate));
        assert_eq!(owed, [S(1), S(1), S(2), S(2), S(3), S(3)]);
    }

    #[test]
    fn bands_that_overlap_or_promise_more_for_more_load_are_refused() {
        let index = |bands, beyond| Ladder::new(bands, beyond).unwrap_err().0;
        assert_eq!(index(vec![(1_000.0, S(1)), (1_000.0, S(2))], S(3)), 1);
        assert_eq!(index(vec![(1_000.0, S(2)), (2_000.0, S(1))], S(3)), 1);
        assert_eq!(index(vec![(f64::NAN, S(2))], S(3)), 0);
        assert_eq!(index(vec![(10.0, S(4))], S(3)), 1);
    }
}
