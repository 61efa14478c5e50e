//! A step to eight times the load on one of two applications that share eleven servers, live: the set-up of Cataclysm's section 6.7. A real sentry polices both
//! applications, a real controller starts and stops their servers, and what is judged is what the load generator saw.

use std::cell::RefCell;

use plimsoll_core::Nanos;
use plimsoll_loadgen::{HttpVersion, Plan};
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_testbed::ports::free_ports;

use crate::observed::{self, Seen, Tally, by_second};
use crate::platform::{Platform, PoolNow, mix, page_command};
use crate::processes::Page;

/// All servers, those that an application has at first and at least, and those that it has at most.
const SERVERS: u16 = 11;
const LEAST: u16 = 3;
const MOST: u16 = SERVERS - LEAST;
/// Requests that one server works on at once; they wait, as the paper's do not.
const WORKERS: u32 = 4;
/// What a request may take.
const TARGET: Nanos = Nanos::from_millis(250);
/// The share that may be refused: the default of `drop_rate`, above which the controller acts.
const REFUSED: f64 = 0.05;
/// The applications; the first is stepped on.
const APPLICATIONS: [&str; 2] = ["one", "two"];
/// What each is sent at first, in capacities of a server, and how many times that the step is.
const CALM: f64 = 0.7;
const TIMES: f64 = 8.0;
/// So many good seconds in a row, and it is back.
const IN_A_ROW: usize = 3;
/// Seconds after that which may be bad, in per cent: the paper's own of Fig. 9 for all of its intervals.
const BAD_PCT: f64 = 4.0;

/// When things happen.
#[derive(Clone, Copy)]
struct Times {
    /// The reactive period, which is the config's `pause`.
    period: Nanos,
    step: Nanos,
    back: Nanos,
    end: Nanos,
}

impl Times {
    fn new(settings: Settings) -> Times {
        let period = Nanos::from_secs(if settings.quick { 4 } else { 20 });
        let step = Nanos(period.0 / 2);
        let back = step + period + period;
        // The quick form does not wait for the servers to be given back.
        Times { period, step, back, end: if settings.quick { back } else { back + Nanos(5 * period.0) } }
    }
}

/// What was seen of the platform: when, and of both applications.
type Looks = Vec<(Nanos, Vec<PoolNow>)>;

/// The step, and what it is held to.
pub fn step(settings: Settings) -> Result<Findings, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let times = Times::new(settings);
    let (requests, looks) = runtime.block_on(run(times, settings.seed))?;
    let of = |application: usize| {
        by_second(requests.iter().filter(move |seen| seen.class == application), Nanos::ZERO, times.end)
    };
    let stepped = of(0);
    let (during, back_s) = (within(&stepped, times.step, times.back), back_after(&stepped, times));
    let after_s = times.step.as_secs_f64() + back_s;
    let later: Vec<_> = during.iter().filter(|(at_s, _)| *at_s >= after_s).collect();
    let bad_pct = 100.0 * later.iter().filter(|(_, tally)| is_bad(tally)).count() as f64 / later.len() as f64;
    let errors = Tally::of(requests.iter()).errors as f64;
    let servers = |pools: &[PoolNow]| pools.iter().map(PoolNow::servers).sum::<u64>() as f64;
    let most = looks.iter().map(|(_, pools)| servers(pools)).fold(0.0, f64::max);
    let ready = |pools: &[PoolNow]| pools.first().map_or(0, |pool| pool.ready);
    let first_added = looks.iter().find(|(at, pools)| *at >= times.step && ready(pools) > u64::from(LEAST));
    let most_ready = looks.iter().map(|(_, pools)| ready(pools)).max();
    let p95s = during.iter().filter_map(|(_, tally)| Some(tally.p95?.as_millis_f64()));
    let others =
        requests.iter().filter(|seen| seen.class == 1 && (times.step..times.back).contains(&seen.at));
    // The quick form only shows what a machine that others use, too, takes longer for. One second is a large share of so few, besides.
    let timed = |what: &str, most: f64, found: f64| match settings.quick {
        true => Row::beside(what, None, Some(found)),
        false => Row::no_more(what, most, found),
    };
    let mut rows = vec![
        timed(
            "seconds until p95 is within the target again and at most 5 % are refused; one reactive period",
            times.period.as_secs_f64(),
            back_s,
        ),
        timed("seconds after that which are not so, %", BAD_PCT, bad_pct),
        Row::no_more(
            "most servers of both applications, starting and ending ones too",
            f64::from(SERVERS),
            most,
        ),
        Row::no_more("requests that failed", 0.0, errors),
        Row::beside(
            "first server added, s after the step",
            None,
            first_added.map(|(at, _)| at.since(times.step).as_secs_f64()),
        ),
        Row::no_less(
            "most servers of application 1",
            f64::from(LEAST + 1),
            most_ready.map_or(f64::NAN, |n| n as f64),
        ),
        Row::beside("application 1: worst p95 of a second of the step, ms", None, p95s.reduce(f64::max)),
        Row::beside(
            "application 2: requests refused during the step, %",
            None,
            Some(100.0 * Tally::of(others).refused_share()),
        ),
    ];
    if !settings.quick {
        let at_end = looks.last().map_or(f64::NAN, |(_, pools)| servers(pools));
        rows.push(Row::no_more("servers of both applications at the end", f64::from(2 * LEAST), at_end));
    }
    let figure = Figure { name: "step".to_owned(), charts: charts(&[stepped, of(1)], &looks) };
    Ok(Findings { rows, figures: vec![figure] })
}

fn is_bad(tally: &Tally) -> bool {
    tally.refused_share() > REFUSED || tally.p95.is_none_or(|p95| p95 > TARGET)
}

fn within(seconds: &[(f64, Tally)], from: Nanos, to: Nanos) -> Vec<(f64, Tally)> {
    let range = from.as_secs_f64()..to.as_secs_f64();
    seconds.iter().filter(|(at_s, _)| range.contains(at_s)).copied().collect()
}

/// Seconds from the step until all is well again; not a number where it never is.
fn back_after(seconds: &[(f64, Tally)], times: Times) -> f64 {
    let during = within(seconds, times.step, times.back);
    let well = during.windows(IN_A_ROW).find(|row| row.iter().all(|(_, tally)| !is_bad(tally)));
    well.map_or(f64::NAN, |row| row[0].0 - times.step.as_secs_f64())
}

/// What became of every request, and what was there meanwhile.
async fn run(times: Times, seed: u64) -> Result<(Vec<Seen>, Looks), String> {
    let calm_per_s = CALM * Page::start(WORKERS)?.capacity_per_s;
    let platform = start(times.period).await?;
    let (now, requests) = (RefCell::new(Nanos::ZERO), RefCell::new(Vec::new()));
    let load = |application: &'static str, rate: String, seed: u64| {
        let (target, now, requests) = (platform.target(), &now, &requests);
        async move {
            let mix = mix([(application, 1.0)], Some(TARGET));
            let plan = Plan::new(target, mix, rate.parse()?, times.end, HttpVersion::Http1);
            let observe = |at, ended: Vec<Seen>| {
                *now.borrow_mut() = at;
                requests.borrow_mut().extend(ended);
            };
            observed::load(Plan { seed, ..plan }, &APPLICATIONS, observe).await
        }
    };
    let calm = format!("{calm_per_s:.1}");
    let step = format!("0s:{calm},{}:{:.1},{}:{calm}", times.step, TIMES * calm_per_s, times.back);
    let both = async {
        // Of different seeds: otherwise both would come at the same moments.
        tokio::try_join!(
            load(APPLICATIONS[0], step, seed),
            load(APPLICATIONS[1], calm, seed.wrapping_add(1_000)),
        )
    };
    let mut looks = Looks::new();
    platform.watched(both, |pools, _| looks.push((*now.borrow(), pools))).await?;
    Ok((requests.into_inner(), looks))
}

async fn start(period: Nanos) -> Result<Platform, String> {
    // Each pool has its own, with some to spare should somebody else take one.
    let each = 2 * MOST;
    let ports = free_ports(2 * each)?;
    let command = page_command(WORKERS)?;
    let mut pools = String::new();
    for (from, name) in ports.step_by(each.into()).zip(APPLICATIONS) {
        let to = from + each - 1;
        pools += &format!(
            r#"
[pool.{name}]
workers   = {WORKERS}
policing  = {{ policy = "auto" }}
admission = {{ policy = "none" }}

[pool.{name}.provision]
min       = {LEAST}
max       = {MOST}
drop_rate = {REFUSED}
pause     = "{period}"
period    = "{period}"
season    = "0s"
command   = {command}
ports     = "{from}-{to}"
ready     = "/healthz"

[class.{name}]
match = [{{ path = "/{{page}}/{name}" }}]
slo   = {{ mean = "{TARGET}" }}
pool  = "{name}"
"#
        );
    }
    pools += &format!("\n[class.default]\npool = \"{}\"\n", APPLICATIONS[0]);
    let interval = Nanos(period.0 / 20);
    Platform::start(&format!("servers = {SERVERS}\ninterval = \"{interval}\""), &pools).await
}

fn charts(seconds: &[Vec<(f64, Tally)>; 2], looks: &Looks) -> Vec<Chart> {
    let by_application = |of: fn(&Tally) -> Option<f64>| {
        let line = |(name, seconds): (&str, &Vec<(f64, Tally)>)| Line {
            name: format!("application {name}"),
            points: seconds.iter().filter_map(|(at_s, tally)| Some((at_s + 0.5, of(tally)?))).collect(),
        };
        APPLICATIONS.into_iter().zip(seconds).map(line).collect()
    };
    let servers = |(i, name): (usize, &str)| Line {
        name: format!("application {name}"),
        points: looks.iter().map(|(at, pools)| (at.as_secs_f64(), pools[i].ready as f64)).collect(),
    };
    let chart = |title, y, lines| Chart::new(title, "s", y, lines);
    let p95 = |tally: &Tally| tally.p95.map(Nanos::as_millis_f64);
    vec![
        chart("served", "requests/s", by_application(|tally| Some(tally.admitted as f64))),
        chart("refused", "%", by_application(|tally| Some(100.0 * tally.refused_share()))),
        chart("response time, p95", "ms", by_application(p95)).with_level("target", TARGET.as_millis_f64()),
        chart("servers", "servers", APPLICATIONS.into_iter().enumerate().map(servers).collect()),
    ]
}
