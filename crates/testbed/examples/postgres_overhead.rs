//! What it costs a PostgreSQL to be watched: one server under one load, without and with an agent in turns, one line of JSON a turn. The agent
//! is in shadow mode, so that it does all but cancel.
//!
//! ```text
//! cargo run --release -p plimsoll-testbed --example postgres_overhead -- --connections 200
//! cargo run --release -p plimsoll-testbed --example postgres_overhead -- --connections 200 --rate 20000
//! cargo run --release -p plimsoll-testbed --example postgres_overhead -- --culprit c7
//! ```
//!
//! CPU time is what the kernel says of each process: of the server's without our own sessions, of the agent's, and of the session that serves it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use plimsoll_core::Nanos;
use plimsoll_testbed::postgres::agent::ROLE;
use plimsoll_testbed::postgres::session::why;

use plimsoll_testbed::postgres::{
    Agent, Case, Dose, Figures, Load, Loading, Options, Plan, Server, Session, Stage, Watch,
};
use serde_json::{Value, json};
use tokio::time::sleep;

/// In its first seconds an agent looks more closely, to learn what is usual.
const SETTLES: Duration = Duration::from_secs(7);

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Requests a second; more than the server can answer is ordinary overload.
    #[arg(long, default_value_t = 400.0)]
    rate: f64,
    /// A culprit whom nobody ends: overload by a task.
    #[arg(long)]
    culprit: Option<Case>,
    /// Turns with an agent; there are as many without.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a turn is.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let case = args.culprit.unwrap_or(Case::C6);
    // Its workers come and go, and what they did goes with them.
    let settings =
        [("max_connections", (args.connections + 20).to_string()), ("autovacuum", "off".to_owned())];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let stage = Stage::set(case, &Options { settings, ..Options::default() }).await?;
    let control = Session::connect(&stage.server.config("control")).await?;
    let turn = Duration::from_secs(args.seconds);
    let all = 2 * (turn + SETTLES) * args.rounds as u32 + Duration::from_secs(10);
    let plan = Plan { rate_per_s: args.rate, length: all.into(), seed: args.seed, ..Plan::default() };
    let queue = args.connections.max(100);
    let load = Load { connections: args.connections, queue, ..stage.load(&plan) };
    let loading = load.start(stage.server.client("load")).await?;
    sleep(plan.warm_up.into()).await;
    let dose = Dose { hold: all.into(), rows: 1_000_000_000 };
    let _culprits = match args.culprit {
        Some(case) => case.trigger(&stage.server, dose, loading.clock()).await?,
        None => Vec::new(),
    };
    let watch = Watch {
        program: args.plimsoll.clone(),
        slo: Nanos::from_millis(50),
        mode: "shadow",
        terminate: false,
    };
    for round in 0..args.rounds {
        // Each goes first every second time.
        for watched in [round % 2 == 1, round % 2 == 0] {
            let agent = if watched { Some(watch.start(&stage.server).await?) } else { None };
            sleep(SETTLES).await;
            let line = measure(args, &stage.server, &control, &loading, agent.as_ref(), turn).await?;
            println!("{line}");
            if let Some(agent) = agent {
                let told = agent.stop()?;
                eprintln!(
                    "{}",
                    told.iter().map(|event| event["event"].to_string()).collect::<Vec<_>>().join(" ")
                );
            }
        }
    }
    loading.stop();
    Ok(())
}

async fn measure(
    args: &Args,
    server: &Server,
    control: &Session,
    loading: &Loading,
    agent: Option<&Agent>,
    turn: Duration,
) -> Result<Value, String> {
    let ours = sessions_of_agents(control).await?;
    let postmaster = server.pid().ok_or("the server has ended")?;
    let not_load = |pid: &u32| *pid == control.pid as u32 || ours.contains(pid);
    let (before, ours_before, agent_before) =
        (family(postmaster), cpu_of(&ours), agent.map(|agent| cpu_ns(agent.pid())));
    let from = loading.now();
    sleep(turn).await;
    let to = loading.now();
    let (after, ours_after) = (family(postmaster), cpu_of(&ours));
    let agent_ns = agent.zip(agent_before).map(|(agent, before)| cpu_ns(agent.pid()).saturating_sub(before));
    let server_ns: u64 = after
        .iter()
        .filter(|(pid, _)| !not_load(pid))
        .map(|(pid, ns)| ns.saturating_sub(before.get(pid).copied().unwrap_or(0)))
        .sum();
    let requests = loading.ended_after(0);
    let ended: Vec<_> =
        requests.into_iter().filter(|request| (from..to).contains(&(request.at + request.latency))).collect();
    let figures = Figures::of(&ended, to.since(from));
    let seconds = to.since(from).as_secs_f64();
    Ok(json!({
        "connections": args.connections, "rate": args.rate, "culprit": args.culprit.map(Case::as_str),
        "seed": args.seed, "watched": agent.is_some(), "seconds": seconds,
        "ok": figures.ok, "throughput_per_s": figures.throughput_per_s,
        "p50_ms": figures.p50_ms, "p99_ms": figures.p99_ms,
        "server_cpu_s": server_ns as f64 / 1e9,
        "agent_session_cpu_s": (ours_after - ours_before) as f64 / 1e9,
        "agent_cpu_s": agent_ns.unwrap_or(0) as f64 / 1e9,
    }))
}

/// The processes that serve agents.
async fn sessions_of_agents(control: &Session) -> Result<Vec<u32>, String> {
    let rows = format!("select pid from pg_stat_activity where usename = '{ROLE}'");
    let rows = control.client.query(&rows, &[]).await.map_err(|e| why(&e))?;
    Ok(rows.iter().map(|row| row.get::<_, i32>(0).unsigned_abs()).collect())
}

fn cpu_of(pids: &[u32]) -> u64 {
    pids.iter().map(|&pid| cpu_ns(pid)).sum()
}

/// CPU time of the postmaster and its children, by process, in ns.
fn family(postmaster: u32) -> HashMap<u32, u64> {
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.chain([postmaster]).map(|pid| (pid, cpu_ns(pid))).collect()
}

/// CPU time of a process with all its threads, in ns; nothing of one that has gone.
fn cpu_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ran = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    ran.sum()
}
