//! What a case costs a PostgreSQL: one run, as one line of JSON that tells what its clients saw, and what the agent said if one watched.
//!
//! ```text
//! cargo run --release -p plimsoll-testbed --example postgres_cases -- c6 --with nobody --seconds 30
//! cargo run --release -p plimsoll-testbed --example postgres_cases -- c6 --with agent --plimsoll target/release/plimsoll
//! ```
//!
//! `benches/postgres/run.sh` makes many of them and compares.

mod shown;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use plimsoll_core::Nanos;
use plimsoll_testbed::postgres::session::why;
use plimsoll_testbed::postgres::stage::Outcome;

use plimsoll_testbed::postgres::{Agent, Case, Dose, Options, Plan, Session, Stage, Watch};
use serde_json::Value;

/// Who is there beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum With {
    /// No culprit, and nobody who watches.
    Calm,
    /// The culprit, and nobody who does anything about it.
    Nobody,
    /// The culprit, and an agent that only says what it would do.
    Shadow,
    /// The culprit, and an agent that does it.
    Agent,
    /// The culprit, ended `--end-after` milliseconds after it came: what the best of all agents would reach.
    Oracle,
}

#[derive(Parser)]
struct Args {
    case: Case,
    #[arg(long = "with", value_enum, default_value = "nobody")]
    with: With,
    /// How long the run is.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// How long the load has run before, in seconds.
    #[arg(long, default_value_t = 5)]
    warm_up: u64,
    /// Requests a second.
    #[arg(long, default_value_t = Plan::default().rate_per_s)]
    rate: f64,
    /// When the culprit comes, in seconds.
    #[arg(long, default_value_t = 8)]
    at: u64,
    /// How long the culprit holds what others need, in seconds (c6, alter).
    #[arg(long, default_value_t = 20)]
    hold: u64,
    /// How many rows the culprit writes (c7).
    #[arg(long, default_value_t = Dose::default().rows)]
    rows: u64,
    /// What 99 % of the requests are promised: what the agent goes by, and what it is judged by.
    #[arg(long, value_name = "MS", default_value_t = 50)]
    slo: u64,
    #[arg(long, value_name = "MS", default_value_t = 300)]
    end_after: u64,
    /// Also has somebody slow but innocent at work.
    #[arg(long)]
    innocent: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program whose `agent` watches.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.expect("a runtime").block_on(run(&args)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", args.case);
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<Value, String> {
    let mut plan = Plan {
        rate_per_s: args.rate,
        warm_up: Nanos::from_secs(args.warm_up),
        length: Nanos::from_secs(args.seconds),
        trigger_at: (args.with != With::Calm).then(|| Nanos::from_secs(args.at)),
        innocent: args.innocent,
        seed: args.seed,
        ..Plan::default()
    };
    plan.dose = Dose { hold: Nanos::from_secs(args.hold), rows: args.rows };
    let stage = Stage::set(args.case, &Options::default()).await?;
    let watch = |mode| Watch {
        program: args.plimsoll.clone(),
        slo: Nanos::from_millis(args.slo),
        mode,
        terminate: args.case == Case::C6Idle,
    };
    let agent = match args.with {
        With::Shadow => Some(watch("shadow").start(&stage.server).await?),
        With::Agent => Some(watch("enforce").start(&stage.server).await?),
        With::Calm | With::Nobody | With::Oracle => None,
    };
    let control = Session::connect(&stage.server.config("control")).await?;
    let version = control.client.query_one("show server_version", &[]).await.map_err(|e| why(&e))?;
    let loading = stage.load(&plan).start(stage.server.client("load")).await?;
    let began_s = loading.clock().began_s() + plan.warm_up.as_secs_f64();
    let tasks = stage.disturb(&plan, &loading).await?;
    if args.with == With::Oracle {
        // The last of those who came; where there are several that frees everyone.
        let culprit = tasks.last().ok_or("there is nobody to end")?.pid;
        tokio::time::sleep(Duration::from_millis(args.end_after)).await;
        let how = if args.case == Case::C6Idle { "terminate" } else { "cancel" };
        control.run(&format!("select pg_{how}_backend({culprit})")).await?;
    }
    let outcome = Outcome::of(&plan, loading, tasks).await;
    let events = agent.map_or(Ok(Vec::new()), Agent::stop)?;
    Ok(shown::line(args, &plan, version.get(0), began_s, &outcome, &events))
}
