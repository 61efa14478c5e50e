//! WORKLOAD.toml: what the simulator offers to a policy.

use std::path::PathBuf;

use super::table::table;
use crate::{Nanos, Slo};

table! {
    /// The simulated server.
    pub struct Engine {
        /// Requests that are worked on at once.
        processes: u32 [1..=100000] = 100,
        /// Requests that wait at most, whatever the policy thinks.
        max_queue: u32 [1..=1000000] = 800,
    }
}

/// What the simulator offers to a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The simulated server.
    pub engine: Engine,
    /// How requests come.
    pub arrivals: Arrivals,
    /// The classes with a share, in the order of the file; their shares sum to 1.
    pub classes: Vec<WorkloadClass>,
    /// The objective of a class that was never seen: that of `[class.default]`, else the loosest of all.
    pub default_slo: Slo,
}

/// A class of simulated requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadClass {
    /// The NAME in its header.
    pub name: String,
    /// Of all requests, above 0 and at most 1.
    pub share: f64,
    /// How long one takes.
    pub service: Service,
    /// Its objective.
    pub slo: Slo,
}

/// How long a request of a class takes, without waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Lognormal.
    Lognormal {
        /// The mean of the distribution itself, not of its logarithm; above zero.
        mean: Nanos,
        /// The standard deviation of its logarithm; at least 0.
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
    /// Drawn evenly from these; never empty.
    Empirical {
        /// Above zero each.
        values: Vec<Nanos>,
    },
    /// Drawn evenly from the lines of a file, one duration each.
    EmpiricalFile {
        /// As written; relative to the workload file.
        file: PathBuf,
    },
}

/// How requests come, relative to the load of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// At a constant rate, each independent of the others.
    Poisson,
    /// Poisson at a rate that switches; the mean over both phases is the load.
    OnOff {
        /// Length of the busy phase, with which the run starts; above zero.
        on: Nanos,
        /// Length of the other one; above zero.
        off: Nanos,
        /// The busy rate, as a multiple of the mean: from 1 to `(on + off) / on`.
        burst: f64,
    },
    /// Poisson at a rate that follows a table of start times and multiples of the load.
    Schedule(
        /// Rising, the first at zero; the last holds to the end.
        Vec<(Nanos, f64)>,
    ),
}
