//! The subcommand `plimsoll load`.

use std::process::ExitCode;

/// Send open-loop load to a server and report honest latencies
#[derive(clap::Args)]
pub struct Args {
    /// Where to send: http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL")]
    target: String,
}

/// Runs the subcommand; what the process should exit with.
pub fn run(args: Args) -> ExitCode {
    eprintln!("plimsoll load: cannot send to {} yet", args.target);
    ExitCode::FAILURE
}
