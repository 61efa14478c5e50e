//! The subcommands of the sentry: `sentry`, `check`, `explain`, and the hidden one that is the worker.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::share::Share;
use crate::supervisor::Options;
use crate::{config_file, explain, logging, process, replay, supervisor};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway.
    Sentry(SentryArgs),
    /// Run a worker of the gateway.
    #[command(hide = true)]
    SentryWorker(SentryArgs),
    /// Say what is wrong with a config, if anything.
    Check(CheckArgs),
    /// Say in words why requests are refused now.
    Explain(explain::Args),
    /// Put a record of `sentry`, `agent` or `controller --record` to the policies again and demand the same verdicts.
    Verify(VerifyArgs),
}

/// Arguments of `sentry` and of its workers.
#[derive(Debug, Args)]
pub struct SentryArgs {
    /// The config.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Write down every event of the admission policies, for `plimsoll verify`. For finding out, not for production.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The admin address, instead of the config's: for several sentries that listen on one port by the same config.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Which of so many equal parts of the servers' workers is this sentry's, from 0: `1/2`. Until it is told otherwise.
    #[arg(long, value_name = "PART/OF", default_value_t = Share::ALL)]
    share: Share,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The config; as `--config FILE`, too, as all others have it.
    #[arg(required_unless_present = "config")]
    file: Option<PathBuf>,
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "file")]
    config: Option<PathBuf>,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The record.
    file: PathBuf,
}

impl VerifyArgs {
    /// The record.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl From<SentryArgs> for Options {
    fn from(args: SentryArgs) -> Options {
        let SentryArgs { config, record, admin, share } = args;
        Options { config, record, admin, share }
    }
}

/// Runs one of them.
pub fn run(command: Command) -> ExitCode {
    match command {
        Command::Sentry(args) => {
            logging::start("parent");
            supervisor::run(args.into())
        }
        Command::SentryWorker(args) => {
            logging::start("worker");
            process::run(&args.into())
        }
        Command::Check(args) => check(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Verify(args) => verified(replay::replay(&args.file)),
    }
}

/// What to say of a record that was put to fresh deciders, and to exit with.
pub fn verified(record: Result<impl Serialize, String>) -> ExitCode {
    match record {
        Ok(summary) => {
            println!("{}", serde_json::json!(summary));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    // Clap has made sure of one of them.
    let Some(file) = args.file.as_ref().or(args.config.as_ref()) else { return ExitCode::FAILURE };
    let Some(loaded) = config_file::load_aloud(file) else { return ExitCode::FAILURE };
    // What only shows when it is put together: certificates, keys, names. A file for the agent alone is no sentry's.
    if !loaded.config.pools.is_empty()
        && let Err(error) = crate::state::Shared::new(loaded.config, 1, None)
    {
        eprintln!("{}", error.at(&loaded.text, file));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
