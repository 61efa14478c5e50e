//! `plimsoll reproduce`: a paper's study with our code, beside what the paper reports.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::figures::Figure;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::{
    Experiment, ExperimentResult, Results, Settings, atropos, bouncer, cataclysm, cpu_futures, topfull,
};

/// Run a paper's study and hold the results against the paper's
#[derive(clap::Args)]
pub struct Args {
    /// Which paper
    paper: Paper,
    /// Only this table or figure; may be repeated
    #[arg(long = "experiment", value_name = "ID")]
    experiments: Vec<String>,
    /// Of everything random
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Fewer loads, seeds and runs, within 55 s on two cores: simulations are held to the same tolerances, live runs judge no times
    #[arg(long)]
    quick: bool,
    /// Instead of the simulated figures those on the real testbed (topfull: real services, sentry, controller and load, on loopback; ten
    /// minutes on a machine that does nothing else)
    #[arg(long)]
    real: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Write an SVG a figure into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The papers that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Paper {
    /// Which running task must yield
    Atropos,
    /// Admission control by percentile estimates
    Bouncer,
    /// Policing by class and size, and servers that follow the load
    Cataclysm,
    /// Who is about to be short of CPU
    CpuFutures,
    /// Rates at the entry of a fleet
    Topfull,
}

/// Runs the subcommand with the simulator's experiments and `more` of a paper's; what the process should exit with.
pub fn run(args: Args, more: impl FnOnce(Paper, Settings) -> Vec<Experiment>) -> ExitCode {
    let settings = Settings { seed: args.seed, quick: args.quick, real: args.real };
    if args.real && args.paper != Paper::Topfull {
        eprintln!("--real is for topfull; the others run what is real beside what is simulated");
        return ExitCode::FAILURE;
    }
    let mut experiments = match args.paper {
        Paper::Atropos => atropos::experiments(settings),
        Paper::Bouncer => bouncer::experiments(settings),
        Paper::Cataclysm => cataclysm::experiments(settings),
        Paper::CpuFutures => cpu_futures::experiments(settings),
        Paper::Topfull => topfull::experiments(settings),
    };
    if args.real {
        experiments.clear();
    }
    experiments.extend(more(args.paper, settings));
    match reproduce(&args, experiments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything passed.
fn reproduce(args: &Args, mut experiments: Vec<Experiment>) -> Result<bool, String> {
    let known: Vec<&str> = experiments.iter().map(|experiment| experiment.id).collect();
    if let Some(unknown) = args.experiments.iter().find(|id| !known.contains(&id.as_str())) {
        return Err(format!("unknown experiment `{unknown}`; there are {}", known.join(", ")));
    }
    if !args.experiments.is_empty() {
        experiments.retain(|experiment| args.experiments.iter().any(|id| id == experiment.id));
    }
    if let Some(directory) = &args.out {
        fs::create_dir_all(directory).map_err(|e| cannot_write(directory, &e))?;
    }
    let results =
        Results { experiments: experiments.iter().map(|each| perform(each, args.out.as_deref())).collect() };
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let printed = if args.json {
        serde_json::to_writer(&mut stdout, &results).map_err(io::Error::from).and_then(|()| writeln!(stdout))
    } else {
        results.write_text(&mut stdout)
    };
    printed.and_then(|()| stdout.flush()).map_err(|e| e.to_string())?;
    Ok(results.pass())
}

/// Runs an experiment and draws its figures. What goes wrong is a row that fails, so that it takes neither the others'
/// results away nor its own.
fn perform(Experiment { id, run }: &Experiment, out: Option<&Path>) -> ExperimentResult {
    let failed = |error: String| {
        eprintln!("{id}: {error}");
        Row::failed(error)
    };
    let rows = match run() {
        Ok(Findings { mut rows, figures }) => {
            let drawn = out.map_or(Ok(()), |out| figures.iter().try_for_each(|figure| draw(figure, out)));
            rows.extend(drawn.err().map(failed));
            rows
        }
        Err(error) => vec![failed(error)],
    };
    ExperimentResult { id, rows }
}

fn draw(figure: &Figure, directory: &Path) -> Result<(), String> {
    let file = directory.join(format!("{}.svg", figure.name));
    fs::write(&file, figure.to_svg()).map_err(|e| cannot_write(&file, &e))
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("{}: cannot be written: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_that_goes_wrong_is_a_failing_row_beside_the_others() {
        let found = || {
            let rows = vec![Row::at_most("x", 2.0, 1.0)];
            Ok(Findings { rows, figures: vec![Figure { name: "f".into(), charts: Vec::new() }] })
        };
        let wrong = || Err("the store did not start".to_owned());
        let experiments = [
            Experiment { id: "a", run: Box::new(found) },
            Experiment { id: "b", run: Box::new(wrong) },
            Experiment { id: "c", run: Box::new(found) },
        ];
        let judged = |out: Option<&Path>| {
            let results =
                Results { experiments: experiments.iter().map(|each| perform(each, out)).collect() };
            let json = serde_json::to_value(&results).unwrap();
            assert_eq!(json["experiments"][1]["rows"][0]["what"], "the store did not start");
            assert!(!results.pass());
            let passes =
                |each: &ExperimentResult| each.rows.iter().map(|row| row.pass == Some(true)).collect();
            results.experiments.iter().map(passes).collect::<Vec<Vec<bool>>>()
        };
        assert_eq!(judged(None), [vec![true], vec![false], vec![true]]);
        // Where nothing can be drawn the results stay, and it is told.
        let nowhere = Some(Path::new("/dev/null/figures"));
        assert_eq!(judged(nowhere), [vec![true, false], vec![false], vec![true, false]]);
    }
}
