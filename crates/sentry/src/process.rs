//! The worker process: from what the parent handed over to a data path that serves, and to its end.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plimsoll_core::config;

use crate::admin::Admin;
use crate::config_file::{self, Loaded};
use crate::control::{Control, SlotShare};
use crate::followed::Followed;
use crate::record::Recorder;
use crate::reload::{Reloader, Reloads};
use crate::state::Shared;
use crate::supervisor::handover::{Held, WorkerShare};
use crate::supervisor::kept_text::KeptText;
use crate::supervisor::slots_page::SlotsPage;
use crate::supervisor::sockets::Sockets;
use crate::supervisor::{Options, signals};
use crate::worker::{self, WorkerSetup, threads};

/// Serves until it is told to drain, and has.
pub fn run(options: &Options) -> ExitCode {
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!(error:%; "the worker ends");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(), String> {
    let system = |e: std::io::Error| e.to_string();
    signals::unblock().map_err(system)?;
    // It was started as /proc/self/exe, and `exe` is what ps and top would call it.
    let _ = nix::sys::prctl::set_name(c"plimsoll-worker");
    let WorkerShare { held, seat, restarts, channel } = WorkerShare::take()?;
    let Held { sockets, slots_page, last_good, put } = held;
    let last_good = KeptText::new(last_good);
    let Loaded { config, text, warnings } = load(options, &last_good)?;
    for warning in warnings {
        log::warn!(warning:%; "config");
    }
    last_good.store(&text).map_err(system)?;

    raise_descriptor_limit(&config.sentry);
    // Where a test wants to see the same twice, it replays a record, which has its own seed.
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let recorder = options.record.as_deref().and_then(|path| record(path, seed, &text));
    let loopback = sockets.admin.as_ref().is_none_or(|l| l.bound.ip().is_loopback());
    let (listeners, admin_listeners) = distribute(sockets, &config.sentry);
    let shared = Arc::new(Shared::new(config, listeners.len(), recorder.clone())?);
    if let Some(memory) = put {
        shared.keep_put(KeptText::new(memory));
    }
    let reloads = Arc::<Reloads>::default();
    let mut slots = SlotShare::new(SlotsPage::map(&slots_page).map_err(system)?, seat);
    // Before the first request: what the worker before still holds is not free.
    slots.exchange(&shared);
    let channel = UnixStream::from(channel);
    let control = Control {
        admin: Arc::new(Admin::new(Arc::clone(&shared), Arc::clone(&reloads), restarts, loopback)),
        admin_listeners,
        reloader: Reloader::new(
            Followed::new(options.config.clone(), text),
            Arc::clone(&shared),
            last_good,
            recorder,
            reloads,
        ),
        slots,
        parent: channel.try_clone().map_err(system)?,
        shared: Arc::clone(&shared),
    };
    control.start().map_err(system)?;
    let ready = Box::new(move || {
        // If the parent is gone the control thread notices.
        let _ = std::io::Write::write_all(&mut &channel, b"r");
    });
    worker::run(WorkerSetup { listeners, shared, seed, ready })?;
    log::info!("drained");
    Ok(())
}

/// A record that begins with this config. One that cannot be written must not keep a worker from serving.
fn record(path: &Path, seed: u64, config: &str) -> Option<Arc<Recorder>> {
    match Recorder::create(path, seed) {
        Ok(recorder) => {
            recorder.config(config);
            Some(recorder)
        }
        Err(error) => {
            log::error!(error:%; "this worker is not recorded");
            None
        }
    }
}

/// Allows as many descriptors as the system does, and says so where they will not do: two a client connection.
fn raise_descriptor_limit(config: &config::Sentry) {
    let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        log::warn!(error:%; "cannot raise the limit of open files");
    }
    let needed = u64::from(config.max_connections) * 2;
    if most < needed {
        log::warn!(limit = most, needed; "too few open files are allowed for max_connections");
    }
}

/// The config on disk, or else the last one that worked.
fn load(options: &Options, last_good: &KeptText) -> Result<Loaded, String> {
    let error = match config_file::load(&options.config) {
        Ok(loaded) => return Ok(loaded),
        Err(error) => error,
    };
    let Some(text) = last_good.load() else { return Err(error.to_string()) };
    error.log();
    log::error!("the config on disk cannot be used; going on with the last good one");
    let (config, warnings) = config_file::parse(&text, &options.config).map_err(|e| e.to_string())?;
    Ok(Loaded { config, text, warnings })
}

/// The sockets of the addresses that the config mentions, spread over the threads, and those of the admin address.
fn distribute(sockets: Sockets, config: &config::Sentry) -> (Vec<Vec<TcpListener>>, Vec<TcpListener>) {
    let threads = threads(config);
    let mut listeners: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    for address in &config.listen.0 {
        if !sockets.traffic.iter().any(|l| l.configured == *address) {
            log::error!(address:%; "this address of the config is not held by the parent, and so not served");
        }
    }
    for listener in sockets.traffic.into_iter().filter(|l| config.listen.0.contains(&l.configured)) {
        for (i, socket) in listener.sockets.into_iter().enumerate() {
            listeners[i % threads].push(socket.into());
        }
    }
    let admin = sockets.admin.into_iter().flat_map(|l| l.sockets).map(OwnedFd::into).collect();
    (listeners, admin)
}
