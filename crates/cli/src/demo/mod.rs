//! `plimsoll demo`: a surge on a server without and with the load line ([`surge`]), the same on a fleet of services ([`fleet`]), a flash
//! crowd on a whole platform ([`crowd`]), or somebody who holds what everybody needs, without and with the agent ([`culprit`]).

mod crowd;
mod culprit;
mod fleet;
mod screen;
mod surge;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::mix::Mix;
use plimsoll_loadgen::{HttpVersion, Plan, Rate};
use plimsoll_simulator::figures::Figure;
use tokio::signal::unix::{SignalKind, signal};

use crate::processes::{Page, uri};

/// Watch a surge with and without the load line, on a server or a fleet, a flash crowd, or a culprit with and without the agent
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A flash crowd on a whole platform instead: three classes of requests, and servers that come with the load and go with it. It
    /// takes twice the duration.
    #[arg(long)]
    crowd: bool,
    /// A surge on a shop of five services instead, on two copies side by side: requests enter the one as they come, the other as a
    /// controller says that its services can carry them.
    #[arg(long, conflicts_with = "crowd")]
    fleet: bool,
    /// Somebody who holds what everybody needs instead, on two servers side by side: one is left alone, one is watched by the agent.
    #[arg(long, conflicts_with_all = ["crowd", "fleet", "factor"])]
    culprit: bool,
    /// What the culprit holds up [default: PostgreSQL where there is one, else our own].
    #[arg(long, value_enum, requires = "culprit")]
    server: Option<culprit::Kind>,
    /// How long the surge or the crowd lasts, or all that is to be seen of a culprit.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    duration: Nanos,
    /// How many times its capacity the server is sent [default: 3, with --crowd 10]; with --fleet, how many times what comes in calm [default: 4].
    #[arg(long, value_name = "X", value_parser = parse_factor)]
    factor: Option<f64>,
    /// Fixes the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draws it into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Prints the outcome as JSON on stdout.
    #[arg(long)]
    json: bool,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.1..=20.0).contains(&factor) => Ok(factor),
        _ => Err(format!("`{text}` is not a factor; write a number from 0.1 to 20")),
    }
}

/// The two that stand beside each other, with what is shown and without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Without,
    With,
}

impl Side {
    const fn as_str(self) -> &'static str {
        match self {
            Side::Without => "without",
            Side::With => "with",
        }
    }
}

/// After this long a client gives up, as most do.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// How long the server is saturated to find its capacity, and how much of that is left out at the start.
const PROBE: Nanos = Nanos::from_secs(4);
const PROBE_WARM_UP: Nanos = Nanos::from_secs(1);

/// Runs the demo; Ctrl-C ends it and everything that it started.
pub fn run(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("plimsoll demo: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let perform = async {
        match &args {
            Args { culprit: true, .. } => culprit::perform(&args).await,
            Args { crowd: true, .. } => crowd::perform(&args).await,
            Args { fleet: true, .. } => fleet::perform(&args).await,
            _ => surge::perform(&args).await,
        }
    };
    let outcome = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        tokio::select! {
            result = perform => result.map(|()| ExitCode::SUCCESS),
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("plimsoll demo: {error}");
        ExitCode::FAILURE
    })
}

/// Saturates a server for a moment and counts what it serves a second.
async fn find_capacity(page: &Page, mix: Mix) -> Result<f64, String> {
    let rate = Rate::constant(2.0 * page.capacity_per_s);
    let mut plan = Plan::new(uri(page.addr), mix, rate, PROBE, HttpVersion::Http1);
    plan.timeout = PATIENCE;
    let (first, last) = (RefCell::new(None), RefCell::new(None));
    let run = plimsoll_loadgen::run(&plan, |progress| {
        let served = (progress.elapsed, progress.so_far().total.ok);
        if progress.elapsed >= PROBE_WARM_UP && progress.elapsed <= PROBE {
            first.borrow_mut().get_or_insert(served);
            *last.borrow_mut() = Some(served);
        }
        ControlFlow::Continue(())
    });
    // What is still queued when the probe ends is of no interest: the run is dropped, the server put aside.
    let _ = tokio::time::timeout(Duration::from(PROBE), run).await;
    match (first.into_inner(), last.into_inner()) {
        (Some((from, before)), Some((to, after))) if to > from && after > before => {
            Ok((after - before) as f64 / (to - from).as_secs_f64())
        }
        _ => Err("the web service answered nothing".to_owned()),
    }
}

/// Draws it where that was asked for.
fn draw(args: &Args, figure: &Figure) -> Result<(), String> {
    let Some(path) = &args.svg else { return Ok(()) };
    std::fs::write(path, figure.to_svg()).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// This program as one can call it from here.
fn program() -> String {
    let (Ok(program), Ok(here)) = (std::env::current_exe(), std::env::current_dir()) else {
        return "plimsoll".to_owned();
    };
    match program.strip_prefix(&here) {
        Ok(below) => format!("./{}", below.display()),
        Err(_) => program.display().to_string(),
    }
}
