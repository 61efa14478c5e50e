//! `service = { ... }` of a simulated class: how long its requests take.

use std::path::PathBuf;

use crate::Nanos;
use crate::config::report::Report;
use crate::config::table::{choice, table};
use crate::config::value::{Derived, Node};

table! {
    /// A distribution of service times.
    pub struct ServiceTable {
        /// Which distribution.
        dist: Distribution,
        /// Its mean: that of the times themselves, not of their logarithm.
        mean: Option<Nanos> ["1ns"..="24h"] where dist = "lognormal" | "exponential" | "constant",
        /// The standard deviation of the logarithm.
        sigma: Option<f64> [0.0..=10.0] where dist = "lognormal",
        /// The shortest time.
        min: Option<Nanos> ["1ns"..="24h"] where dist = "pareto",
        /// The tail index; above 1, so that there is a mean.
        alpha: Option<f64> [1.001..=1000.0] where dist = "pareto",
        /// Times to draw from, each as likely.
        values: Option<Vec<Nanos>> where dist = "empirical",
        /// A file with one duration a line to draw from, each as likely; relative to this file.
        file: Option<PathBuf> where dist = "empirical",
    }
}

choice! {
    /// Which distribution.
    pub enum Distribution {
        /// Lognormal.
        Lognormal = "lognormal",
        /// Exponential.
        Exponential = "exponential",
        /// Always the same.
        Constant = "constant",
        /// Pareto.
        Pareto = "pareto",
        /// Drawn from given times.
        Empirical = "empirical",
    }
}

/// How long a request of a class takes, without waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Lognormal.
    Lognormal {
        /// The mean of the times themselves, not of their logarithm; above zero.
        mean: Nanos,
        /// The standard deviation of the logarithm; at least 0.
        sigma: f64,
    },
    /// Exponential.
    Exponential {
        /// Above zero.
        mean: Nanos,
    },
    /// Always the same.
    Constant {
        /// Above zero.
        mean: Nanos,
    },
    /// Pareto.
    Pareto {
        /// The shortest; above zero.
        min: Nanos,
        /// The tail index; above 1, so that there is a mean.
        alpha: f64,
    },
    /// Drawn from these, each as likely; never empty.
    Empirical {
        /// Above zero each.
        values: Vec<Nanos>,
    },
    /// Drawn from the lines of a file, one duration each.
    EmpiricalFile {
        /// As written; relative to the workload file.
        file: PathBuf,
    },
}

impl Service {
    /// The mean of the times; nothing where they are in a file.
    pub fn mean(&self) -> Option<Nanos> {
        Some(match self {
            Service::Lognormal { mean, .. } | Service::Exponential { mean } | Service::Constant { mean } => {
                *mean
            }
            Service::Pareto { min, alpha } => Nanos((min.0 as f64 * alpha / (alpha - 1.0)) as u64),
            Service::Empirical { values } => {
                Nanos((values.iter().map(|v| v.0 as f64).sum::<f64>() / values.len() as f64) as u64)
            }
            Service::EmpiricalFile { .. } => return None,
        })
    }
}

impl Derived for Service {
    type Written = ServiceTable;

    fn derive(written: ServiceTable, node: Node<'_>, report: &mut Report) -> Option<Service> {
        let ServiceTable { dist, mean, sigma, min, alpha, values, file } = written;
        let mut lacks = |keys: &str| node.fail(report, format!("dist = \"{dist}\" needs {keys}"));
        match (dist, values, file) {
            (Distribution::Lognormal, ..) => match (mean, sigma) {
                (Some(mean), Some(sigma)) => Some(Service::Lognormal { mean, sigma }),
                _ => lacks("`mean` and `sigma`; write for example mean = \"20ms\", sigma = 0.9"),
            },
            (Distribution::Exponential | Distribution::Constant, ..) => match mean {
                Some(mean) if dist == Distribution::Exponential => Some(Service::Exponential { mean }),
                Some(mean) => Some(Service::Constant { mean }),
                None => lacks("`mean`; write for example mean = \"20ms\""),
            },
            (Distribution::Pareto, ..) => match (min, alpha) {
                (Some(min), Some(alpha)) => Some(Service::Pareto { min, alpha }),
                _ => lacks("`min` and `alpha`; write for example min = \"2ms\", alpha = 1.5"),
            },
            (Distribution::Empirical, Some(values), None) => {
                if values.is_empty() || values.contains(&Nanos::ZERO) {
                    return lacks(
                        "values above zero, at least one; write for example values = [\"1ms\", \"5ms\"]",
                    );
                }
                Some(Service::Empirical { values })
            }
            (Distribution::Empirical, None, Some(file)) => Some(Service::EmpiricalFile { file }),
            (Distribution::Empirical, ..) => {
                lacks("either `values` or `file`; write for example values = [\"1ms\"]")
            }
        }
    }
}
