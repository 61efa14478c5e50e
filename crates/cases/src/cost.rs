//! What it costs a server to be watched: turns with an agent and turns without, of the same server under the same load, undisturbed.
//!
//! CPU time is what the kernel says: of everything that this program has started and that is not the agent, which is the server with what it
//! does for the agent; and of the agent. A Java server compiles what it often does for many minutes, whenever it happens to: beside that
//! nothing small is seen, so it is also said what there is besides.

use std::collections::HashMap;
use std::fs;

use plimsoll_core::Nanos;
use plimsoll_core::config::case::{CaseFile, ServerKind};
use plimsoll_testbed::agent::Agent;
use plimsoll_testbed::database::load::Load;
use plimsoll_testbed::database::loading::Loading;
use plimsoll_testbed::database::request::Figures;
use serde::Serialize;

use crate::judge::promised;
use crate::run::{Plan, load};
use crate::stand::Stand;

/// In its first seconds an agent looks more closely, to learn what is usual.
const SETTLES: Nanos = Nanos::from_secs(5);

/// One turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Turn {
    /// Whether there was an agent.
    pub watched: bool,
    /// Requests that were answered, a second.
    pub per_s: f64,
    /// Time within which half of them, and 99 % of them, were answered, in milliseconds.
    pub p50_ms: Option<f64>,
    /// See there.
    pub p99_ms: Option<f64>,
    /// What the server's processes had, in per cent of a core.
    pub server_pct: f64,
    /// What of that its just-in-time compilers had, where there are any.
    pub compilers_pct: f64,
    /// What the agent had, likewise.
    pub agent_pct: f64,
}

/// What there is more of with an agent, in the mean over the pairs of turns, and two standard errors of that.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct More {
    /// The mean.
    pub mean: f64,
    /// The errors.
    pub error: f64,
}

/// What the turns of one case came to.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Its name.
    pub case: String,
    /// What the server calls itself.
    pub version: String,
    /// Processors of this machine.
    pub processors: usize,
    /// In the mean over the turns without an agent.
    pub per_s: f64,
    /// What the server's processes had without an agent, in the mean, in per cent of a core.
    pub server_pct: f64,
    /// What they had more of with one, in per cent of a core,
    pub more: More,
    /// and without what just-in-time compilers had, where there are any.
    pub more_besides: Option<More>,
    /// What the agent had, in the mean, in per cent of a core.
    pub agent_pct: f64,
    /// In the mean over the turns without an agent and over those with one, in milliseconds.
    pub p50_ms: [f64; 2],
    /// In the order in which they were taken.
    pub turns: Vec<Turn>,
}

/// Takes turns, once the server has been watched for as long as `warm_up`: `plan.length` each, as many with an agent as without. Each goes
/// first every second time.
///
/// # Errors
/// Where something does not start; of a server that no agent watches from beside it.
pub async fn cost(
    name: &str,
    case: &CaseFile,
    plan: &Plan,
    warm_up: Nanos,
    pairs: u32,
) -> Result<Cost, String> {
    if case.server.kind == ServerKind::Etcd {
        return Err("nothing watches an etcd from beside it: what it costs to have a sentry in front is another question"
            .to_owned());
    }
    Stand::is_there(&case.server)?;
    let mut stand = Stand::set(case, true).await?;
    let version = stand.version().await?;
    // Where an agent asks one, or our plug-in, it is there in all turns: what it does for the agent counts.
    stand.put_sentry_before(case, &plan.program)?;
    let length = plan.warm_up + warm_up + Nanos(2 * u64::from(pairs) * (SETTLES + plan.length).0) + SETTLES;
    let loading = stand.load(Load { length, ..load(case, plan) }).await?;
    tokio::time::sleep(plan.warm_up.into()).await;
    let slo = promised(case, &Figures::of(&loading.ended_after(0), plan.warm_up));
    if warm_up > Nanos::ZERO {
        let agent = stand.watch(case, slo, &plan.program)?;
        tokio::time::sleep(warm_up.into()).await;
        agent.stop()?;
    }
    let mut turns = Vec::new();
    for pair in 0..pairs {
        for watched in [pair % 2 == 1, pair % 2 == 0] {
            let agent = watched.then(|| stand.watch(case, slo, &plan.program)).transpose()?;
            tokio::time::sleep(SETTLES.into()).await;
            turns.push(turn(&loading, agent.as_ref(), plan.length).await);
            agent.map_or(Ok(Vec::new()), Agent::stop)?;
        }
    }
    loading.stop();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Cost::new(name, version, processors, turns))
}

async fn turn(loading: &Loading, agent: Option<&Agent>, length: Nanos) -> Turn {
    let (from, before) = (loading.now(), CpuTimes::read());
    tokio::time::sleep(length.into()).await;
    let (to, after) = (loading.now(), CpuTimes::read());
    let ended = loading.ended_after(0).into_iter();
    let ended: Vec<_> = ended.filter(|it| (from..to).contains(&(it.at + it.latency))).collect();
    let figures = Figures::of(&ended, to.since(from));
    let agent_pid = agent.map(Agent::pid);
    let pct = |ns: u64| 100.0 * ns as f64 / to.since(from).0 as f64;
    Turn {
        watched: agent.is_some(),
        per_s: figures.throughput_per_s,
        p50_ms: figures.p50_ms,
        p99_ms: figures.p99_ms,
        server_pct: pct(after.since(&before, |pid| Some(pid) != agent_pid)),
        compilers_pct: pct(after.compiled_since(&before)),
        agent_pct: pct(after.since(&before, |pid| Some(pid) == agent_pid)),
    }
}

/// CPU time of what this program has started and of what that has started, in ns.
struct CpuTimes {
    /// By process; with that of children which have ended.
    processes: HashMap<u32, u64>,
    /// By thread, of those that compile.
    compilers: HashMap<u32, u64>,
}

impl CpuTimes {
    fn read() -> CpuTimes {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let all: HashMap<u32, (u32, u64)> = pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
        let ours = std::process::id();
        let is_below = |mut pid: u32| {
            while let Some((parent, _)) = all.get(&pid) {
                if *parent == ours {
                    return true;
                }
                pid = *parent;
            }
            false
        };
        let below = all.iter().filter(|(pid, _)| is_below(**pid));
        let processes: HashMap<u32, u64> = below.map(|(pid, (_, ns))| (*pid, *ns)).collect();
        let compilers = processes.keys().copied().flat_map(compilers).collect();
        CpuTimes { processes, compilers }
    }

    /// What the processes that are meant have had since. One that has begun since had nothing before; what one had that has ended its
    /// parent has, once it has waited for it.
    fn since(&self, before: &CpuTimes, is_meant: impl Fn(u32) -> bool) -> u64 {
        let sum = |times: &CpuTimes| -> u64 {
            times.processes.iter().filter(|(pid, _)| is_meant(**pid)).map(|(_, ns)| *ns).sum()
        };
        sum(self).saturating_sub(sum(before))
    }

    /// What threads that compile have had since; of one that is gone nothing is known.
    fn compiled_since(&self, before: &CpuTimes) -> u64 {
        let since = |(thread, ns): (&u32, &u64)| ns - before.compilers.get(thread).unwrap_or(&0).min(ns);
        self.compilers.iter().map(since).sum()
    }
}

/// A process's threads that compile, if it is a Java virtual machine, and the CPU time of each in ns.
fn compilers(pid: u32) -> Vec<(u32, u64)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        // The kernel cuts names short.
        if !(name.starts_with("C1 Compiler") || name.starts_with("C2 Compiler")) {
            return None;
        }
        let had = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, had.split(' ').next()?.parse().ok()?))
    };
    threads.filter_map(of).collect()
}

/// A process's parent, and its CPU time with that of the children that it has waited for, in ns.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, and ends with the last parenthesis.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks: u64 = (11..15).map(number).sum::<Option<u64>>()?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    Some((u32::try_from(number(1)?).ok()?, ticks * tick_ns))
}

impl Cost {
    fn new(case: &str, version: String, processors: usize, turns: Vec<Turn>) -> Cost {
        let mean = |watched: bool, of: &dyn Fn(&Turn) -> f64| {
            let turns = || turns.iter().filter(|turn| turn.watched == watched);
            turns().map(of).sum::<f64>() / turns().count().max(1) as f64
        };
        let compiles = turns.iter().any(|turn| turn.compilers_pct > 0.0);
        Cost {
            case: case.to_owned(),
            version,
            processors,
            per_s: mean(false, &|turn| turn.per_s),
            server_pct: mean(false, &|turn| turn.server_pct),
            more: More::of(&turns, |turn| turn.server_pct),
            more_besides: compiles.then(|| More::of(&turns, |turn| turn.server_pct - turn.compilers_pct)),
            agent_pct: mean(true, &|turn| turn.agent_pct),
            p50_ms: [false, true].map(|watched| mean(watched, &|turn| turn.p50_ms.unwrap_or(f64::NAN))),
            turns,
        }
    }

    /// In a line.
    pub fn text(&self) -> String {
        let Cost {
            case, version, processors, per_s, server_pct, more, more_besides, agent_pct, p50_ms, ..
        } = self;
        let cpus = *processors as f64;
        let say = |more: &More| {
            let More { mean, error } = more;
            let [part, part_error] = [mean, error].map(|pct| pct / cpus);
            format!(
                "{mean:.2} % more (+- {error:.2}), which is {part:.2} % of all processors (+- {part_error:.2})"
            )
        };
        let besides = more_besides.as_ref().map(|more| format!("; without its compilers {}", say(more)));
        let [without_ms, with_ms] = p50_ms;
        format!(
            "{case}: {version}, {per_s:.0} requests/s: the server takes {server_pct:.2} % of a core, watched {}{}; \
             the agent takes {agent_pct:.2} % of a core; p50 {without_ms:.2} ms without, {with_ms:.2} ms with",
            say(more),
            besides.unwrap_or_default(),
        )
    }
}

impl More {
    fn of(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> More {
        let pair = |pair: &[Turn]| -> f64 {
            pair.iter().map(|turn| if turn.watched { of(turn) } else { -of(turn) }).sum()
        };
        let more: Vec<f64> = turns.chunks(2).map(pair).collect();
        let pairs = more.len().max(1) as f64;
        let mean = more.iter().sum::<f64>() / pairs;
        let variance = more.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (pairs - 1.0).max(1.0);
        More { mean, error: 2.0 * (variance / pairs).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use plimsoll_testbed::clock::Clock;

    use super::*;

    #[test]
    fn what_children_and_theirs_have_is_told_and_nobody_elses() {
        let before = CpuTimes::read();
        // Computes in a grandchild, and then waits for us.
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; read end";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let had =
            |times: &CpuTimes| times.since(&before, |it| it == pid || !before.processes.contains_key(&it));
        let clock = Clock::start();
        while had(&CpuTimes::read()) < 20_000_000 {
            assert!(clock.now() < Nanos::from_secs(60), "it has had nothing");
        }
        assert_eq!(CpuTimes::read().since(&before, |it| it == std::process::id()), 0);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn what_is_more_is_told_by_pairs() {
        let turn = |watched, server_pct, compilers_pct| Turn {
            watched,
            per_s: 400.0,
            p50_ms: Some(0.5),
            p99_ms: Some(1.0),
            server_pct,
            compilers_pct,
            agent_pct: if watched { 0.4 } else { 0.0 },
        };
        let turns = |compilers: [f64; 4]| {
            let pcts = [(false, 20.0), (true, 21.0), (true, 30.0), (false, 29.6)].into_iter().zip(compilers);
            pcts.map(|((watched, pct), compilers)| turn(watched, pct, compilers)).collect()
        };
        let text = |turns| Cost::new("c1", "MariaDB".to_owned(), 2, turns).text();
        let told = text(turns([0.0; 4]));
        assert!(told.contains("24.80 % of a core, watched 0.70 % more (+- 0.60)"), "{told}");
        assert!(told.contains("0.35 % of all processors (+- 0.30); the agent takes 0.40 %"), "{told}");
        let told = text(turns([5.0, 5.8, 9.8, 9.6]));
        assert!(told.contains("(+- 0.30); without its compilers 0.20 % more (+- 0.00)"), "{told}");
    }

    #[test]
    fn who_compiles_is_told_by_name() {
        let times = |compilers: &[(u32, u64)]| CpuTimes {
            processes: HashMap::new(),
            compilers: compilers.iter().copied().collect(),
        };
        let (before, after) = (times(&[(1, 100), (2, 50)]), times(&[(1, 130), (3, 7)]));
        assert_eq!(after.compiled_since(&before), 37, "one has begun, and one is gone");
        let named = std::thread::Builder::new().name("C2 CompilerThread0".to_owned());
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let thread = named.spawn(move || asked.recv()).unwrap();
        while compilers(std::process::id()).len() != 1 {
            std::thread::yield_now();
        }
        drop(ask);
        thread.join().unwrap().unwrap_err();
    }
}
