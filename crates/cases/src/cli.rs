//! `plimsoll case`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use plimsoll_core::Nanos;
use plimsoll_core::config::case::{CaseFile, Switch};
use tokio::signal::unix::{SignalKind, signal};

use crate::judge::judge;
use crate::run::{Plan, Remedy, run as run_once};
use crate::show::Report;
use crate::stand::Stand;
use crate::{catalog, judge};

/// Overload a real server, and see what each remedy does
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say which cases there are.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a case: undisturbed first, then with each remedy, each on a server of its own.
    ///
    /// It installs nothing, and says which package is missing. The server is private, on loopback and in a directory for temporary
    /// files, and ends with this command. Fails if the agent ends anybody but the culprit, or does not end that one.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Its name.
    case: String,
    /// What to do about it: all, or none and plimsoll where it is to be quick.
    #[arg(long, value_enum, value_delimiter = ',')]
    remedy: Vec<Remedy>,
    /// How long a run is; the culprit comes after a quarter of it, ten seconds at most.
    #[arg(long, default_value = "20s")]
    length: Nanos,
    /// Eight seconds a run.
    #[arg(long, conflicts_with = "length")]
    quick: bool,
    /// Decides what comes and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only JSON, on the standard output.
    #[arg(long)]
    json: bool,
    /// Writes CASE.json and CASE.svg into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs it; Ctrl-C ends it and everything that it started.
pub fn run(args: Args) -> ExitCode {
    let result = match args.command {
        Command::List { json } => list(json).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => until_told(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("plimsoll case: {error}");
        ExitCode::FAILURE
    })
}

fn list(json: bool) -> Result<(), String> {
    let cases = catalog::names().map(|name| Ok((name, catalog::find(name)?)));
    let cases: Vec<(&str, CaseFile)> = cases.collect::<Result<_, String>>()?;
    if json {
        let case = |(name, case): &(&str, CaseFile)| {
            serde_json::json!({
                "case": name, "title": case.title, "server": case.server.kind.as_str(), "paper": case.paper,
                "heavy": case.heavy == Switch::Yes,
                "missing": Stand::is_there(case.server.kind).err(),
            })
        };
        println!("{}", serde_json::json!({ "cases": cases.iter().map(case).collect::<Vec<_>>() }));
        return Ok(());
    }
    for (name, case) in &cases {
        let heavy = if case.heavy == Switch::Yes { " (heavy)" } else { "" };
        println!("{name:4} {:13} {}{heavy}", case.server.kind.as_str(), case.title);
    }
    let mut missing: Vec<String> =
        cases.iter().filter_map(|(_, case)| Stand::is_there(case.server.kind).err()).collect();
    missing.dedup();
    missing.iter().for_each(|missing| eprintln!("{missing}"));
    Ok(())
}

fn until_told(args: &RunArgs) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("cannot start: {e}"))?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        // What was started is dropped with the run, and ends.
        tokio::select! {
            result = run_case(args) => result,
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

async fn run_case(args: &RunArgs) -> Result<ExitCode, String> {
    let case = catalog::find(&args.case)?;
    Stand::is_there(case.server.kind)?;
    let plan = plan(args)?;
    let wanted: &[Remedy] = match args.remedy.as_slice() {
        [] if args.quick => &[Remedy::None, Remedy::Plimsoll],
        [] => Remedy::value_variants(),
        named => named,
    };
    let (remedies, left_out): (Vec<Remedy>, Vec<Remedy>) =
        wanted.iter().copied().partition(|remedy| remedy.applies(&case));
    eprintln!("{}: undisturbed, for {}", args.case, plan.length);
    let calm = run_once(&case, None, &plan).await?;
    let undisturbed = judge(&case, &plan, None, &calm, &calm);
    let mut judged = Vec::new();
    for &remedy in &remedies {
        eprintln!("{}: {}", args.case, remedy.as_str());
        let outcome = run_once(&case, Some(remedy), &plan).await?;
        judged.push(judge(&case, &plan, Some(remedy), &outcome, &calm));
    }
    let report = Report {
        name: &args.case,
        case: &case,
        plan: &plan,
        version: &calm.version,
        undisturbed: &undisturbed,
        remedies: &judged,
        left_out: &left_out,
    };
    if let Some(directory) = &args.out {
        write(directory, &report)?;
    }
    match args.json {
        true => println!("{}", report.json()),
        false => print!("{}", report.text()),
    }
    let wrong =
        judged.iter().any(|run: &judge::Judged| run.remedy == Remedy::Plimsoll.as_str() && !run.right);
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn plan(args: &RunArgs) -> Result<Plan, String> {
    let (warm_up, length, trigger_at) = match args.quick {
        true => (Nanos::from_secs(3), Nanos::from_secs(8), Nanos::from_secs(2)),
        false => (Nanos::from_secs(4), args.length, Nanos(args.length.0 / 4).min(Nanos::from_secs(10))),
    };
    if length < Nanos::from_secs(8) || length > Nanos::from_secs(3_600) {
        return Err("--length is to be from 8s to 1h".to_owned());
    }
    let program = std::env::current_exe().map_err(|e| format!("cannot tell where this program is: {e}"))?;
    Ok(Plan { warm_up, length, trigger_at, seed: args.seed, program })
}

fn write(directory: &Path, report: &Report<'_>) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("cannot write {}: {e}", path.display());
    fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    for (extension, text) in [("json", format!("{}\n", report.json())), ("svg", report.figure().to_svg())] {
        let path = directory.join(report.name).with_extension(extension);
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}
