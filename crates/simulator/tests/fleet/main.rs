//! The fleet simulator, held to what can be known without it: sums, queueing theory, exhaustive search, and what the papers say.

mod account;
mod baselines;
mod files;
mod optimum;
mod queueing;
mod scaling;
mod traces;

use std::path::Path;
use std::sync::Arc;

use plimsoll_core::config::fleet::Scenario;
use plimsoll_core::config::parse;
use plimsoll_simulator::fleet::plan::Plan;

/// A scenario from its text.
fn scenario(text: &str) -> Scenario {
    parse::<Scenario>(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}")).0
}

/// The same, ready to run.
fn plan(text: &str) -> Arc<Plan> {
    Arc::new(Plan::new(&scenario(text), Path::new("")).unwrap())
}
