//! How the controller learns the fleet: paths of requests from the spans that it is sent, and how busy services are from the metrics
//! that it asks for.
//!
//! ```text
//!  senders of spans --OTLP--> serve --> receiver --> otlp | json --> semantics --> ratecontrol::paths  --> Paths
//!  Prometheus, exporters, agents <--HTTP-- usage::ask  -->  query | exposition  -->  usage::board      --> Usage
//!                                                                       fleet: Topology and signals of ratecontrol <-'
//! ```
//!
//! It has a thread of its own, so that 200,000 spans a second hold up no decision. What it knows is looked at through channels that hold
//! the last of it: if it stops, what was known last stays.

pub mod fleet;
pub mod metrics;
pub mod page;
pub mod receiver;
pub mod usage;

mod json;
mod otlp;
mod reply;
mod semantics;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Class, HostPattern, Telemetry as Settings};
use plimsoll_ratecontrol::paths::{Learner, Limits, Paths};
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use receiver::{Counts, Receiver};
use serve::Endpoint;
use usage::Usage;

/// From one look at the traces that wait to the next, and how many of those from one publication to the next.
const TICK: Duration = Duration::from_millis(250);
const TICKS_SHOWN: u32 = 4;

/// What has been learnt from spans.
#[derive(Clone, Debug, Default)]
pub struct Learnt {
    /// The paths.
    pub paths: Paths,
    /// What became of messages.
    pub counts: Counts,
}

/// What is known of the fleet. It changes under one's eyes.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Paths, once a second.
    pub learnt: watch::Receiver<Arc<Learnt>>,
    /// How busy services are, whenever somebody answered.
    pub usage: watch::Receiver<Arc<Usage>>,
    /// Where spans are taken, with the ports where those were left open.
    pub listening: Vec<SocketAddr>,
}

/// Starts to learn what requests of these classes visit.
///
/// # Errors
/// Where an address cannot be listened on, or no thread started.
pub fn start(settings: &Settings, classes: &[Class]) -> Result<Telemetry, String> {
    let mut listeners = Vec::new();
    for address in &settings.listen.0 {
        let wrong = |error: std::io::Error| format!("cannot listen on {address} for spans: {error}");
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        listeners.push(listener);
    }
    let listening = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let (learnt, learnt_now) = watch::channel(Arc::default());
    let (usage, usage_now) = watch::channel(Arc::default());
    let settings = settings.clone();
    let matches = classes.iter().flat_map(|class| &class.matches);
    let hosts: Vec<HostPattern> = matches.filter_map(|of| of.host.clone()).collect();
    let work = move || {
        if let Err(error) = run(&settings, hosts, listeners, learnt, usage) {
            log::error!(error:%; "the fleet is no longer learnt");
        }
    };
    std::thread::Builder::new()
        .name("telemetry".to_owned())
        .spawn(work)
        .map_err(|error| format!("cannot start a thread for telemetry: {error}"))?;
    Ok(Telemetry { learnt: learnt_now, usage: usage_now, listening })
}

/// What is kept, as the settings say.
pub fn limits(settings: &Settings) -> Limits {
    Limits {
        open_spans: settings.open_spans as usize,
        wait: settings.wait,
        half_life: settings.half_life,
        forget: settings.forget,
        ..Limits::default()
    }
}

fn run(
    settings: &Settings,
    hosts: Vec<HostPattern>,
    listeners: Vec<TcpListener>,
    learnt: watch::Sender<Arc<Learnt>>,
    usage: watch::Sender<Arc<Usage>>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let longest = usize::try_from(settings.max_message.bytes).unwrap_or(usize::MAX);
        // A secret that senders do not know; nothing that is learnt depends on it.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), clock::wall().0);
        let learner = Learner::new(limits(settings), &settings.entries, seed);
        let receiver = Receiver::new(learner, longest).telling_apart(hosts);
        let receiver = Rc::new(RefCell::new(receiver));
        let endpoint = Rc::new(Endpoint::new(Rc::clone(&receiver), settings.token.clone(), longest));
        for listener in listeners {
            tokio::task::spawn_local(
                Rc::clone(&endpoint).serve(tokio::net::TcpListener::from_std(listener)?),
            );
        }
        usage::ask::spawn(settings, usage);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0u32.. {
            ticks.tick().await;
            let now: Nanos = clock::now();
            let mut receiver = receiver.borrow_mut();
            receiver.learner.tick(now);
            if tick % TICKS_SHOWN == 0 {
                learnt.send_replace(Arc::new(Learnt {
                    paths: receiver.learner.paths(),
                    counts: receiver.counts,
                }));
            }
        }
        Ok(())
    })
}
