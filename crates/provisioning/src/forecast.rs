//! What will arrive: level, trend and season, each smoothed (Holt and Winters, additive, the trend damped). The paper leaves its
//! prediction out (Cataclysm, section 4.1); this is the plainest method that knows a day from a night.
//!
//! Until a whole season was seen there is none, and the trend alone leads the way.

/// How fast the level follows,
const LEVEL: f64 = 0.4;
/// the trend,
const TREND: f64 = 0.1;
/// and the season, which comes round once in its length.
const SEASON: f64 = 0.3;
/// What a trend is worth one step later: nothing rises for ever.
const DAMPING: f64 = 0.9;
/// How fast the usual error follows,
const ERROR: f64 = 0.1;
/// and what counts of one that is not usual: so many times the usual, or that share of the level. A crowd that nobody could foresee
/// tells nothing of how well the rest is foreseen.
const UNUSUAL: (f64, f64) = (3.0, 0.1);

/// A forecast of evenly spaced samples of a rate, in whatever unit.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// What each sample of the season adds to the level; while the first one lasts, the samples themselves.
    season: Vec<f64>,
    length: usize,
    /// Samples so far.
    seen: usize,
    level: f64,
    trend: f64,
    /// Mean absolute error of what was forecast one step ahead, outliers cut off.
    error: f64,
}

impl Forecast {
    /// With a season of so many samples; fewer than two are none.
    pub fn new(season: usize) -> Forecast {
        let length = if season < 2 { 0 } else { season };
        Forecast { season: Vec::with_capacity(length), length, seen: 0, level: 0.0, trend: 0.0, error: 0.0 }
    }

    /// The next sample. What cannot be is taken for what was expected, so that the season stays in step.
    pub fn observe(&mut self, value: f64) {
        let expected = self.ahead(1);
        let value = if value.is_finite() && value >= 0.0 { value } else { expected };
        let phase = self.phase(1);
        if self.seen == 0 {
            self.level = value;
        } else {
            let most = f64::max(UNUSUAL.0 * self.error, UNUSUAL.1 * self.level);
            self.error += ERROR * ((value - expected).abs().min(most) - self.error);
        }
        let (before, seasonal) = (self.level, self.seasonal(phase));
        self.level = LEVEL * (value - seasonal) + (1.0 - LEVEL) * (self.level + DAMPING * self.trend);
        self.trend = TREND * (self.level - before) + (1.0 - TREND) * DAMPING * self.trend;
        if self.has_season() {
            self.season[phase] = SEASON * (value - self.level) + (1.0 - SEASON) * self.season[phase];
        } else if self.length > 0 {
            self.season.push(value);
            if self.season.len() == self.length {
                self.begin_season();
            }
        }
        self.seen += 1;
    }

    /// The value expected `steps` samples from now, not below zero.
    pub fn ahead(&self, steps: usize) -> f64 {
        let steps = steps.max(1);
        // The sum of the damped trend over the steps.
        let trend = self.trend * DAMPING * (1.0 - DAMPING.powi(steps as i32)) / (1.0 - DAMPING);
        (self.level + trend + self.seasonal(self.phase(steps))).max(0.0)
    }

    /// How far off a forecast of one step usually is.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Where in the season the sample is that comes so many from now.
    fn phase(&self, steps: usize) -> usize {
        (self.seen + steps - 1) % self.length.max(1)
    }

    fn has_season(&self) -> bool {
        self.length > 0 && self.seen >= self.length
    }

    fn seasonal(&self, phase: usize) -> f64 {
        if self.has_season() { self.season[phase] } else { 0.0 }
    }

    /// The first season is over: its mean is the level, the rest is the season. What it rose by is no trend.
    fn begin_season(&mut self) {
        self.level = self.season.iter().sum::<f64>() / self.length as f64;
        self.trend = 0.0;
        self.season.iter_mut().for_each(|value| *value -= self.level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(i: usize) -> f64 {
        100.0 + 80.0 * (i as f64 / 48.0 * std::f64::consts::TAU).sin()
    }

    #[test]
    fn the_second_day_is_known_from_the_first() {
        let mut forecast = Forecast::new(48);
        (0..48).for_each(|i| forecast.observe(day(i)));
        for i in 48..192 {
            for steps in 1..6 {
                let (got, due) = (forecast.ahead(steps), day(i + steps - 1));
                assert!((got - due).abs() < 1.0, "{i}+{steps}: {got} {due}");
            }
            forecast.observe(day(i));
        }
        assert!(forecast.error() < 0.1, "{}", forecast.error());
    }

    #[test]
    fn a_load_without_a_season_has_none_after_the_first_day_either() {
        let mut forecast = Forecast::new(48);
        for i in 0..200 {
            forecast.observe(411.0);
            assert!((forecast.ahead(1) - 411.0).abs() < 1e-6, "{i}: {}", forecast.ahead(1));
        }
    }

    #[test]
    fn without_a_season_a_rise_is_followed_and_not_for_ever() {
        let mut forecast = Forecast::new(0);
        (0..60).for_each(|i| forecast.observe(10.0 * i as f64));
        let (next, far) = (forecast.ahead(1), forecast.ahead(1_000));
        assert!((next - 600.0).abs() < 30.0, "{next}");
        assert!(far < 1_000.0, "{far}");
    }

    #[test]
    fn nonsense_is_left_out_and_nothing_is_expected_below_zero() {
        let mut forecast = Forecast::new(4);
        [5.0, f64::NAN, -3.0, f64::INFINITY].into_iter().for_each(|v| forecast.observe(v));
        assert!((forecast.ahead(1) - 5.0).abs() < 1e-9);
        (0..20).for_each(|_| forecast.observe(0.0));
        assert!(forecast.ahead(3) >= 0.0 && forecast.ahead(1) < 0.1);
    }
}
