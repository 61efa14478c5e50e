//! Becoming the one controller, or being told to end before.

use std::path::Path;
use std::time::Duration;

use plimsoll_sentry::clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::lease::{self, Lease};

/// From one try for the lease to the next.
const STANDBY: Duration = Duration::from_secs(1);

/// The signals that end it.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches them from here on.
    ///
    /// # Errors
    /// Where that cannot be.
    pub fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Until one comes.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits for the lease; nothing where it is told to end before.
///
/// # Errors
/// Where there can be none, in words for the operator.
pub async fn lead(state: &Path, signals: &mut Signals) -> Result<Option<Lease>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", state.display());
    lease::make_directory(state).map_err(wrong)?;
    let mut is_standby = false;
    loop {
        let wall_s = clock::wall().0 / 1_000_000_000;
        if let Some(lease) = lease::take(state, wall_s).map_err(wrong)? {
            if is_standby {
                log::info!("taking over");
            }
            return Ok(Some(lease));
        }
        if !is_standby {
            is_standby = true;
            log::info!(state:% = state.display(); "standing by: another controller has the lease");
        }
        tokio::select! {
            () = sleep(STANDBY) => {}
            () = signals.wait() => return Ok(None),
        }
    }
}
