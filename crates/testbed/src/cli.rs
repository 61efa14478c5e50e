//! `plimsoll testbed`: the command line of the testbed systems.

use std::io;
use std::process::ExitCode;

use plimsoll_core::Nanos;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::pages;
use crate::server::Server;

/// Run a small real system to overload
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    system: System,
}

#[derive(Debug, clap::Subcommand)]
enum System {
    /// A web service with cheap, middling and heavy routes in front of a pool of workers.
    Pages {
        #[command(flatten)]
        options: pages::Options,
        /// Prints one JSON line on stdout when ready.
        #[arg(long)]
        json: bool,
    },
}

/// Runs until SIGINT or SIGTERM. Fails where the system cannot start, or ended by itself.
pub fn run(args: Args) -> ExitCode {
    let result = match args.system {
        System::Pages { options, json } => run_pages(options, json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_pages(options: pages::Options, json: bool) -> io::Result<()> {
    let cpus = if options.cpu.is_some() { 1 } else { std::thread::available_parallelism()?.get() };
    let capacity_per_s = options.capacity_per_s(&pages::MIX, cpus);
    let (workers, work) = (options.workers, options.work.as_str());
    let costs = pages::Route::ALL.map(|route| (route.as_str(), options.cost(route)));
    until_told(|| {
        let server = pages::start(options)?;
        let addr = server.addr();
        if json {
            let service_ms = costs.map(|(name, cost)| (name.to_owned(), Nanos::as_millis_f64(cost).into()));
            let ready = json!({
                "ready": "pages", "addr": addr.to_string(), "workers": workers, "work": work,
                "service_ms": serde_json::Map::from_iter(service_ms), "capacity_per_s": capacity_per_s,
            });
            println!("{ready}");
        }
        let costs = costs.map(|(name, cost)| format!("/{name} {cost}")).join(", ");
        eprintln!(
            "pages on http://{addr}: {workers} workers ({work}), {costs}; \
             about {capacity_per_s:.0}/s of the 50/30/20 mix"
        );
        Ok(server)
    })
}

/// Serves until a signal, then drains. Signals are caught from before the start, so that none falls between.
fn until_told(start: impl FnOnce() -> io::Result<Server>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut server = start()?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = server.ended() => return Err(io::Error::other("the server has ended")),
        }
        server.stop();
        Ok(())
    })
}
