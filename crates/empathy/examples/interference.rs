//! What a job costs a service beside it, and what it gets: alone, beside a job of nice 19, beside the same job under
//! `plimsoll yield --idle-only`; and how well slowdown limits are kept. Prints JSON.
//!
//! ```text
//! cargo run --release -p plimsoll-empathy --example interference -- [idle-only|limits] [--rounds N] [--seed S]
//! ```
//! It uses `plimsoll-yield` beside itself, which `cargo build --release -p plimsoll-empathy` makes.
//!
//! The service is an open loop of requests that burn a drawn time, one worker a CPU, alternating between light (40 %) and heavy
//! (all CPUs wanted, and more) every two seconds. A job takes one process a CPU and burns. The share of idle cycles is what the job
//! ran over what the service left of the CPUs when it ran alone in the same phase.
#![allow(clippy::disallowed_methods)] // It measures real time.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_empathy::process::all;
use plimsoll_empathy::tree::Tree;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

/// Mean time that a request burns.
const SERVICE_MS: f64 = 2.0;
const LIGHT: f64 = 0.4;
const HEAVY: f64 = 1.2;
const PHASE: Duration = Duration::from_secs(2);
const PHASES: usize = 4;
/// How long a run that keeps a slowdown limit is watched.
const LIMIT_RUN: Duration = Duration::from_secs(25);
const BURN: &str = "while :; do :; done";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (rounds, seed) = (number("--rounds", 3), number("--seed", 1));
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let what = args.get(1).map_or("idle-only", String::as_str);
    let result = match what {
        "idle-only" => idle_only(rounds, seed, cpus),
        "limits" => Value::from_iter([2, 5, 10, 20].map(|limit| (limit.to_string(), keeps(limit, cpus)))),
        other => panic!("{other}? Say idle-only or limits"),
    };
    println!("{}", json!({ "what": what, "cpus": cpus, "seed": seed, "rounds": rounds, "result": result }));
}

/// A job, ended with all its processes when it is dropped.
struct Job(Child);

impl Job {
    fn start(command: &[&str]) -> Job {
        let mut start = Command::new(command[0]);
        Job(start.args(&command[1..]).stdin(Stdio::null()).spawn().expect("the job starts"))
    }

    fn pids(&self) -> Vec<i32> {
        let mut tree = Tree::from(self.0.id() as i32, &[]);
        tree.refresh();
        tree.processes().map(|process| process.pid).collect()
    }

    /// How long its processes have run, in seconds, in which `yield` itself counts too.
    fn ran_s(&self) -> f64 {
        self.pids().into_iter().map(ran_s).sum()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let pids = self.pids();
        let kill =
            |pid: i32| Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        let own = self.0.id() as i32;
        let _ = Command::new("kill").args(["-TERM", &own.to_string()]).status();
        for pid in pids.into_iter().filter(|pid| *pid != own) {
            let guard =
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains("guard"));
            if !guard {
                let _ = kill(pid);
            }
        }
        let _ = self.0.wait();
    }
}

fn ran_s(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn yields() -> String {
    let beside =
        std::env::current_exe().expect("a path").parent().expect("a folder").with_file_name("plimsoll-yield");
    beside.to_str().expect("text").to_owned()
}

fn hogs(cpus: usize) -> String {
    format!("{} wait", format!("sh -c '{BURN}' & ").repeat(cpus))
}

/// What the service did in one phase.
#[derive(Default)]
struct Phase {
    done: AtomicU64,
    latencies: std::sync::OnceLock<Vec<f64>>,
}

/// Runs the service for all phases. Returns requests done a second, and mean and p99 latency in ms, by light and heavy phases.
fn serve(seed: u64, cpus: usize, mut at_phase: impl FnMut(usize)) -> Vec<(f64, f64, f64)> {
    // The schedule: arrival, and how long each burns, drawn beforehand so that every variant gets the same.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    while at < PHASE.as_secs_f64() * PHASES as f64 {
        let phase = (at / PHASE.as_secs_f64()) as usize;
        let load = [LIGHT, HEAVY][phase % 2];
        let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
        let service = exponential(SERVICE_MS / 1e3);
        arrivals.push((at, service));
        at += exponential(SERVICE_MS / 1e3 / (load * cpus as f64));
    }
    let phases: Vec<Phase> = (0..PHASES).map(|_| Phase::default()).collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let since = || start.elapsed().as_secs_f64();
    let works = || {
        let mut done = Vec::new();
        loop {
            let Some(&(at, service)) = arrivals.get(next.fetch_add(1, Relaxed)) else { return done };
            let phase = (at / PHASE.as_secs_f64()) as usize;
            let end_of_phase = (phase + 1) as f64 * PHASE.as_secs_f64();
            // What is left over from an overloaded phase is given up: phases are measured apart.
            if since() > end_of_phase {
                continue;
            }
            std::thread::sleep(Duration::from_secs_f64((at - since()).max(0.0)));
            burn(service);
            if since() <= end_of_phase {
                phases[phase].done.fetch_add(1, Relaxed);
                done.push((phase, (since() - at) * 1e3));
            }
        }
    };
    let all: Vec<(usize, f64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(works)).collect();
        for phase in 0..PHASES {
            std::thread::sleep(PHASE.mul_f64((phase) as f64).saturating_sub(start.elapsed()));
            at_phase(phase);
        }
        std::thread::sleep(PHASE.mul_f64(PHASES as f64).saturating_sub(start.elapsed()));
        at_phase(PHASES);
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    phases
        .iter()
        .enumerate()
        .map(|(at, phase)| {
            let mut latencies: Vec<f64> = all.iter().filter(|(of, _)| *of == at).map(|(_, ms)| *ms).collect();
            latencies.sort_by(f64::total_cmp);
            let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
            let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(0.0);
            let _ = phase.latencies.set(latencies);
            (phase.done.load(Relaxed) as f64 / PHASE.as_secs_f64(), mean, p99)
        })
        .collect()
}

/// CPU time, not wall time: what a request costs does not depend on who interrupts it.
fn burn(seconds: f64) {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let start = used();
    while used() - start < seconds {
        std::hint::spin_loop();
    }
}

fn idle_only(rounds: u64, seed: u64, cpus: usize) -> Value {
    let hogs = hogs(cpus);
    let yields = yields();
    let variants: [(&str, Vec<&str>); 3] = [
        ("alone", vec![]),
        ("nice19", vec!["nice", "-n", "19", "sh", "-c", &hogs]),
        ("yield", vec![&yields, "--idle-only", "--quiet", "--", "sh", "-c", &hogs]),
    ];
    let mut results = Vec::new();
    for round in 0..rounds {
        let mut rows = serde_json::Map::new();
        for (name, command) in &variants {
            let job = (!command.is_empty()).then(|| Job::start(command));
            std::thread::sleep(Duration::from_millis(1_500));
            let mut ran = Vec::new();
            let mut idle = Vec::new();
            let served = serve(seed + round, cpus, |_| {
                ran.push(job.as_ref().map_or(0.0, Job::ran_s));
                idle.push(idle_s());
            });
            let of = |kind: usize| {
                let phases: Vec<usize> = (0..PHASES).filter(|phase| phase % 2 == kind).collect();
                let mean = |get: &dyn Fn(usize) -> f64| {
                    phases.iter().map(|&at| get(at)).sum::<f64>() / phases.len() as f64
                };
                json!({
                    "requests_per_s": mean(&|at| served[at].0),
                    "mean_ms": mean(&|at| served[at].1),
                    "p99_ms": mean(&|at| served[at].2),
                    "job_cpus": mean(&|at| (ran[at + 1] - ran[at]) / PHASE.as_secs_f64()),
                    "idle_cpus": mean(&|at| (idle[at + 1] - idle[at]) / PHASE.as_secs_f64()),
                })
            };
            rows.insert((*name).to_owned(), json!({ "light": of(0), "heavy": of(1) }));
        }
        results.push(Value::Object(rows));
    }
    Value::Array(results)
}

/// Seconds that the CPUs were idle, all together.
fn idle_s() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let field = |at: usize| text.split_ascii_whitespace().nth(at).and_then(|ticks| ticks.parse::<f64>().ok());
    (field(4).unwrap_or(0.0) + field(5).unwrap_or(0.0)) / 100.0
}

/// Slowdowns of a job of one process a CPU (of those that this program may use), beside so many hogs that an equal share would be too little, over each ten seconds.
fn keeps(limit: u32, cpus: usize) -> Value {
    // Twice as many as would do.
    let beside: Vec<Job> = (0..2 * limit as usize * cpus).map(|_| Job::start(&["sh", "-c", BURN])).collect();
    std::thread::sleep(Duration::from_millis(500));
    let limit = limit.to_string();
    let hogs = hogs(cpus);
    let job = Job::start(&[&yields(), "--max-slowdown", &limit, "--quiet", "--", "sh", "-c", &hogs]);
    let own = job.0.id() as i32;
    let start = Instant::now();
    let mut ticks: Vec<(f64, f64)> = Vec::new();
    while start.elapsed() < LIMIT_RUN {
        std::thread::sleep(Duration::from_millis(250));
        ticks.push((start.elapsed().as_secs_f64(), job.ran_s() - ran_s(own)));
    }
    drop(job);
    drop(beside);
    let slowdown = |from: usize, to: usize| {
        (ticks[to].0 - ticks[from].0) * cpus as f64 / (ticks[to].1 - ticks[from].1).max(1e-9)
    };
    let windows: Vec<f64> = (0..ticks.len())
        .filter_map(|from| {
            let to = (from..ticks.len()).find(|&to| ticks[to].0 - ticks[from].0 >= 10.0)?;
            Some(slowdown(from, to))
        })
        .collect();
    let settled = &windows[windows.len().min(12)..];
    json!({
        "windows": windows.len(),
        "worst": windows.iter().copied().fold(0.0, f64::max),
        "least_settled": settled.iter().copied().fold(f64::INFINITY, f64::min),
        "all": slowdown(0, ticks.len() - 1),
        "processes_on_host": all().len(),
    })
}
