//! `plimsoll demo`: the same surge on the same server, without and with the load line, side by side.
//!
//! Two copies of `testbed pages` stand behind one sentry: requests that say so go to the first through a pool whose
//! admission is off, the others to the second through a pool that enforces. So the live page shows both,
//! and all that differs is the decision.

mod screen;
mod stage;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_loadgen::{HttpVersion, Plan, Rate, Report, Table};
use tokio::signal::unix::{SignalKind, signal};

use screen::Screen;
use stage::{ROUTES, SIDE_HEADER, Side, Stage};

/// Watch a surge with and without the load line
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long the surge lasts.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    duration: Nanos,
    /// How many times its capacity the server is sent.
    #[arg(long, value_name = "X", default_value_t = 3.0, value_parser = parse_factor)]
    factor: f64,
    /// Fixes the arrivals, the same for both sides.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draws the surge into this file.
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
    let outcome = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        tokio::select! {
            result = perform(&args) => result.map(|()| ExitCode::SUCCESS),
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("plimsoll demo: {error}");
        ExitCode::FAILURE
    })
}

async fn perform(args: &Args) -> Result<(), String> {
    eprintln!("Starting two copies of a small web service and a sentry in front of them ...");
    let stage = Stage::set().await?;
    let capacity = find_capacity(&stage).await?;
    eprintln!(
        "Its capacity is {capacity:.0} requests/s. Sending {} times that for {} to each copy.\n\
         The promise: half of the answers within {} ms, nine of ten within {} ms.\n\
         Both go through the sentry: `without` where its admission is off, `with` where it enforces, with an \
         allowance of {} a route.\n\
         Live page: {}\n",
        args.factor,
        args.duration,
        stage::P50_MS,
        stage::P90_MS,
        stage::ALLOWANCE,
        stage.live_page()
    );
    let screen = RefCell::new(Screen::new(args.duration));
    let rate = args.factor * capacity;
    let one = |side: Side| {
        let (plan, screen) = (plan(&stage, side, rate, args), &screen);
        async move {
            let plan = plan?;
            plimsoll_loadgen::run(&plan, |progress| {
                screen.borrow_mut().show(side, progress);
                ControlFlow::Continue(())
            })
            .await
        }
    };
    let (without, with) = tokio::try_join!(one(Side::Without), one(Side::With))?;
    let figure = screen.into_inner().finish();
    if let Some(path) = &args.svg {
        std::fs::write(path, figure.to_svg()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    report(args, capacity, &without, &with);
    Ok(())
}

/// Saturates the first copy for a moment and counts what it serves.
async fn find_capacity(stage: &Stage) -> Result<f64, String> {
    let mut plan = Plan::new(
        stage.bare_server(),
        mix(Side::Without)?,
        Rate::constant(2.0 * stage.stated_capacity()),
        PROBE,
        HttpVersion::Http1,
    );
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

fn plan(stage: &Stage, side: Side, rate: f64, args: &Args) -> Result<Plan, String> {
    let mut plan =
        Plan::new(stage.sentry(), mix(side)?, Rate::constant(rate), args.duration, HttpVersion::Http1);
    plan.timeout = PATIENCE;
    plan.seed = args.seed;
    Ok(plan)
}

fn mix(side: Side) -> Result<Mix, String> {
    let header = (HeaderName::from_static(SIDE_HEADER), HeaderValue::from_static(side.as_str()));
    let request = |route: &stage::Route| Request {
        name: route.name.to_owned(),
        method: Method::GET,
        path: PathAndQuery::from_static(route.path),
        share: route.share,
        body: String::new(),
        headers: vec![header.clone()],
        deadline: Some(Nanos::from_millis(stage::P90_MS)),
    };
    Ok(Mix { requests: ROUTES.iter().map(request).collect() })
}

fn report(args: &Args, capacity: f64, without: &Report, with: &Report) {
    if args.json {
        let outcome = serde_json::json!({
            "capacity_per_s": capacity, "factor": args.factor, "seed": args.seed,
            "without": without, "with": with,
        });
        println!("{outcome}");
    }
    let table = |side: Side, table: &Table| screen::outcome(side, table);
    eprint!("{}{}", table(Side::Without, &without.table), table(Side::With, &with.table));
    let program = program();
    let (bare, protected) = (without.table.total.goodput_per_s, with.table.total.goodput_per_s);
    eprintln!(
        "\nAnswered within their objective: {bare:.0}/s without, {protected:.0}/s with the load line.\n\
         \n\
         Next:\n  \
           {program} check plimsoll.toml              # the sample config in this repository\n  \
           {program} sentry --config plimsoll.toml    # in front of your own service\n  \
           {program} simulate paper/bouncer.toml --load 1.3 --policy bouncer --policy maxql,limit=400\n  \
           {program} simulate --replay access.csv     # the same on your own access log\n\
         docs/config.md has every key, ARCHITECTURE.md how it works."
    );
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
