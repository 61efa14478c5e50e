//! Further sentries: processes of this very program, on the same ports as the first, each with an admin address of its own.

use std::rc::Rc;
use std::sync::Arc;

use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Config, Ports};
use plimsoll_sentry::clock;
use tokio::sync::{Notify, Semaphore, watch};

use crate::actuator::Actuator;
use crate::process::{Processes, Spec};
use crate::provider::Traffic;
use crate::run::Options;

/// How long a sentry may take until it serves; what the sentry is held to itself.
const START: Nanos = Nanos::from_secs(10);
/// What it takes to end beside draining.
const MARGIN: Nanos = Nanos::from_secs(5);

/// How long a sentry may take to end: it drains when it is asked to end.
pub fn stop_timeout(config: &Config) -> Nanos {
    config.sentry.drain_timeout + MARGIN
}

/// Who starts and returns them, the youngest first.
///
/// # Errors
/// Where it cannot be set up, in words for the operator.
pub fn actuator(
    options: &Options,
    ports: Ports,
    traffic: watch::Receiver<Traffic>,
    changed: Rc<Notify>,
) -> Result<Actuator, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let (program, file) = (program.display().to_string(), options.config_file.display().to_string());
    let admin = "127.0.0.1:{port}";
    let command = [&*program, "sentry", "--config", &*file, "--admin", admin].map(str::to_owned);
    let spec = Spec {
        name: "sentries".to_owned(),
        command: command.into(),
        ports: ports.iter().collect(),
        ready: Some(PathAndQuery::from_static("/readyz")),
        most: ports.count(),
        start_timeout: START,
        // It drains by itself.
        drain_timeout: Nanos::ZERO,
        stop_timeout: stop_timeout(&options.config),
    };
    let directory = options.config.controller.state.join("sentries");
    let places = Arc::new(Semaphore::new(ports.count() as usize));
    let processes = Processes::open(spec, &directory, places, clock::now());
    let processes = processes.map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(Actuator::start("sentries".to_owned(), processes, traffic, changed))
}
