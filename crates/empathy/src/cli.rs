//! `plimsoll yield`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::plan::Want;
use crate::run::{Options, Target, run as run_job};

/// Run a job on cycles that nobody wants, or never slower than it may be
///
/// Signals, the terminal and all input and output are the job's; its exit code becomes that of this program (128+N if signal N ended
/// it, 126 if it cannot be run, 127 if there is no such command; 125 if plimsoll yield itself fails). All that was changed about a
/// running job is put back, even after `kill -9` of this program.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "plimsoll yield <--idle-only|--max-slowdown N> [OPTIONS] -- COMMAND...\n       \
                      plimsoll yield <--idle-only|--max-slowdown N> [OPTIONS] --pid PID",
    group = clap::ArgGroup::new("want").required(true).args(["idle_only", "max_slowdown"]),
    group = clap::ArgGroup::new("target").required(true).args(["pid", "command"])
)]
pub struct Args {
    /// Let the job run on cycles only that nobody else wants
    #[arg(long)]
    idle_only: bool,
    /// Never let the job be slowed more than N times (above 1, at most 1000), and take no more CPU from others than that needs
    #[arg(long, value_name = "N", value_parser = limit)]
    max_slowdown: Option<f64>,
    /// A job that runs already, with all that it has started; interrupt this program to let it go
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
    /// Where to write, as JSON, what the job gave up and what it cost the others
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Say which means would be used and which right is missing for better ones, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if limit > 1.0 && limit <= 1000.0 => Ok(limit),
        _ => Err("give a number above 1 and at most 1000, as 5 for at most five times slower".into()),
    }
}

/// Runs until the job has ended.
pub fn run(args: Args) -> ExitCode {
    let want = match args.max_slowdown {
        Some(limit) => Want::MaxSlowdown(limit),
        None => Want::IdleOnly,
    };
    let target = match args.pid {
        Some(pid) => Target::Running(pid),
        None => Target::Command(args.command),
    };
    let options = Options { want, target, quiet: args.quiet, report: args.report, dry_run: args.dry_run };
    ExitCode::from(run_job(options))
}
