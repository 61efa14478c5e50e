//! How long requests take: samplers of service times.

use std::path::Path;

use plimsoll_core::config::workload::Service;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;
use rand_distr::{Exp1, StandardNormal};

/// Most durations that a file may hold.
const MAX_DURATIONS: usize = 10_000_000;

/// The service times of one class. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub enum ServiceTime {
    /// `e` to the power of a normal variable.
    Lognormal {
        /// That variable's mean.
        mu: f64,
        /// That variable's standard deviation.
        sigma: f64,
    },
    /// By its mean.
    Exponential(f64),
    /// Always the same.
    Constant(Nanos),
    /// A power of a uniform variable.
    Pareto {
        /// The shortest.
        min: f64,
        /// The tail index.
        alpha: f64,
    },
    /// Any of these, each as likely as another; never empty.
    Empirical(Vec<Nanos>),
}

impl ServiceTime {
    /// As the workload describes it. Files are relative to `directory`.
    ///
    /// # Errors
    /// Where a file of durations cannot be read: the file, the line and what to write instead.
    pub fn new(service: &Service, directory: &Path) -> Result<ServiceTime, String> {
        Ok(match service {
            Service::Lognormal { mean, sigma } => {
                ServiceTime::Lognormal { mu: (mean.0 as f64).ln() - sigma * sigma / 2.0, sigma: *sigma }
            }
            Service::Exponential { mean } => ServiceTime::Exponential(mean.0 as f64),
            Service::Constant { mean } => ServiceTime::Constant(*mean),
            Service::Pareto { min, alpha } => ServiceTime::Pareto { min: min.0 as f64, alpha: *alpha },
            Service::Empirical { values } => ServiceTime::Empirical(values.clone()),
            Service::EmpiricalFile { file } => ServiceTime::Empirical(read_durations(&directory.join(file))?),
        })
    }

    /// The mean of the distribution, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        match self {
            ServiceTime::Lognormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
            ServiceTime::Exponential(mean) => *mean,
            ServiceTime::Constant(value) => value.0 as f64,
            ServiceTime::Pareto { min, alpha } => min * alpha / (alpha - 1.0),
            ServiceTime::Empirical(values) => {
                values.iter().map(|v| v.0 as f64).sum::<f64>() / values.len() as f64
            }
        }
    }

    /// The same times, each longer by this factor.
    pub fn scaled(&self, factor: f64) -> ServiceTime {
        let nanos = |value: &Nanos| Nanos((value.0 as f64 * factor) as u64);
        match self {
            ServiceTime::Lognormal { mu, sigma } => {
                ServiceTime::Lognormal { mu: mu + factor.ln(), sigma: *sigma }
            }
            ServiceTime::Exponential(mean) => ServiceTime::Exponential(mean * factor),
            ServiceTime::Constant(value) => ServiceTime::Constant(nanos(value)),
            ServiceTime::Pareto { min, alpha } => ServiceTime::Pareto { min: min * factor, alpha: *alpha },
            ServiceTime::Empirical(values) => ServiceTime::Empirical(values.iter().map(nanos).collect()),
        }
    }

    /// Draws one; at least a nanosecond.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> Nanos {
        let ns = match self {
            ServiceTime::Lognormal { mu, sigma } => {
                let normal: f64 = rng.sample(StandardNormal);
                (mu + sigma * normal).exp()
            }
            ServiceTime::Exponential(mean) => {
                let unit: f64 = rng.sample(Exp1);
                mean * unit
            }
            ServiceTime::Constant(value) => return *value,
            // One minus a number below one is never zero.
            ServiceTime::Pareto { min, alpha } => min * (1.0 - rng.random::<f64>()).powf(-1.0 / alpha),
            ServiceTime::Empirical(values) => return values[rng.random_range(0..values.len())],
        };
        Nanos((ns as u64).max(1))
    }
}

fn read_durations(file: &Path) -> Result<Vec<Nanos>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| format!("{name}: cannot be read: {e}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut values = Vec::new();
    for (i, line) in lines {
        let value: Nanos = line.trim().parse().map_err(|e| format!("{name}:{}: {e}", i + 1))?;
        if value == Nanos::ZERO {
            return Err(format!("{name}:{}: a service time is above zero", i + 1));
        }
        if values.len() == MAX_DURATIONS {
            return Err(format!("{name}: holds more than {MAX_DURATIONS} durations; keep a sample of them"));
        }
        values.push(value);
    }
    if values.is_empty() {
        return Err(format!("{name}: is empty; write one duration a line, as in 12.5ms"));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::rng::seeded;

    const MEAN: Nanos = Nanos(10_000_000);

    fn sorted(service: &Service) -> (ServiceTime, Vec<u64>) {
        let time = ServiceTime::new(service, Path::new("")).unwrap();
        let mut rng = seeded(1, 0);
        let mut drawn: Vec<u64> = (0..400_000).map(|_| time.sample(&mut rng).0).collect();
        drawn.sort_unstable();
        (time, drawn)
    }

    fn assert_near(got: f64, expected: f64, tolerance: f64, what: &str) {
        assert!((got / expected - 1.0).abs() < tolerance, "{what}: {got} instead of {expected}");
    }

    /// Mean and percentiles against the closed forms.
    #[test]
    fn distributions_are_what_they_say() {
        let cases = [
            (Service::Lognormal { mean: MEAN, sigma: 0.92 }, [(0.5, 6_549_217.0), (0.9, 21_293_000.0)]),
            (Service::Exponential { mean: MEAN }, [(0.5, 6_931_472.0), (0.9, 23_025_851.0)]),
            (Service::Pareto { min: MEAN, alpha: 3.0 }, [(0.5, 12_599_210.0), (0.9, 21_544_347.0)]),
        ];
        for (service, percentiles) in cases {
            let (time, drawn) = sorted(&service);
            let mean = drawn.iter().map(|&v| v as f64).sum::<f64>() / drawn.len() as f64;
            assert_near(mean, time.mean_ns(), 0.01, &format!("{service:?}: mean"));
            for (fraction, expected) in percentiles {
                let got = drawn[(fraction * drawn.len() as f64) as usize] as f64;
                assert_near(got, expected, 0.01, &format!("{service:?}: {fraction}"));
            }
        }
        let (_, drawn) = sorted(&Service::Constant { mean: MEAN });
        assert_eq!((drawn[0], drawn[drawn.len() - 1]), (MEAN.0, MEAN.0));
    }

    #[test]
    fn scaling_scales_every_draw() {
        for service in [
            ServiceTime::Lognormal { mu: 16.0, sigma: 0.9 },
            ServiceTime::Exponential(1e7),
            ServiceTime::Constant(MEAN),
            ServiceTime::Pareto { min: 1e7, alpha: 2.0 },
            ServiceTime::Empirical(vec![MEAN, Nanos(3 * MEAN.0)]),
        ] {
            let longer = service.scaled(1.5);
            assert_near(longer.mean_ns(), 1.5 * service.mean_ns(), 1e-6, "mean");
            let (mut rng, mut same) = (seeded(1, 0), seeded(1, 0));
            let (drawn, expected) = (longer.sample(&mut rng).0 as f64, service.sample(&mut same).0 as f64);
            assert_near(drawn, 1.5 * expected, 1e-6, "a draw");
        }
    }

    #[test]
    fn values_are_drawn_evenly() {
        let values = vec![Nanos(5), Nanos(7), Nanos(7), Nanos(9)];
        let (time, drawn) = sorted(&Service::Empirical { values });
        assert_near(time.mean_ns(), 7.0, 1e-9, "mean");
        let share = |value| drawn.iter().filter(|&&v| v == value).count() as f64 / drawn.len() as f64;
        assert_near(share(5), 0.25, 0.02, "5");
        assert_near(share(7), 0.5, 0.02, "7");
    }

    #[test]
    fn a_file_of_durations_says_which_line_is_wrong() {
        let directory = std::env::temp_dir().join(format!("plimsoll-durations-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let read = |text: &str| {
            std::fs::write(directory.join("times"), text).unwrap();
            ServiceTime::new(&Service::EmpiricalFile { file: "times".into() }, &directory)
        };
        assert_eq!(read("1ms\n\n3ms\n").unwrap().mean_ns(), 2e6);
        assert!(read("1ms\nfast\n").unwrap_err().contains("times:2: `fast`"));
        assert!(read("0s\n").unwrap_err().contains("above zero"));
        assert!(read("\n").unwrap_err().contains("is empty"));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(read_durations(&directory.join("times")).unwrap_err().contains("cannot be read"));
    }
}
