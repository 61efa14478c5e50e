//! Becoming the controller that acts, and hearing when that is over.
//!
//! | seat | who has it | until |
//! | --- | --- | --- |
//! | `file` | whoever holds the lock on a file, of the controllers of one state directory | its process ends |
//! | `etcd` | whoever holds a key with a lease, of the controllers of one prefix | it cannot renew the lease in time |
//!
//! Either says a revision, higher than that of everybody who has had the seat before: what is still said by one of those is known to be
//! out of date.

mod estate;
pub mod file;

#[cfg(feature = "etcd")]
mod election;
#[cfg(feature = "etcd")]
mod etcd;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::Controller;
use plimsoll_rlqs::Tenure;
use plimsoll_sentry::clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::status::Leadership;

/// From one try for the file to the next.
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

/// Requests a second that may enter, by class; a class that has no limit is not there.
pub type Limits = BTreeMap<String, f64>;

/// Without what is no rate: what was left may have been written by anybody.
fn sound(mut limits: Limits) -> Limits {
    limits.retain(|_, per_s| per_s.is_finite() && *per_s >= 0.0);
    limits
}

/// What the leader before has left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estate {
    /// What was allowed to enter.
    pub limits: Limits,
    /// When that was last seen.
    pub seen: Nanos,
}

/// A time of leading.
#[derive(Clone, Debug)]
pub struct Term {
    /// Higher than that of everybody who has led before.
    pub revision: u64,
    /// For how long.
    pub tenure: Tenure,
    /// What it begins with, where somebody has led shortly before.
    pub estate: Option<Estate>,
    /// What it leaves to whoever comes next, which is told by and by.
    pub leaves: watch::Sender<Limits>,
}

/// Where leaders sit, one at a time.
pub enum Seat {
    /// Of one host.
    File {
        /// Where the file is.
        state: PathBuf,
        /// Once it is held.
        lease: Option<file::Lease>,
        /// What its holder leaves.
        left: Option<watch::Receiver<Limits>>,
    },
    /// Of several.
    #[cfg(feature = "etcd")]
    Etcd(etcd::Seat),
}

impl Seat {
    /// As the config says.
    ///
    /// # Errors
    /// Where there can be none, in words for the operator.
    pub fn of(settings: &Controller) -> Result<Seat, String> {
        match &settings.etcd {
            None => {
                let state = settings.state.clone();
                file::make_directory(&state).map_err(|error| format!("{}: {error}", state.display()))?;
                Ok(Seat::File { state, lease: None, left: None })
            }
            #[cfg(feature = "etcd")]
            Some(settings) => Ok(Seat::Etcd(etcd::Seat::new(settings)?)),
            #[cfg(not(feature = "etcd"))]
            Some(_) => {
                Err("[controller.etcd]: this build has no etcd; build with `--features etcd`".to_owned())
            }
        }
    }

    /// Whether those who stand by do so on hosts of their own, so that each has its own addresses to listen on.
    pub fn is_shared(&self) -> bool {
        !matches!(self, Seat::File { .. })
    }

    /// Waits until it is ours.
    ///
    /// # Errors
    /// Where it cannot be had at all, in words for the operator.
    pub async fn take(&mut self) -> Result<Term, String> {
        match self {
            Seat::File { state, lease, left } => {
                let taken = wait_for_file(state).await?;
                let revision = lease.insert(taken).revision;
                let (leaves, heard) = watch::channel(Limits::new());
                *left = Some(heard);
                let estate = estate::read(state, clock::wall(), clock::now());
                Ok(Term { revision, tenure: Tenure::for_ever(), estate, leaves })
            }
            #[cfg(feature = "etcd")]
            Seat::Etcd(seat) => seat.take().await,
        }
    }

    /// Until this term is over. Meanwhile what its leader leaves is written down.
    pub async fn lost(&mut self, term: &Term) {
        match self {
            Seat::File { state, left, .. } => {
                let _ = term;
                if let Some(left) = left {
                    estate::keep(state, left).await;
                }
                std::future::pending().await
            }
            #[cfg(feature = "etcd")]
            Seat::Etcd(seat) => seat.lost(term).await,
        }
    }

    /// Leaves it to whoever stands by, at once. Only after everything that acts has ended.
    pub async fn leave(self) {
        match self {
            Seat::File { .. } => {}
            #[cfg(feature = "etcd")]
            Seat::Etcd(seat) => seat.leave().await,
        }
    }

    /// Who leads, as far as this one knows, from now on. Nothing changes any more where it is a file.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        match self {
            Seat::File { lease, .. } => {
                let revision = lease.as_ref().map(|lease| lease.revision);
                let leads = revision.is_some();
                watch::channel(Leadership { by: "file", leads, revision, ..Leadership::default() }).1
            }
            #[cfg(feature = "etcd")]
            Seat::Etcd(seat) => seat.leadership(),
        }
    }
}

async fn wait_for_file(state: &std::path::Path) -> Result<file::Lease, String> {
    let mut is_standby = false;
    loop {
        let wall_s = clock::wall().0 / 1_000_000_000;
        let taken = file::take(state, wall_s).map_err(|error| format!("{}: {error}", state.display()))?;
        if let Some(lease) = taken {
            if is_standby {
                log::info!("taking over");
            }
            return Ok(lease);
        }
        if !is_standby {
            is_standby = true;
            log::info!(state:% = state.display(); "standing by: another controller has the lease");
        }
        sleep(STANDBY).await;
    }
}

/// One more than the last, which the seat keeps. If somebody has deleted that, the clock knows better than to begin at one.
fn revision_after(last: Option<u64>, wall_s: u64) -> u64 {
    last.map_or(wall_s, |last| wall_s.max(last.saturating_add(1)))
}
