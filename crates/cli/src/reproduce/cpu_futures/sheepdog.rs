//! SheepDog on a real Apache: 250 clients, of which more or fewer ask for pages that compute (the mixes of Fig. 11). Apache with its
//! default of 256 workers and with a few others; with our module, which has as many of them work at once as keep every worker within a
//! slowdown; and, beside that, behind a sentry that does the same with requests, as an agent tells it. The sentry forwards every request on the
//! same two CPUs, which pages that are only read are too short to make up for.
//!
//! Throughput is work: the CPU time that the pages which were answered take. Who has more workers answers more of the cheap pages beside the
//! same number of dear ones, or the other way round, so requests a second of two settings cannot be compared where there are both. A machine
//! that others share is half as fast for some seconds, so each half second counts by how long a small task took on each CPU meanwhile:
//! throughput is told for this machine at its fastest. Settings take turns, in every other round the other way round, and they are compared by
//! the median over rounds of them side by side. The best of some settings by a measurement was lucky in it too; so which is the best is decided
//! for each round by all others. And whoever looks at workers ten times a second takes a per cent of the CPUs from a server that has many. So
//! that is done after their work was measured.
//!
//! The paper counts requests that starve. That is the O(1) scheduler's doing; today's treats equals alike, so here slowdowns and
//! throughput are judged, and requests over ten seconds are told beside.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::rng;
use plimsoll_herald::clock;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use rand::RngExt;

use super::apache::{Apache, STATIC, computing};
use super::clients::{self, Seen, Stage};
use super::turns::mean;
use super::wait_for;
use super::workers::{Fare, Watch};
use crate::processes::{answers, configure, directory, free_addresses, ready, role, said};
use crate::reproduce::speed::{Probe, Speed};

/// As in the paper.
const CLIENTS: usize = 250;
const DEFAULT_WORKERS: u32 = 256;
/// Per cent of the clients that ask for pages that compute.
const MIXES: [u32; 5] = [0, 25, 50, 75, 100];
/// Other settings that somebody may have found for two CPUs: about what keeps them busy, and a few times that.
const STATIC_WORKERS: [u32; 2] = [8, 32];
/// The paper's bound, and ours by default.
const BOUNDS: [f64; 2] = [50.0, 5.0];
/// CPU time of a page that computes, in milliseconds: all differ, by this factor up and down, so that clients do not keep step.
const PAGE_MS: f64 = 20.0;
const SPREAD: f64 = 1.5;
/// And of one that is read: two CPUs answer some 17,000 a second, clients included.
const STATIC_MS: f64 = 0.1;
/// The controller finds its setting, and the queues fill.
const WARM_UP: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);
/// In parts of this length.
const PART: Duration = Duration::from_millis(500);
/// Then the workers are looked at, the first times to know what they do at all.
const LOOKED: Duration = Duration::from_secs(5);
const FIRST_LOOKS: usize = 10;
/// Rounds of all settings under one mix; of the sentry, which nothing is judged by, fewer.
const ROUNDS: usize = 5;
const SENTRY_ROUNDS: usize = 1;
/// What the paper calls starved.
const STARVED: Nanos = Nanos::from_secs(10);
/// Of everything random here.
const STREAM: u64 = 72;

/// Limits of ours, in per cent: samples in which every worker is within the bound, and throughput beside the best static setting's.
const WITHIN_PCT: f64 = 99.0;
const OF_BEST_PCT: f64 = 97.0;

/// How many workers there are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    /// So many of Apache's own.
    Static(u32),
    /// Apache's default, held to this bound by our module.
    Module(f64),
    /// Apache's default, behind a sentry with this bound.
    Sentry(f64),
}

impl Setting {
    fn all() -> impl Iterator<Item = Setting> {
        let statics = [DEFAULT_WORKERS].into_iter().chain(STATIC_WORKERS).map(Setting::Static);
        statics.chain(BOUNDS.map(Setting::Module)).chain([Setting::Sentry(BOUNDS[1])])
    }

    fn name(self) -> String {
        match self {
            Setting::Static(DEFAULT_WORKERS) => "default".to_owned(),
            Setting::Static(workers) => format!("{workers} workers"),
            Setting::Module(bound) => format!("SheepDog {bound}"),
            Setting::Sentry(bound) => format!("sentry {bound}"),
        }
    }
}

/// One setting under one mix.
struct Run {
    setting: Setting,
    mix: u32,
    rounds: Vec<Round>,
    /// What the small task takes where this machine is at its fastest.
    fastest_ns: f64,
    /// After the warm-up, of all rounds.
    fares: Vec<Fare>,
}

/// What clients saw in one.
struct Round {
    parts: Vec<Part>,
    over: usize,
    failed: usize,
}

/// Half a second of it.
struct Part {
    /// What a small task took meanwhile.
    task_ns: f64,
    answered: f64,
    /// Milliseconds of CPU time of the pages that were answered.
    work_ms: f64,
}

impl Round {
    fn of(seen: &Seen, speed: &Speed, began: Nanos, (seed, mix): (u64, u32)) -> Round {
        let page = |client, asked| page_ms(seed, mix, client, asked).unwrap_or(STATIC_MS);
        let part = |number: u32| {
            let from = WARM_UP + PART * number;
            let (from_s, to_s) = (from.as_secs_f64(), (from + PART).as_secs_f64());
            Part {
                task_ns: speed.task_ns(began + from.into(), began + (from + PART).into()),
                answered: seen.answered(from_s, to_s) as f64,
                work_ms: seen.worth(from_s, to_s, page),
            }
        };
        let parts = (0..(MEASURED.as_millis() / PART.as_millis()) as u32).map(part).collect();
        Round { parts, over: seen.over(STARVED), failed: seen.failed() }
    }

    /// What `of` would have come to a second had the small task taken so long in every part.
    fn per_s(&self, fastest_ns: f64, of: impl Fn(&Part) -> f64) -> Option<f64> {
        let known = self.parts.iter().filter(|part| part.task_ns.is_finite());
        let all: Vec<f64> = known.map(|part| of(part) * part.task_ns / fastest_ns).collect();
        (!all.is_empty()).then(|| mean(&all) / PART.as_secs_f64())
    }
}

/// What the small task takes in the fastest twentieth of all parts under a mix.
fn fastest_ns(runs: &[Run]) -> f64 {
    let parts = runs.iter().flat_map(|run| &run.rounds).flat_map(|round| &round.parts);
    let mut all: Vec<f64> = parts.map(|part| part.task_ns).filter(|ns| ns.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 20).copied().unwrap_or(f64::NAN)
}

impl Run {
    fn per_s(&self) -> f64 {
        median(self.rounds.iter().filter_map(|round| round.per_s(self.fastest_ns, |part| part.answered)))
    }

    fn work_ms_per_s(&self) -> f64 {
        median(self.rounds.iter().filter_map(|round| self.work_of(round)))
    }

    fn work_of(&self, round: &Round) -> Option<f64> {
        round.per_s(self.fastest_ns, |part| part.work_ms)
    }

    /// The same by all rounds but one.
    fn work_without(&self, left_out: usize) -> f64 {
        let others = self.rounds.iter().enumerate().filter(|(round, _)| *round != left_out);
        median(others.filter_map(|(_, round)| self.work_of(round)))
    }

    /// Work of each round over that in it of whoever it is compared with, in per cent.
    fn work_beside<'a>(&self, other: impl Fn(usize) -> &'a Run) -> Vec<f64> {
        let beside = |round: usize| other(round).work_of(other(round).rounds.get(round)?);
        let pairs = self.rounds.iter().enumerate();
        pairs.filter_map(|(i, own)| Some(100.0 * self.work_of(own)? / beside(i)?)).collect()
    }

    /// Requests that starved.
    fn over(&self) -> usize {
        self.rounds.iter().map(|round| round.over).sum()
    }

    /// Samples within a bound, in per cent.
    fn within(&self, bound: f64) -> f64 {
        let within = self.fares.iter().filter(|fare| fare.slowdown <= bound).count();
        100.0 * within as f64 / self.fares.len() as f64
    }

    fn mean_active(&self) -> f64 {
        self.fares.iter().map(|fare| f64::from(fare.active)).sum::<f64>() / self.fares.len() as f64
    }

    fn worst(&self) -> f64 {
        self.fares.iter().map(|fare| fare.slowdown).fold(1.0, f64::max)
    }
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Slowdowns, throughput and starved requests over the mixes.
pub fn sheepdog(settings: Settings) -> Result<Findings, String> {
    let mut runs = Vec::new();
    wait_for(async {
        for mix in MIXES {
            let first = runs.len();
            let none =
                |setting| Run { setting, mix, rounds: Vec::new(), fastest_ns: f64::NAN, fares: Vec::new() };
            runs.extend(Setting::all().map(none));
            for round in 1..=ROUNDS {
                let takes_part =
                    |run: &&mut Run| round <= SENTRY_ROUNDS || !matches!(run.setting, Setting::Sentry(_));
                let mut in_turn: Vec<_> = runs[first..].iter_mut().filter(takes_part).collect();
                if round % 2 == 0 {
                    in_turn.reverse();
                }
                for run in in_turn {
                    let name = run.setting.name();
                    eprintln!(
                        "sheepdog: {mix} % of the clients ask for pages that compute, {name}, round {round}"
                    );
                    let (round, fares) = one_round(run.setting, mix, settings.seed).await?;
                    run.rounds.push(round);
                    run.fares.extend(fares);
                }
            }
            let fastest_ns = fastest_ns(&runs[first..]);
            runs[first..].iter_mut().for_each(|run| run.fastest_ns = fastest_ns);
        }
        Ok(())
    })?;
    Ok(findings(&runs))
}

async fn one_round(setting: Setting, mix: u32, seed: u64) -> Result<(Round, Vec<Fare>), String> {
    let workers = if let Setting::Static(workers) = setting { workers } else { DEFAULT_WORKERS };
    let of_module = if let Setting::Module(bound) = setting { Some(bound) } else { None };
    let apache = Apache::start(workers, of_module)?;
    let directory = directory()?;
    let [listen, admin, agent_admin] = free_addresses()?;
    let (at, _roles) = match setting {
        Setting::Static(_) | Setting::Module(_) => (apache.addr, None),
        Setting::Sentry(bound) => {
            configure(directory.path(), &config([listen, admin, agent_admin, apache.addr], bound))?;
            let sentry = role(directory.path(), "sentry", &[])?;
            ready(admin).await.map_err(|error| error + &said(directory.path(), "sentry"))?;
            let agent = role(directory.path(), "agent", &[])?;
            answers(agent_admin, "/healthz", "the agent")
                .await
                .map_err(|error| error + &said(directory.path(), "agent"))?;
            (listen, Some((sentry, agent)))
        }
    };
    let page = move |client: usize, asked: usize| match page_ms(seed, mix, client, asked) {
        Some(ms) => computing(ms),
        None => STATIC.to_owned(),
    };
    let stages = [Stage { clients: CLIENTS, think: Duration::ZERO, lasts: WARM_UP + MEASURED + LOOKED }];
    let (probe, began) = (Probe::start()?, clock::now());
    let load = clients::run(at, &stages, page, |_| ());
    let mut fares = Vec::new();
    let look = async {
        tokio::time::sleep(WARM_UP + MEASURED).await;
        let mut watch = Watch::start(apache.master())?;
        for _ in 0..FIRST_LOOKS {
            watch.next().await;
        }
        while let Some(fare) = watch.next().await {
            fares.push(fare);
        }
        Err::<Seen, String>("the herald has ended".to_owned())
    };
    let seen = tokio::select! {
        seen = load => seen,
        failed = look => failed?,
    };
    Ok((Round::of(&seen, &probe.end(), began, (seed, mix)), fares))
}

/// CPU time of the page that a client asks for, in milliseconds; nothing for one that is read.
fn page_ms(seed: u64, mix: u32, client: usize, asked: usize) -> Option<f64> {
    if client >= CLIENTS * mix as usize / 100 {
        return None;
    }
    let mut rng = rng::seeded(seed, STREAM + (client * 100_000 + asked) as u64);
    Some(PAGE_MS * SPREAD.powf(rng.random_range(-1.0..1.0)))
}

fn config([listen, admin, agent, apache]: [SocketAddr; 4], bound: f64) -> String {
    format!(
        r#"[sentry]
listen  = "{listen}"
admin   = "{admin}"
threads = 1

[agent]
admin = "{agent}"

[pool.apache]
servers      = ["{apache}"]
workers      = "adaptive"
max_slowdown = {bound:?}
admission    = {{ policy = "none" }}

[class.default]
"#
    )
}

fn findings(runs: &[Run]) -> Findings {
    let mut rows = Vec::new();
    for mix in MIXES {
        let of = |setting| runs.iter().find(move |run| run.mix == mix && run.setting == setting);
        let statics =
            || runs.iter().filter(move |run| run.mix == mix && matches!(run.setting, Setting::Static(_)));
        // One whose machine's speed was never known has none.
        let most = |work: &dyn Fn(&Run) -> f64| {
            statics().filter(|run| work(run).is_finite()).max_by(|a, b| work(a).total_cmp(&work(b)))
        };
        let Some((best, default)) = most(&Run::work_ms_per_s).zip(of(Setting::Static(DEFAULT_WORKERS)))
        else {
            continue;
        };
        let best_by_others = |round| most(&|run| run.work_without(round)).unwrap_or(best);
        let what = |of: &str| format!("{mix} % compute: {of}");
        rows.push(Row::beside(
            what("best static setting, CPU ms of pages/s"),
            None,
            Some(best.work_ms_per_s()),
        ));
        rows.push(Row::beside(what("best static setting, requests/s"), None, Some(best.per_s())));
        rows.push(Row::beside(what("default, requests/s"), None, Some(default.per_s())));
        rows.push(Row::beside(what("default, worst slowdown"), None, Some(default.worst())));
        rows.push(Row::beside(what("default, over 10 s"), None, Some(default.over() as f64)));
        for (bound, run) in BOUNDS.iter().filter_map(|bound| Some((bound, of(Setting::Module(*bound))?))) {
            let what = |of: &str| format!("{mix} % compute, SheepDog {bound}: {of}");
            let of_best = run.work_beside(best_by_others);
            rows.extend([
                Row::no_less(what("samples with every worker within it, %"), WITHIN_PCT, run.within(*bound)),
                Row::no_less(
                    what("work, % of the best static setting's"),
                    OF_BEST_PCT,
                    median(of_best.iter().copied()),
                ),
                Row::beside(
                    what("the same, least of a round"),
                    None,
                    of_best.iter().copied().reduce(f64::min),
                ),
                Row::beside(
                    what("the same, most of a round"),
                    None,
                    of_best.iter().copied().reduce(f64::max),
                ),
                Row::beside(what("requests/s"), None, Some(run.per_s())),
                Row::beside(what("workers, mean"), None, Some(run.mean_active())),
                Row::beside(what("worst slowdown"), None, Some(run.worst())),
                Row::beside(what("over 10 s"), None, Some(run.over() as f64)),
            ]);
        }
    }
    for (mix, bound) in MIXES.into_iter().map(|mix| (mix, BOUNDS[1])) {
        let of = |setting| runs.iter().find(move |run| run.mix == mix && run.setting == setting);
        let Some((sentry, module)) = of(Setting::Sentry(bound)).zip(of(Setting::Module(bound))) else {
            continue;
        };
        let what = |of: &str| format!("{mix} % compute, sentry {bound}: {of}");
        let work = median(sentry.work_beside(|_| module).into_iter());
        rows.extend([
            Row::beside(what("samples with every worker within it, %"), None, Some(sentry.within(bound))),
            Row::beside(what("work, % of the module's"), None, Some(work)),
        ]);
    }
    let failed: usize = runs.iter().flat_map(|run| &run.rounds).map(|round| round.failed).sum();
    rows.push(Row::no_more("requests that failed", 0.0, failed as f64));
    let lines = |of: &dyn Fn(&Run) -> f64| -> Vec<Line> {
        let line = |setting: Setting| Line {
            name: setting.name(),
            points: runs
                .iter()
                .filter(|run| run.setting == setting)
                .map(|run| (f64::from(run.mix), of(run)))
                .collect(),
        };
        Setting::all().map(line).collect()
    };
    let chart =
        |title, y, of: &dyn Fn(&Run) -> f64| Chart::new(title, "% of the clients that compute", y, lines(of));
    let charts = vec![
        chart("Throughput", "CPU ms of pages a second", &Run::work_ms_per_s),
        chart("Worst slowdown of a worker", "times", &Run::worst),
        chart("Workers", "", &Run::mean_active),
    ];
    Findings { rows, figures: vec![Figure { name: "sheepdog".to_owned(), charts }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_counts_as_on_a_machine_at_its_fastest() {
        let part = |task_ns, work_ms| Part { task_ns, answered: 1.0, work_ms };
        let slow = (0..12).map(|_| part(200.0, 300.0));
        let mut parts: Vec<Part> = slow.chain((0..12).map(|_| part(100.0, 600.0))).collect();
        parts.push(part(f64::NAN, 900.0));
        let round = Round { parts, over: 0, failed: 0 };
        let mut run = Run {
            setting: Setting::Static(8),
            mix: 0,
            rounds: vec![round],
            fastest_ns: 0.0,
            fares: Vec::new(),
        };
        run.fastest_ns = fastest_ns(std::slice::from_ref(&run));
        assert_eq!(run.work_ms_per_s(), 1_200.0);
        run.rounds[0].parts.retain(|part| part.task_ns.is_nan());
        assert!(run.work_ms_per_s().is_nan(), "nobody knows how fast it was");
    }
}
