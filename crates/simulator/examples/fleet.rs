//! `plimsoll fleet` by itself: builds in a fraction of the time of the whole binary.
//! `cargo run --release -p plimsoll-simulator --example fleet -- study --fleets 200`

use std::process::ExitCode;

use clap::Parser;
use plimsoll_simulator::cli::fleet::{Args, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    run(Cli::parse().args)
}
