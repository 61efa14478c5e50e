//! Further sentries: processes of this very program, on the same ports as the first, each with an admin address of its own.
//!
//! Requests reach a new one as soon as it listens, so it begins with its share, and it is started only when all others know that
//! it is not theirs any more.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Config, Ports};
use plimsoll_sentry::clock;
use plimsoll_sentry::share::Share;
use tokio::sync::{Notify, Semaphore, watch};

use crate::actuator::Actuator;
use crate::process::{Processes, Spec};
use crate::provider::Traffic;
use crate::run::Options;

/// How long a sentry may take until it serves; what the sentry is held to itself.
const START: Nanos = Nanos::from_secs(10);
/// What it takes to end beside draining.
const MARGIN: Nanos = Nanos::from_secs(5);

/// The share that the next sentry begins with, once it can be told. Good for one.
#[derive(Clone, Debug, Default)]
pub struct NextShare(Rc<Cell<Option<Share>>>);

impl NextShare {
    /// All others have left this share, or none is left any more.
    pub fn set(&self, share: Option<Share>) {
        self.0.set(share);
    }

    /// Whoever takes it starts a sentry with it.
    pub fn take(&self) -> Option<Share> {
        self.0.take()
    }
}

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
    next_share: NextShare,
    traffic: watch::Receiver<Traffic>,
    changed: Rc<Notify>,
) -> Result<Actuator, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let (program, file) = (program.display().to_string(), options.config_file.display().to_string());
    let admin = "127.0.0.1:{port}";
    let command = [&*program, "sentry", "--config", &*file, "--admin", admin, "--share", "{share}"];
    let spec = Spec {
        name: "sentries".to_owned(),
        command: command.map(str::to_owned).into(),
        ports: ports.iter().collect(),
        ready: Some(PathAndQuery::from_static("/readyz")),
        most: ports.count(),
        start_timeout: START,
        // It drains by itself.
        drain_timeout: Nanos::ZERO,
        stop_timeout: stop_timeout(&options.config),
        sentries: Some(next_share),
    };
    let directory = options.config.controller.state.join("sentries");
    let places = Arc::new(Semaphore::new(ports.count() as usize));
    let processes = Processes::open(spec, &directory, places, clock::now());
    let processes = processes.map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(Actuator::start("sentries".to_owned(), processes, traffic, changed))
}
