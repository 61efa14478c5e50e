//! `plimsoll agent`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_sentry::cli::verified;
use plimsoll_sentry::followed::Followed;
use plimsoll_sentry::{config_file, logging};

use crate::run::{Options, run as run_agent};
use crate::verify;

/// Watch applications and databases, and cancel the task that holds up all others
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The config.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where every event is appended as a line of JSON, instead of the config's; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Write down every scene and what was decided, for `plimsoll verify`. For finding out, not for production.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Runs until SIGINT or SIGTERM, and reads the config again on SIGHUP or when it has changed. Fails where it cannot begin.
pub fn run(args: Args) -> ExitCode {
    logging::start("agent");
    let Some(loaded) = config_file::load_aloud(&args.config) else { return ExitCode::FAILURE };
    let file = Followed::new(args.config, loaded.text);
    let options = Options { config: loaded.config, file, events: args.events, record: args.record };
    match run_agent(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `plimsoll verify`, where the record is the agent's: shows it to fresh relievers.
pub fn verify(record: &Path) -> ExitCode {
    verified(verify::verify(record))
}

/// Whether a file is a record of the agent's.
pub fn is_record(path: &Path) -> bool {
    verify::is_ours(path)
}
