//! `plimsoll controller`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_sentry::cli::verified;
use plimsoll_sentry::{config_file, logging};

use crate::record;
use crate::run::{Options, run as run_controller};

/// Watch the sentries and size the pools
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The config.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Stops the servers and sentries that were started when it ends. Without, they stay, and the next controller adopts them: a
    /// controller that stops must not stop the service.
    #[arg(long)]
    stop_servers: bool,
    /// Write down what is seen of the fleet and which rates are decided, for `plimsoll verify`. For finding out, not for production.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Runs until SIGINT or SIGTERM. Fails where it cannot begin.
pub fn run(args: Args) -> ExitCode {
    logging::start("controller");
    let Some(loaded) = config_file::load_aloud(&args.config) else { return ExitCode::FAILURE };
    let options = Options {
        config: loaded.config,
        config_file: args.config,
        stop_servers: args.stop_servers,
        record: args.record,
    };
    match run_controller(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll controller: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `plimsoll verify`, where the record is a controller's: shows it to fresh ones.
pub fn verify(record: &Path) -> ExitCode {
    verified(record::verify(record))
}

/// Whether a file is a record of a controller's.
pub fn is_record(path: &Path) -> bool {
    record::is_ours(path)
}
