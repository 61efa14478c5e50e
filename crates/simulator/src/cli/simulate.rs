//! `plimsoll simulate`: a workload, policies and loads, and what would come of them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use plimsoll_core::config::workload::Workload;
use plimsoll_core::config::{self, Admission, Mode, Policy, WaitLimit};

use super::loads::Loads;
use crate::access_log::{self, AccessLog};
use crate::engine::Stall;
use crate::figures::{Chart, Figure, Line};
use crate::replay::Log;
use crate::report::{self, Report, Run};
use crate::run::Setup;
use crate::scenario::Scenario;
use crate::suggest;
use crate::work::Work;

/// Most runs of one call.
const MAX_RUNS: usize = 10_000;

/// Try policies on a workload, or on your own traffic, in simulated time
#[derive(clap::Args)]
pub struct Args {
    /// What arrives and what serves it [default for a log: what `plimsoll suggest` proposes for it]
    #[arg(value_name = "WORKLOAD.toml", required_unless_present = "replay")]
    workload: Option<PathBuf>,
    /// NAME[,key=value...], for example bouncer,allowance=0.1 or maxqwt,limit=15ms; may be repeated
    #[arg(long = "policy", value_name = "POLICY", default_value = "bouncer")]
    policies: Vec<String>,
    /// As a multiple of what the server can do, or FIRST:LAST:STEP; may be repeated
    #[arg(long = "load", value_name = "LOAD", default_value = "1.0")]
    loads: Vec<Loads>,
    /// Requests of each run that count [default: 1000000, or the whole log]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    queries: Option<u64>,
    /// Requests before them, which do not count [default: a tenth of --queries, or none of the log]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000))]
    warmup: Option<u64>,
    /// Of everything random; the same seed gives the same output
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Replay the requests of a log with the columns timestamp, class and service time; --load is then how much faster
    #[arg(long, value_name = "LOG.csv")]
    replay: Option<PathBuf>,
    /// Let every process stand still: 30s+1s is for a second, 30 seconds after the start; may be repeated
    #[arg(long = "stall", value_name = "AT+LENGTH")]
    stalls: Vec<StallArg>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Write a line a run and class
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw rejections and response times over the load
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone)]
struct StallArg(Stall);

impl FromStr for StallArg {
    type Err = String;
    fn from_str(text: &str) -> Result<StallArg, String> {
        let (at, lasts) = text
            .split_once('+')
            .ok_or_else(|| format!("`{text}` is not a stall; write its start and length, as in 30s+1s"))?;
        Ok(StallArg(Stall { at: at.parse()?, lasts: lasts.parse()? }))
    }
}

/// Runs the subcommand; what the process should exit with.
pub fn run(args: Args) -> ExitCode {
    match simulate(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(args: &Args) -> Result<(), String> {
    let (scenario, log) = load(args)?;
    let setups = setups(args, &scenario, log.as_ref())?;
    let requests = setups.iter().map(|(_, setup)| setup.warmup + setup.queries).sum();
    let work = Work::new();
    let outcomes = work.map(requests, &setups, |(_, setup), progress| match &log {
        Some(log) => setup.replay(&scenario, log, progress),
        None => setup.run(&scenario, progress),
    });
    work.finish();
    work.tell_speed();
    let run = |((policy, setup), outcome): (&(&String, Setup), _)| {
        Run::new(policy, setup.load, setup.seed, outcome, &scenario.names)
    };
    let report = Report { runs: setups.iter().zip(&outcomes).map(run).collect() };
    if let Some(file) = &args.csv {
        let written =
            File::create(file).map_err(csv::Error::from).and_then(|f| report::write_csv(&report, f));
        written.map_err(|e| format!("{}: cannot be written: {e}", file.display()))?;
    }
    if let Some(file) = &args.svg {
        let svg = figure(&report, &scenario).to_svg();
        fs::write(file, svg).map_err(|e| format!("{}: cannot be written: {e}", file.display()))?;
    }
    let printed =
        if args.json { print_json(&report) } else { report::write_table(&report, io::stdout().lock()) };
    printed.or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e.to_string()) })
}

fn print_json(report: &Report) -> io::Result<()> {
    use io::Write;
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut stdout, report)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// The scenario and the log to replay. A log without a workload brings its own.
fn load(args: &Args) -> Result<(Scenario, Option<Log>), String> {
    let scenario = args.workload.as_deref().map(read_workload).transpose()?;
    let log = args.replay.as_deref().map(read_log).transpose()?;
    let scenario = match (scenario, &log, &args.replay) {
        (Some(scenario), ..) => scenario,
        (None, Some(log), Some(file)) => proposed(log, file)?,
        (None, ..) => return Err("there is nothing to simulate; give WORKLOAD.toml or --replay".to_owned()),
    };
    let log = log.map(|log| Log::new(log, &scenario.names));
    if let (Some(log), Some(file)) = (&log, &args.replay) {
        tell_unknown(log, file);
    }
    Ok((scenario, log))
}

/// What `plimsoll suggest` proposes for a log.
fn proposed(log: &AccessLog, file: &Path) -> Result<Scenario, String> {
    let file = file.display();
    let proposal = suggest::suggest(log, None).to_string();
    let (workload, _) = config::parse::<Workload>(&proposal, &format!("the proposal for {file}"))
        .map_err(|errors| errors.to_string())?;
    let scenario = Scenario::new(workload, Path::new(""))?;
    eprintln!(
        "{file}: no WORKLOAD.toml; `plimsoll suggest {file}` shows what is taken instead: {} classes with their \
         objectives, {} processes",
        scenario.names.len(),
        scenario.engine.processes
    );
    Ok(scenario)
}

/// Reads a workload and the files that it names.
fn read_workload(file: &Path) -> Result<Scenario, String> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|e| format!("{name}: cannot be read: {e}"))?;
    let (workload, warnings) =
        config::parse::<Workload>(&text, &name).map_err(|errors| errors.to_string())?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    Scenario::new(workload, file.parent().unwrap_or(Path::new("")))
}

fn read_log(file: &Path) -> Result<AccessLog, String> {
    let name = file.display().to_string();
    let input = File::open(file).map_err(|e| format!("{name}: cannot be read: {e}"))?;
    let log = access_log::read(input, &name)?;
    log.notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(log)
}

fn tell_unknown(log: &Log, file: &Path) {
    let name = file.display();
    match log.unknown() {
        [] => {}
        [one] => eprintln!("{name}: class `{one}` counts as `default`"),
        [first, rest @ ..] => {
            eprintln!("{name}: class `{first}` and {} more count as `default`", rest.len());
        }
    }
}

/// One a policy and load, in this order.
fn setups<'a>(
    args: &'a Args,
    scenario: &Scenario,
    log: Option<&Log>,
) -> Result<Vec<(&'a String, Setup)>, String> {
    let queries = args.queries.unwrap_or(log.map_or(1_000_000, |log| log.len() as u64));
    let warmup = args.warmup.unwrap_or(if log.is_some() { 0 } else { queries / 10 });
    let stalls: Vec<Stall> = args.stalls.iter().map(|arg| arg.0).collect();
    if stalls.windows(2).any(|pair| pair[1].at < pair[0].at + pair[0].lasts) {
        return Err("--stall: give them in order, each after the end of the one before".to_owned());
    }
    let mut setups = Vec::new();
    for text in &args.policies {
        let policy = policy(text, scenario)?;
        for load in args.loads.iter().flat_map(|loads| loads.0.iter().copied()) {
            let (policy, stalls) = (policy.clone(), stalls.clone());
            setups.push((text, Setup { policy, load, seed: args.seed, queries, warmup, stalls }));
        }
    }
    if setups.len() > MAX_RUNS {
        return Err(format!("{} runs are too many; ask for at most {MAX_RUNS}", setups.len()));
    }
    Ok(setups)
}

fn policy(text: &str, scenario: &Scenario) -> Result<Policy, String> {
    let Admission { policy, mode } = Admission::from_args(text)?;
    if mode != Mode::Enforce {
        return Err(format!("policy \"{text}\": here a policy always acts; leave `mode` out"));
    }
    if let Policy::MaxQwt { limit: WaitLimit::PerClass(limits) } = &policy {
        let unknown = limits.iter().find(|(class, _)| !scenario.names.contains(class));
        if let Some((class, _)) = unknown {
            return Err(format!("policy \"{text}\": the workload has no class `{class}`"));
        }
    }
    Ok(policy)
}

/// Rejections over the load, then for every class the response times at the percentiles of its objective, or its
/// median where it has none.
fn figure(report: &Report, scenario: &Scenario) -> Figure {
    let mut policies: Vec<&str> = report.runs.iter().map(|run| run.policy.as_str()).collect();
    policies.dedup();
    let lines = |value: &dyn Fn(&Run) -> Option<f64>| {
        let line = |&policy: &&str| {
            let runs = report.runs.iter().filter(|run| run.policy == policy);
            let points = runs.filter_map(|run| Some((run.load, value(run)?))).collect();
            Line { name: policy.to_owned(), points }
        };
        policies.iter().map(line).collect()
    };
    let mut charts =
        vec![Chart::new("rejected", "load", "% of requests", lines(&|run| Some(run.rejected_pct)))];
    let times = |name: &str, statistic: &str, value: &dyn Fn(&Run) -> Option<f64>| {
        Chart::new(format!("{name}: response time, {statistic}"), "load", "ms", lines(value))
    };
    for (name, slo) in scenario.names.iter().zip(&scenario.slos) {
        if slo.is_empty() {
            charts.push(times(name, "p50", &|run| class(run, name)?.rt_p50_ms));
        }
        for (i, (statistic, limit)) in slo.targets().iter().enumerate() {
            let chart = times(name, &statistic.to_string(), &|run| class(run, name)?.at_objectives_ms[i]);
            charts.push(chart.with_level("objective", limit.as_millis_f64()));
        }
    }
    charts.retain(|chart| chart.lines.iter().any(|line| !line.points.is_empty()));
    Figure { name: "simulate".into(), charts }
}

fn class<'a>(run: &'a Run, name: &str) -> Option<&'a report::Class> {
    run.classes.0.iter().find(|(n, _)| n == name).map(|(_, class)| class)
}
