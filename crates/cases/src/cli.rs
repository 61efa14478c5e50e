//! `plimsoll case`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use plimsoll_core::Nanos;
use plimsoll_core::config::Rate;
use plimsoll_core::config::case::{CaseFile, Switch};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::catalog;
use crate::cost::cost;
use crate::judge::{judge, promised};
use crate::page::page;
use crate::report::{Repetition, Report, commit};
use crate::run::{Plan, Remedy, run as run_once};
use crate::show;
use crate::stand::Stand;

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
    /// Run cases: undisturbed first, then with each remedy, each on a server of its own.
    ///
    /// It installs nothing, and says which package is missing. The server is private, on loopback and in a directory for temporary
    /// files, and ends with this command. Fails if the agent ends anybody but the culprit, task or request,
    /// if it does not end that one, or if requests are dropped (0.01 % and more). Where nobody is to blame, it fails if somebody is ended.
    Run(RunArgs),
    /// Measure what it costs their servers to be watched: turns with an agent and turns without, undisturbed.
    Cost(CostArgs),
    /// Write a page of the docs from what `run --out DIR` has left.
    Report {
        /// That directory; what lies in a directory in it are further runs, such as longer ones.
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Their names, or files of your own: `c4`, `mine/ours.toml`.
    #[arg(required_unless_present = "all")]
    case: Vec<String>,
    /// All of them, one after the other; one that cannot run here is left out, and says why.
    #[arg(long, conflicts_with = "case")]
    all: bool,
    /// With --all, also those whose servers are not to be had everywhere, or take long to start.
    #[arg(long, requires = "all")]
    heavy: bool,
    /// What to do about it: all, or none and plimsoll where it is to be quick.
    #[arg(long, value_enum, value_delimiter = ',')]
    remedy: Vec<Remedy>,
    /// How long a run is; the culprit comes after a quarter of it, ten seconds at most.
    #[arg(long, default_value = "15s")]
    length: Nanos,
    /// How long its load comes before a run begins. A JVM compiles for half a minute what it finds that it runs often.
    #[arg(long, default_value = "4s")]
    warm_up: Nanos,
    /// Eight seconds a run.
    #[arg(long, conflicts_with_all = ["length", "warm_up"])]
    quick: bool,
    /// How often, each time with the next seed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    repetitions: u64,
    /// Decides what comes and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only JSON, on the standard output: a line for each case.
    #[arg(long)]
    json: bool,
    /// Writes CASE.json and CASE.svg into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keeps the repetitions that are in that directory, and runs those that are missing.
    #[arg(long, requires = "out")]
    resume: bool,
}

#[derive(Debug, clap::Args)]
struct CostArgs {
    /// Their names, or files of your own.
    #[arg(required = true)]
    case: Vec<String>,
    /// Turns with an agent; there are as many without.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// How long a turn is.
    #[arg(long, default_value = "6s")]
    turn: Nanos,
    /// How long it is watched before the first turn. A JVM compiles what it finds that it runs often, and that takes thousands of looks.
    #[arg(long, default_value = "0s")]
    warm_up: Nanos,
    /// Requests of another number, as in 5/s. What an agent asks does not depend on them, and what it costs is seen better where there are few.
    #[arg(long)]
    rate: Option<Rate>,
    /// Decides what comes and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only JSON, on the standard output: a line for each case.
    #[arg(long)]
    json: bool,
}

/// Runs it; Ctrl-C ends it and everything that it started.
pub fn run(args: Args) -> ExitCode {
    let result = match args.command {
        Command::List { json } => list(json).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => until_told(run_cases(&args)),
        Command::Cost(args) => until_told(cost_of(&args)),
        Command::Report { dir } => Report::read_all(&dir).map(|reports| {
            print!("{}", page(reports));
            ExitCode::SUCCESS
        }),
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
                "missing": Stand::is_there(&case.server).err(),
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
        cases.iter().filter_map(|(_, case)| Stand::is_there(&case.server).err()).collect();
    missing.sort_unstable();
    missing.dedup();
    missing.iter().for_each(|missing| eprintln!("{missing}"));
    Ok(())
}

fn until_told(what: impl Future<Output = Result<ExitCode, String>>) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("cannot start: {e}"))?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        // What was started is dropped with the run, and ends.
        tokio::select! {
            result = what => result,
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

async fn run_cases(args: &RunArgs) -> Result<ExitCode, String> {
    let plan = plan(args)?;
    let names: Vec<&str> = match args.all {
        true => catalog::names().collect(),
        false => args.case.iter().map(String::as_str).collect(),
    };
    let cases = names.into_iter().map(|name| Ok((name, catalog::find(name)?)));
    let mut cases: Vec<(&str, CaseFile)> = cases.collect::<Result<_, String>>()?;
    cases.retain(|(_, case)| !args.all || args.heavy || case.heavy == Switch::No);
    let mut well = true;
    for (name, case) in &cases {
        // Of a file, what is before its ending.
        let name = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
        let mut report = Report { command: Some(command()), ..Report::new(name, case, &plan) };
        if let Some(directory) = args.out.as_ref().filter(|_| args.resume) {
            report.resume(directory)?;
        }
        if let Err(why) = run_case(args, case, &plan, &mut report).await {
            eprintln!("plimsoll case: {name}: {why}");
            report.failed = Some(why);
        }
        if let Some(directory) = &args.out {
            write(directory, &report)?;
        }
        match args.json {
            true => println!("{}", show::json(&report)),
            false if report.repetitions.is_empty() => {}
            false => println!("{}", show::text(&report)),
        }
        well &= report.failed.is_none() && report.did_no_harm();
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn cost_of(args: &CostArgs) -> Result<ExitCode, String> {
    let (warm_up, length) = (Nanos::from_secs(4), args.turn);
    let plan = Plan { warm_up, length, trigger_at: Nanos::ZERO, seed: args.seed, program: program()? };
    for name in &args.case {
        let mut case = catalog::find(name)?;
        case.load.rate = args.rate.unwrap_or(case.load.rate);
        let cost = cost(name, &case, &plan, args.warm_up, args.pairs).await;
        let cost = cost.map_err(|why| format!("{name}: {why}"))?;
        match args.json {
            true => println!("{}", serde_json::json!(cost)),
            false => println!("{}", cost.text()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes down in the report what came of each repetition that was run to its end.
async fn run_case(args: &RunArgs, case: &CaseFile, plan: &Plan, report: &mut Report) -> Result<(), String> {
    Stand::is_there(&case.server)?;
    let wanted: &[Remedy] = match args.remedy.as_slice() {
        [] if args.quick => &[Remedy::None, Remedy::Plimsoll],
        [] => Remedy::value_variants(),
        named => named,
    };
    let (mut remedies, left_out): (Vec<Remedy>, Vec<Remedy>) =
        wanted.iter().copied().partition(|remedy| remedy.applies(case));
    report.not_applicable = left_out.iter().map(|remedy| remedy.as_str().to_owned()).collect();
    remedies.retain(|remedy| {
        let missing = remedy.is_there(case).err();
        missing.iter().for_each(|why| eprintln!("{}: without {}: {why}", report.case, remedy.as_str()));
        missing.is_none()
    });
    for seed in (plan.seed..).take(args.repetitions as usize) {
        if report.repetitions.iter().any(|repetition| repetition.seed == seed) {
            continue;
        }
        let plan = Plan { seed, ..plan.clone() };
        let doing = |what: &str| eprintln!("{}: {what}, for {}, seed {seed}", report.case, plan.length);
        doing("undisturbed");
        let began = Instant::now();
        let calm = run_once(case, None, &plan).await?;
        let usual = calm.figures(&plan);
        if usual.ok == 0 {
            return Err(format!(
                "none of {} requests was answered undisturbed: see to the server and its load first",
                usual.sent
            ));
        }
        let slo = promised(case, &usual);
        if report.repetitions.is_empty() {
            report.slo_ms = slo.as_millis_f64();
        }
        let mut judged = Vec::new();
        for &remedy in &remedies {
            doing(remedy.as_str());
            let outcome = run_once(case, Some((remedy, slo)), &plan).await?;
            judged.push(judge(case, &plan, Some(remedy), &outcome, &calm));
        }
        let undisturbed = judge(case, &plan, None, &calm, &calm);
        let (commit, took_s) = (args.out.as_deref().and_then(commit), Some(began.elapsed().as_secs_f64()));
        report.repetitions.push(Repetition { seed, commit, took_s, undisturbed, remedies: judged });
        report.version = Some(calm.version);
    }
    Ok(())
}

fn plan(args: &RunArgs) -> Result<Plan, String> {
    let (warm_up, length, trigger_at) = match args.quick {
        true => (Nanos::from_secs(3), Nanos::from_secs(8), Nanos::from_secs(2)),
        false => (args.warm_up, args.length, Nanos(args.length.0 / 4).min(Nanos::from_secs(10))),
    };
    if length < Nanos::from_secs(8) || length > Nanos::from_secs(3_600) {
        return Err("--length is to be from 8s to 1h".to_owned());
    }
    if warm_up < Nanos::from_secs(1) || warm_up > Nanos::from_secs(600) {
        return Err("--warm-up is to be from 1s to 10m".to_owned());
    }
    Ok(Plan { warm_up, length, trigger_at, seed: args.seed, program: program()? })
}

/// As it was typed, but for where results are kept.
fn command() -> String {
    let mut words = vec!["plimsoll".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => drop(arguments.next()),
            "--json" | "--resume" => {}
            other if other.starts_with("--out=") => {}
            _ => words.push(argument),
        }
    }
    words.join(" ")
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("cannot tell where this program is: {e}"))
}

fn write(directory: &Path, report: &Report) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("cannot write {}: {e}", path.display());
    fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    let mut texts = vec![("json", format!("{}\n", show::json(report)))];
    if !report.repetitions.is_empty() {
        texts.push(("svg", show::figure(report).to_svg()));
    }
    for (extension, text) in texts {
        let path = directory.join(&report.case).with_extension(extension);
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}
