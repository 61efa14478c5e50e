//! `plimsoll yield` by itself, as a process for the tests.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: plimsoll_empathy::cli::Args,
}

fn main() -> ExitCode {
    plimsoll_empathy::cli::run(Cli::parse().args)
}
