//! `plimsoll suggest`: classes and objectives from an access log.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_core::Nanos;

use crate::{access_log, suggest};

/// Propose classes and objectives from an access log, as a workload for `simulate`
#[derive(clap::Args)]
pub struct Args {
    /// CSV with a header; columns for the timestamp, the class or path, and the service time
    #[arg(value_name = "LOG.csv")]
    log: PathBuf,
    /// How long a request may wait [default: half the 90th percentile of all service times]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Nanos>,
}

/// Runs the subcommand; what the process should exit with.
pub fn run(args: Args) -> ExitCode {
    let name = args.log.display().to_string();
    let input = File::open(&args.log).map_err(|e| format!("{name}: cannot be read: {e}"));
    match input.and_then(|input| access_log::read(input, &name)) {
        Ok(log) => {
            log.notes.iter().for_each(|note| eprintln!("{note}"));
            let written = write!(io::stdout().lock(), "{}", suggest::suggest(&log, args.wait));
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
