//! `plimsoll fleet`: a fleet of services under a controller, in simulated time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::sync::Arc;

use clap::Subcommand;
use plimsoll_core::Nanos;
use plimsoll_ratecontrol::Network;
use serde::Serialize;
use serde_json::json;

use crate::fleet::convergence::{self, convergence};
use crate::fleet::plan::Plan;
use crate::fleet::random::{self, Ranges};
use crate::fleet::report;
use crate::fleet::run::{Controller, run_with};
use crate::fleet::study::{Outcome, study};
use crate::fleet::text::to_toml;

/// Try rate control on a fleet of services, in simulated time
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario under a controller
    Run(RunArgs),
    /// Write the random fleet of a seed as a scenario
    Draw(DrawArgs),
    /// Compare controllers on many random fleets
    Study(StudyArgs),
    /// Train what `learned` goes by further, on a scenario
    Train(TrainArgs),
    /// See how soon controllers follow a surge, lost instances and new ones on random fleets
    Converge(ConvergeArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Services, APIs, and what is asked of them
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// model, learned, mimd, topfull-bw, breakwater, dagor or none
    #[arg(long, value_name = "NAME", default_value_t = Controller::Model)]
    controller: Controller,
    /// What `learned` has learnt, as `plimsoll fleet train` writes it [default: the weights that come with Plimsoll]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Of everything random; the same seed gives the same output
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct DrawArgs {
    /// Of the fleet
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// The 127 services of the TopFull paper's demo instead
    #[arg(long, conflicts_with = "seed")]
    trace_demo: bool,
}

#[derive(clap::Args)]
struct StudyArgs {
    /// How many fleets
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    fleets: u64,
    /// Of the first fleet; the next ones follow
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Only this one; may be repeated [default: all there are]
    #[arg(long = "controller", value_name = "NAME")]
    controllers: Vec<Controller>,
    /// What `learned` has learnt, as `plimsoll fleet train` writes it [default: the weights that come with Plimsoll]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// How long each run lasts
    #[arg(long, value_name = "DURATION", default_value_t = Nanos::from_secs(60))]
    duration: Nanos,
    /// How often controllers see the fleet
    #[arg(long, value_name = "DURATION", default_value_t = Nanos::from_millis(250))]
    signals: Nanos,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct TrainArgs {
    /// Services, APIs, and the most that is asked of them
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Where to write the weights
    #[arg(long, value_name = "FILE", default_value = "learned.safetensors")]
    out: PathBuf,
    /// The weights to begin with [default: those that come with Plimsoll]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// How many episodes of 50 steps
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    episodes: u64,
    /// Of everything random
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// A Python with the training package: the one that `training/run.sh --setup` names
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: PathBuf,
}

#[derive(clap::Args)]
struct ConvergeArgs {
    /// How many fleets
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    fleets: u64,
    /// Of the first fleet; the next ones follow
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Who decides; may be repeated [default: model]
    #[arg(long = "controller", value_name = "NAME")]
    controllers: Vec<Controller>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand; what the process should exit with.
pub fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Run(args) => run_one(&args),
        Command::Draw(args) => draw(&args),
        Command::Study(args) => run_study(&args),
        Command::Train(args) => train(&args),
        Command::Converge(args) => run_convergence(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run_one(args: &RunArgs) -> Result<(), String> {
    let plan = Arc::new(read(&args.scenario)?);
    let learned = read_weights(args.weights.as_deref())?;
    let report = run_with(&plan, args.controller, learned.as_ref(), args.seed)?;
    printed(if args.json { print_json(&report) } else { report::write_table(&report, io::stdout().lock()) })
}

fn read(file: &Path) -> Result<Plan, String> {
    let (plan, warnings) = Plan::read(file)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    Ok(plan)
}

fn read_weights(file: Option<&Path>) -> Result<Option<Network>, String> {
    let Some(file) = file else { return Ok(None) };
    let told = |why: String| format!("{}: {why}", file.display());
    let bytes = std::fs::read(file).map_err(|e| told(format!("cannot be read: {e}")))?;
    Network::read(&bytes).map(Some).map_err(told)
}

fn draw(args: &DrawArgs) -> Result<(), String> {
    let scenario =
        if args.trace_demo { random::trace_demo() } else { random::fleet(args.seed, &Ranges::default()) };
    printed(io::stdout().lock().write_all(to_toml(&scenario)?.as_bytes()))
}

fn run_study(args: &StudyArgs) -> Result<(), String> {
    let controllers = if args.controllers.is_empty() { &Controller::ALL[..] } else { &args.controllers };
    if args.duration < Nanos::from_secs(1) || args.signals < Nanos::from_millis(10) {
        return Err("a run lasts at least 1s, and controllers see the fleet every 10ms at most".to_owned());
    }
    let ranges = Ranges { duration: args.duration, signals: args.signals, ..Ranges::default() };
    let learned = read_weights(args.weights.as_deref())?;
    let runs = args.fleets * controllers.len() as u64;
    let progress = indicatif::ProgressBar::new(runs);
    let (learned, fleets) = (learned.as_ref(), args.fleets as usize);
    let outcomes = study(controllers, learned, args.seed, fleets, &ranges, || progress.inc(1));
    progress.finish_and_clear();
    let outcomes = outcomes?;
    printed(if args.json {
        print_json(&json!({ "fleets": args.fleets, "seed": args.seed, "controllers": outcomes }))
    } else {
        write_outcomes(&outcomes, io::stdout().lock())
    })
}

/// Training is Python's: see `training/`. It gets the weights to begin with on its standard input.
fn train(args: &TrainArgs) -> Result<(), String> {
    read(&args.scenario)?;
    let weights = match &args.weights {
        Some(file) => std::fs::read(file).map_err(|e| format!("{}: cannot be read: {e}", file.display()))?,
        None => Network::BASE.to_vec(),
    };
    let network = Network::read(&weights);
    network.map_err(|why| {
        format!("{}: {why}", args.weights.as_deref().unwrap_or(Path::new("base")).display())
    })?;
    let python = args.python.display();
    let absent = || {
        format!(
            "`{python}` has no plimsoll_training; run training/run.sh --setup in Plimsoll's sources, and write --python with what it says"
        )
    };
    let mut probe = process::Command::new(&args.python);
    let probe = probe.args(["-c", "import plimsoll_training"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Err(absent());
    }
    let mut training = process::Command::new(&args.python);
    training.args(["-m", "plimsoll_training", "specialise"]).arg(&args.scenario).arg("--out").arg(&args.out);
    training.args(["--episodes", &args.episodes.to_string(), "--seed", &args.seed.to_string()]);
    let mut training = training.stdin(Stdio::piped()).spawn().map_err(|_| absent())?;
    // One that ends before it has read them all says why itself.
    let _ = training.stdin.take().map(|mut stdin| stdin.write_all(&weights));
    let ended = training.wait().map_err(|e| format!("`{python}` was lost: {e}"))?;
    if ended.success() { Ok(()) } else { Err(format!("the training ended with {ended}")) }
}

fn write_outcomes(outcomes: &[Outcome], mut out: impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:10}  {:>10} {:>6}  {:>13}  {:>9}  {:>8} {:>6} {:>6}  {:>11}",
        "controller",
        "share mean",
        "5th",
        "goodput/opt.",
        "worst API",
        "steady s",
        "95th",
        "never",
        "overshoot s"
    )?;
    for outcome in outcomes {
        let Outcome { controller, share_of_optimum: share, worst_api_share: worst, .. } = outcome;
        let (converged, never) = (outcome.converged_s, outcome.never_steady);
        writeln!(
            out,
            "{controller:10}  {:>10.4} {:>6.4}  {:>13.4}  {:>9.4}  {:>8.2} {:>6.2} {never:>6}  {:>11.2}",
            share.mean,
            share.p5,
            outcome.goodput_of_optimum,
            worst.mean,
            converged.p50,
            converged.p95,
            outcome.overshoot_s.p95
        )?;
    }
    Ok(())
}

fn run_convergence(args: &ConvergeArgs) -> Result<(), String> {
    let controllers = if args.controllers.is_empty() { &[Controller::Model][..] } else { &args.controllers };
    let progress = indicatif::ProgressBar::new_spinner();
    let outcomes = convergence(controllers, args.seed, args.fleets as usize, || progress.inc(1));
    progress.finish_and_clear();
    let outcomes = outcomes?;
    printed(if args.json {
        print_json(&json!({ "fleets": args.fleets, "seed": args.seed, "outcomes": outcomes }))
    } else {
        write_convergence(&outcomes, args.fleets, io::stdout().lock())
    })
}

fn write_convergence(outcomes: &[convergence::Outcome], fleets: u64, mut out: impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:10}  {:10}  {:7}  {:>8} {:>6} {:>14} {:>6}  {:>11} {:>6} {:>12}  {:>6} {:>6}",
        "controller",
        "telemetry",
        "change",
        "steady s",
        "95th",
        "in time",
        "never",
        "overshoot s",
        "95th",
        "at most 1 s",
        "share",
        "5th"
    )?;
    for outcome in outcomes {
        let convergence::Outcome {
            controller, telemetry, change, within, within_s, never_steady, brief, ..
        } = outcome;
        let (steady, over, share) = (outcome.converged_s, outcome.overshoot_s, outcome.share_of_optimum);
        writeln!(
            out,
            "{controller:10}  {telemetry:10}  {change:7}  {:>8.2} {:>6.2} {:>14} {never_steady:>6}  {:>11.2} {:>6.2} {:>12}  {:>6.4} {:>6.4}",
            steady.p50,
            steady.p95,
            format!("{within}/{fleets} in {within_s} s"),
            over.p50,
            over.p95,
            format!("{brief}/{fleets}"),
            share.mean,
            share.p5,
        )?;
    }
    Ok(())
}

fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut stdout, value)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

fn printed(done: io::Result<()>) -> Result<(), String> {
    done.or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e.to_string()) })
}
