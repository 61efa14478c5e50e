//! Fig. 9 to 11: requests that starve, with the default pool of workers, with pools of a fixed size, and with one that SheepDog sizes.

use plimsoll_cpufutures::SheepDog;

use super::herald::{PriorityHerald, each_period};
use super::workload::{CLIENTS, CPUS, DEFAULT_WORKERS, Outcome, RUN, server};
use crate::figures::{Chart, Figure, Line};
use crate::parallel;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::{Settings, values};
use crate::scheduler::{Machine, O1, Pool};

/// No worker is to be slowed more (section 5.3).
const BOUND: f64 = 50.0;
/// Pools of a fixed size.
const SIZES: [usize; 9] = [4, 8, 16, 24, 40, 64, 96, 128, 192];
/// Runs of everything (section 5.3), and of the quick study.
const RUNS: u64 = 5;
const QUICK_RUNS: u64 = 2;
/// How far the default's count may be from the published one, as a share of that, for anything to be said against it.
const NEAR: f64 = 0.2;
/// Ours starves at most so much of what the default does, and none longer than this.
const OF_DEFAULT: f64 = 0.05;
const LONGEST_S: f64 = 15.0;

/// How many workers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizing {
    Fixed(usize),
    SheepDog,
}

/// What became of the requests, and how many workers there were on average.
struct Ran {
    outcome: Outcome,
    workers: f64,
}

fn run(sizing: Sizing, clients: [usize; 2], seed: u64) -> Ran {
    match sizing {
        Sizing::Fixed(workers) => {
            let mut server = server(O1::new(CPUS), workers, clients, seed);
            server.advance(RUN);
            Ran { outcome: Outcome::of(&server), workers: workers as f64 }
        }
        Sizing::SheepDog => herded(clients, seed),
    }
}

/// With SheepDog, which begins with one worker a CPU. It is told the worse of what every worker gets and will get: that one is in the
/// expired array is nothing that its priority says.
fn herded(clients: [usize; 2], seed: u64) -> Ran {
    let mut server = server(O1::new(CPUS), CPUS, clients, seed);
    let mut herald = PriorityHerald::new(CPUS);
    let mut dog = SheepDog::new(1..=DEFAULT_WORKERS as i64, CPUS as i64, BOUND);
    let (mut workers, mut periods) = (0.0, 0.0);
    each_period(&mut server, RUN, |server: &mut Machine<O1, Pool>| {
        herald.sample(server);
        let slowdowns: Vec<f64> = server
            .accounts()
            .filter(|&(task, _)| server.workload.serves(task))
            .filter_map(|(task, _)| herald.of(task))
            .map(|found| found.slowdown().max(found.predicted_slowdown()))
            .collect();
        server.resize(dog.measured(server.now(), slowdowns, true) as usize);
        workers += server.workload.workers() as f64;
        periods += 1.0;
    });
    Ran { outcome: Outcome::of(&server), workers: workers / periods }
}

/// Several runs of the same.
struct Runs(Vec<Ran>);

impl Runs {
    fn mean(&self, of: impl Fn(&Ran) -> f64) -> f64 {
        self.0.iter().map(of).sum::<f64>() / self.0.len() as f64
    }

    fn starved(&self) -> f64 {
        self.mean(|ran| ran.outcome.starved_s.len() as f64)
    }

    fn throughput_per_s(&self) -> f64 {
        self.mean(|ran| ran.outcome.throughput_per_s)
    }

    fn workers(&self) -> f64 {
        self.mean(|ran| ran.workers)
    }

    fn longest_s(&self) -> f64 {
        self.0.iter().map(|ran| ran.outcome.longest_s()).fold(0.0, f64::max)
    }

    /// Of all that starved, how long they took, sorted.
    fn starved_s(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.0.iter().flat_map(|ran| ran.outcome.starved_s.iter().copied()).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

/// All of these, each with every seed.
fn all(settings: Settings, of: &[(Sizing, [usize; 2])]) -> Vec<Runs> {
    let runs = if settings.quick { QUICK_RUNS } else { RUNS };
    let seeds = || (settings.seed..).take(runs as usize);
    let jobs: Vec<_> =
        of.iter().flat_map(|&(sizing, clients)| seeds().map(move |seed| (sizing, clients, seed))).collect();
    let mut ran = parallel::map(&jobs, |&(sizing, clients, seed)| run(sizing, clients, seed)).into_iter();
    of.iter().map(|_| Runs(ran.by_ref().take(runs as usize).collect())).collect()
}

/// As many clients of both classes.
const EVEN: [usize; 2] = [CLIENTS, CLIENTS];

/// Starved requests by the size of the pool.
pub fn fig9(settings: Settings) -> Result<Findings, String> {
    let paper = values::cpu_futures();
    let sizings = [Sizing::Fixed(DEFAULT_WORKERS), Sizing::SheepDog];
    let sizings = sizings.into_iter().chain(SIZES.map(Sizing::Fixed));
    let runs = all(settings, &sizings.map(|sizing| (sizing, EVEN)).collect::<Vec<_>>());
    let [default, ours, fixed @ ..] = runs.as_slice() else { return Err("fewer runs than sizes".to_owned()) };
    let published = paper.sheepdog_starved_requests;
    let mut rows = vec![
        Row::near(
            "default: starved requests a run",
            published.default,
            NEAR * published.default,
            default.starved(),
        ),
        Row::at_most("SheepDog: starved requests a run", published.sheepdog, ours.starved()),
        Row::no_more(
            "SheepDog: starved requests, of the default's",
            OF_DEFAULT,
            ours.starved() / default.starved(),
        ),
        Row::beside("SheepDog: workers on average", None, Some(ours.workers())),
    ];
    let best = fixed.iter().map(Runs::throughput_per_s).fold(default.throughput_per_s(), f64::max);
    for (size, runs) in SIZES.iter().zip(fixed) {
        rows.push(Row::beside(format!("{size} workers: starved requests a run"), None, Some(runs.starved())));
    }
    for (name, runs) in [("default", default), ("SheepDog", ours)] {
        let of_best = 100.0 * runs.throughput_per_s() / best;
        rows.push(Row::beside(format!("{name}: throughput, % of the best size's"), None, Some(of_best)));
    }
    let points: Vec<(f64, f64)> =
        SIZES.iter().zip(fixed).map(|(&size, runs)| (size as f64, runs.starved())).collect();
    let points = [points, vec![(DEFAULT_WORKERS as f64, default.starved())]].concat();
    let lines = vec![
        Line { name: "fixed".to_owned(), points },
        Line { name: "SheepDog, on average".to_owned(), points: vec![(ours.workers(), ours.starved())] },
    ];
    let chart = Chart::new("requests over 10 s", "workers", "a run", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig9".to_owned(), charts: vec![chart] }] })
}

/// How long starved requests took.
pub fn fig10(settings: Settings) -> Result<Findings, String> {
    let paper = values::cpu_futures();
    let runs =
        all(settings, &[Sizing::Fixed(DEFAULT_WORKERS), Sizing::SheepDog].map(|sizing| (sizing, EVEN)));
    let [default, ours] = runs.as_slice() else { return Err("fewer runs than asked for".to_owned()) };
    let times = default.starved_s();
    let over = times.iter().filter(|&&seconds| seconds > 60.0).count() as f64 / times.len() as f64;
    let rows = vec![
        Row::beside("default: starved requests over a minute, %", Some(30.0), Some(100.0 * over)),
        Row::beside("default: longest, s", Some(240.0), Some(default.longest_s())),
        Row::against("SheepDog: longest, s", &paper.sheepdog_longest_s, ours.longest_s()),
        Row::no_more("SheepDog: longest, s, our own target", LONGEST_S, ours.longest_s()),
    ];
    let line = |name: &str, times: Vec<f64>| {
        let share = |at: usize| 100.0 * (at + 1) as f64 / times.len() as f64;
        let points = times.iter().enumerate().map(|(at, seconds)| (seconds.log10(), share(at))).collect();
        Line { name: name.to_owned(), points }
    };
    let lines = vec![line("default", times.clone()), line("SheepDog", ours.starved_s())];
    let chart = Chart::new("requests over 10 s", "log10 of seconds", "% that took no longer", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig10".to_owned(), charts: vec![chart] }] })
}

/// Parts of class S in the mixes, in per cent.
const MIXES: [usize; 7] = [0, 20, 40, 50, 60, 80, 100];
const QUICK_MIXES: [usize; 3] = [0, 50, 100];
/// Pools among which the best throughput of a mix is looked for.
const THROUGHPUT_SIZES: [usize; 4] = [16, 40, 96, DEFAULT_WORKERS];

/// Clients of a mix: the class of which there is more has its peak, the other as many as its part is.
fn mix(percent: usize) -> [usize; 2] {
    let of = |part: usize| CLIENTS.min(CLIENTS * part / percent.max(100 - percent));
    [of(percent), of(100 - percent)]
}

/// Starved requests by the mix of the load.
pub fn fig11(settings: Settings) -> Result<Findings, String> {
    let paper = values::cpu_futures();
    let mixes = if settings.quick { QUICK_MIXES.as_slice() } else { MIXES.as_slice() };
    let sizings = || [Sizing::SheepDog].into_iter().chain(THROUGHPUT_SIZES.map(Sizing::Fixed));
    let jobs: Vec<_> =
        mixes.iter().flat_map(|&percent| sizings().map(move |sizing| (sizing, mix(percent)))).collect();
    let runs = all(settings, &jobs);
    let mut rows = Vec::new();
    let (mut default_line, mut our_line, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut starved, mut starved_default) = (0.0, 0.0);
    for (&percent, of_mix) in mixes.iter().zip(runs.chunks(1 + THROUGHPUT_SIZES.len())) {
        let [ours, fixed @ ..] = of_mix else { continue };
        let Some(default) = fixed.last() else { continue };
        let best = fixed.iter().map(Runs::throughput_per_s).fold(0.0, f64::max);
        let of = |what: &str| format!("{percent} % of S: {what}");
        rows.push(Row::beside(of("default, starved requests a run"), None, Some(default.starved())));
        rows.push(Row::beside(of("SheepDog, starved requests a run"), None, Some(ours.starved())));
        rows.push(Row::no_more(of("SheepDog, longest starved, s"), LONGEST_S, ours.longest_s()));
        let of_best = 100.0 * ours.throughput_per_s() / best;
        rows.push(Row::beside(of("SheepDog, throughput, % of the best size's"), None, Some(of_best)));
        default_line.push((percent as f64, default.starved()));
        our_line.push((percent as f64, ours.starved()));
        sizes.push(ours.workers());
        (starved, starved_default) = (starved + ours.starved(), starved_default + default.starved());
    }
    rows.push(Row::no_more(
        "all mixes: starved requests, of the default's",
        OF_DEFAULT,
        starved / starved_default,
    ));
    let range = paper.optimal_pool_range;
    let (least, most) =
        (sizes.iter().copied().fold(f64::INFINITY, f64::min), sizes.iter().copied().fold(0.0, f64::max));
    rows.push(Row::beside("SheepDog: fewest workers on average", Some(range.low), Some(least)));
    rows.push(Row::beside("SheepDog: most workers on average", Some(range.high), Some(most)));
    let lines = vec![
        Line { name: "default".to_owned(), points: default_line },
        Line { name: "SheepDog".to_owned(), points: our_line },
    ];
    let chart = Chart::new("requests over 10 s", "% of class S", "a run", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig11".to_owned(), charts: vec![chart] }] })
}
