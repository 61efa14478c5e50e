//! The binary `plimsoll`: one subcommand a role or tool, each defined in the crate that does the work.

mod demo;
mod observed;
mod platform;
mod processes;
mod reproduce;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_sentry::cli::Command as SentryCommand;
use plimsoll_simulator::cli::reproduce::Paper;

/// The load line for services: keeps a system inside its objectives when more work arrives than it can do.
#[derive(Parser)]
#[command(name = "plimsoll", version, max_term_width = 110, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(plimsoll_agent::cli::Args),
    Case(plimsoll_cases::cli::Args),
    Controller(plimsoll_controller::cli::Args),
    Demo(demo::Args),
    Fleet(plimsoll_simulator::cli::fleet::Args),
    Load(plimsoll_loadgen::cli::Args),
    Reproduce(plimsoll_simulator::cli::reproduce::Args),
    #[command(flatten)]
    Sentry(SentryCommand),
    Simulate(plimsoll_simulator::cli::simulate::Args),
    Suggest(plimsoll_simulator::cli::suggest::Args),
    Testbed(plimsoll_testbed::cli::Args),
    Top(plimsoll_top::cli::Args),
    Yield(plimsoll_empathy::cli::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Agent(args) => plimsoll_agent::cli::run(args),
        Command::Case(args) => plimsoll_cases::cli::run(args),
        Command::Controller(args) => plimsoll_controller::cli::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Fleet(args) => plimsoll_simulator::cli::fleet::run(args),
        Command::Load(args) => plimsoll_loadgen::cli::run(args),
        Command::Reproduce(args) => {
            plimsoll_simulator::cli::reproduce::run(args, |paper, settings| match paper {
                Paper::Atropos => Vec::new(),
                Paper::Bouncer => reproduce::bouncer(settings),
                Paper::Cataclysm => reproduce::cataclysm(settings),
                Paper::CpuFutures => reproduce::cpu_futures(settings),
                Paper::Topfull => reproduce::topfull(settings),
            })
        }
        // One word for all: a record says whose it is.
        Command::Sentry(SentryCommand::Verify(args)) if plimsoll_agent::cli::is_record(args.file()) => {
            plimsoll_agent::cli::verify(args.file())
        }
        Command::Sentry(SentryCommand::Verify(args)) if plimsoll_controller::cli::is_record(args.file()) => {
            plimsoll_controller::cli::verify(args.file())
        }
        Command::Sentry(command) => plimsoll_sentry::cli::run(command),
        Command::Simulate(args) => plimsoll_simulator::cli::simulate::run(args),
        Command::Suggest(args) => plimsoll_simulator::cli::suggest::run(args),
        Command::Testbed(args) => plimsoll_testbed::cli::run(args),
        Command::Top(args) => plimsoll_top::cli::run(args),
        Command::Yield(args) => plimsoll_empathy::cli::run(args),
    }
}
