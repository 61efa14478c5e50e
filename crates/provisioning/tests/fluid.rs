//! The planners that the controller runs, driven by a small model of applications and their servers: what arrives in five seconds is
//! served by the servers that are ready, as far as they can within the target, and the rest is refused.
//!
//! What is enough is judged by something else than the planners use: the waiting time of M/M/m, which is known (Erlang's C).

use plimsoll_core::{Nanos, Slo, Statistic};
use plimsoll_provisioning::demand::{ClassLoad, Demand};
use plimsoll_provisioning::fleet::Fleet;
use plimsoll_provisioning::planner::{Bounds, Pace, Planner};

/// A look at the sentries, in seconds.
const LOOK_S: u64 = 5;
/// How long a server takes to start, in seconds.
const START_S: u64 = 30;
const SLOTS: u32 = 4;
const SERVICE_S: f64 = 0.05;
const TARGET_S: f64 = 0.1;

const DAY_S: u64 = 86_400;

fn pace() -> Pace {
    Pace { step: u32::MAX, gap: Nanos::from_secs(300), period: Nanos::from_secs(300), refused: 0.05 }
}

fn planner(least: u32, most: u32) -> Planner {
    let season = (DAY_S / 300) as usize;
    Planner::new(Bounds { least, most, slots: SLOTS }, pace(), season, least)
}

/// The mean response time of M/M/m in seconds, without end where it has none.
fn erlang(per_s: f64, servers: u32) -> f64 {
    let (slots, offered) = (f64::from(servers * SLOTS), per_s * SERVICE_S);
    if offered >= slots {
        return f64::INFINITY;
    }
    let b = (1..=servers * SLOTS).fold(1.0, |b, m| offered * b / (f64::from(m) + offered * b));
    let busy = offered / slots;
    let waits = b / (1.0 - busy * (1.0 - b));
    SERVICE_S + waits * SERVICE_S / (slots * (1.0 - busy))
}

/// The fewest servers that meet the target, whatever the planner thinks.
fn fewest(per_s: f64, least: u32) -> u32 {
    (least..).find(|&servers| erlang(per_s, servers) <= TARGET_S).unwrap()
}

/// The highest rate that so many servers serve within the target.
fn capacity(servers: u32) -> f64 {
    let (mut within, mut beyond) = (0.0, f64::from(servers * SLOTS) / SERVICE_S);
    for _ in 0..50 {
        let middle = (within + beyond) / 2.0;
        if erlang(middle, servers) <= TARGET_S { within = middle } else { beyond = middle }
    }
    within
}

/// Repeatable noise, a standard normal deviate at each look, roughly.
fn noise(s: u64, stream: u64) -> f64 {
    let mut state =
        (s / LOOK_S).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03);
    let uniforms = (0..12).map(|_| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    });
    uniforms.sum::<f64>() - 6.0
}

/// What happened at one look.
#[derive(Clone, Debug)]
struct Look {
    s: u64,
    per_s: Vec<f64>,
    planned: Vec<u32>,
    ready: Vec<u32>,
}

/// Runs a fleet from `from_s` to `to_s`. `rate` says what arrives at which application.
fn run(
    fleet: &mut Fleet,
    applications: usize,
    from_s: u64,
    to_s: u64,
    rate: impl Fn(usize, u64) -> f64,
) -> Vec<Look> {
    let slo = Slo::new([(Statistic::Mean, Nanos::from_secs_f64(TARGET_S))]).unwrap();
    let mut history: Vec<Look> = Vec::new();
    for s in (from_s..to_s).step_by(LOOK_S as usize) {
        let recent = history.len().saturating_sub((START_S / LOOK_S) as usize);
        let mut look = Look { s, per_s: Vec::new(), planned: Vec::new(), ready: Vec::new() };
        let mut demands = Vec::new();
        for i in 0..applications {
            let mean = rate(i, s);
            // What is counted in five seconds is Poisson.
            let per_s = (mean + (mean / LOOK_S as f64).sqrt() * noise(s, i as u64)).max(0.0);
            // Ready is what has been planned for as long as starting takes.
            let ready = history[recent..]
                .iter()
                .map(|look| look.planned[i])
                .min()
                .unwrap_or(fleet.planner(i).servers());
            let refused_per_s = (per_s - capacity(ready)).max(0.0);
            let class =
                ClassLoad { per_s, refused_per_s, service: Some((SERVICE_S, 1.0)), revenue: 1.0, slo: &slo };
            demands.push(Some(Demand::of(&[class], None)));
            look.per_s.push(mean);
            look.ready.push(ready);
        }
        let plans = fleet.plan(Nanos::from_secs(s), &demands);
        look.planned = plans.iter().map(|plan| plan.servers).collect();
        history.push(look);
    }
    history
}

fn reversals(servers: impl Iterator<Item = u32>) -> usize {
    let servers: Vec<u32> = servers.collect();
    let ups: Vec<bool> = servers.windows(2).filter(|w| w[0] != w[1]).map(|w| w[1] > w[0]).collect();
    ups.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// The paper's section 6.7: two applications with at least three servers each share eleven, and one of them is overloaded.
#[test]
fn a_step_to_eight_times_is_within_the_target_after_one_reactive_period() {
    for eightfold in [0, 1] {
        let mut fleet = Fleet::new(vec![planner(3, 11), planner(3, 11)], 11);
        let step_s = 3_600;
        let rate = |i: usize, s: u64| if i == eightfold && s >= step_s { 8.0 * 55.0 } else { 55.0 };
        let history = run(&mut fleet, 2, 0, 2 * 3_600, rate);
        let over: Vec<u64> = history
            .iter()
            .filter(|look| (0..2).any(|i| erlang(look.per_s[i], look.ready[i]) > TARGET_S))
            .map(|look| look.s)
            .collect();
        assert_eq!(over.first(), Some(&step_s), "{over:?}");
        let last = *over.last().unwrap();
        assert!(last < step_s + 300, "over the target until {last}");
        let total = |look: &Look| look.planned.iter().sum::<u32>();
        assert!(history.iter().all(|look| total(look) <= 11 && look.planned.iter().all(|&n| n >= 3)));
    }
}

/// More than all servers can do: the two share them, and nobody's are passed to and fro.
#[test]
fn two_overloaded_applications_do_not_take_turns() {
    let mut fleet = Fleet::new(vec![planner(3, 11), planner(3, 11)], 11);
    let history = run(&mut fleet, 2, 0, 24 * 3_600, |_, _| 500.0);
    for i in 0..2 {
        let reversals = reversals(history.iter().map(|look| look.planned[i]));
        assert!(reversals <= 24, "application {i}: {reversals} reversals in a day");
    }
    let settled = &history[history.len() / 24..];
    assert!(settled.iter().all(|look| look.planned.iter().sum::<u32>() == 11));
}

#[test]
fn a_steady_load_reverses_at_most_once_an_hour() {
    for per_s in [40.0, 60.0, 123.0, 200.0, 300.0, 411.0, 600.0] {
        let mut fleet = Fleet::new(vec![planner(1, 20)], 20);
        let hours = 48;
        let history = run(&mut fleet, 1, 0, hours * 3_600, |_, _| per_s);
        for (hour, looks) in history.chunks(720).enumerate() {
            let reversals = reversals(looks.iter().map(|look| look.planned[0]));
            assert!(reversals <= 1, "{per_s}/s: {reversals} reversals in hour {hour}");
        }
        let refused = history.iter().skip(720).filter(|look| capacity(look.ready[0]) < per_s).count();
        assert_eq!(refused, 0, "{per_s}/s: looks with too few servers after the first hour");
    }
}

/// The shape of public traces of web sites (FIFA World Cup 98, Wikipedia): a daily cycle with a shoulder in the evening, and on the
/// second day a flash crowd within minutes, and an hour of lull.
fn public_shape(s: u64) -> f64 {
    let hour = (s % DAY_S) as f64 / 3_600.0;
    let cycle = 250.0 - 170.0 * ((hour - 3.0) / 24.0 * std::f64::consts::TAU).cos();
    let evening = 60.0 * (-((hour - 20.5) / 1.5).powi(2)).exp();
    let (crowd_s, lull_s) = (DAY_S + 9 * 3_600, DAY_S + 17 * 3_600);
    let crowd = match s.checked_sub(crowd_s) {
        Some(since) if since < 300 => 1.0 + since as f64 / 300.0,
        Some(since) if since < 3_600 => 2.0,
        Some(since) if since < 4_500 => 2.0 - (since - 3_600) as f64 / 900.0,
        _ => 1.0,
    };
    let lull = if (lull_s..lull_s + 3_600).contains(&s) { 0.3 } else { 1.0 };
    (cycle + evening) * crowd * lull
}

/// After a day to learn, the number is within one of the fewest that meet the target: on average over the day, and at nearly every
/// moment of it, but for the minutes in which the crowd and the lull begin and end, which nobody can foresee.
#[test]
fn a_day_with_a_crowd_and_a_lull_takes_within_one_of_the_fewest_servers() {
    let mut fleet = Fleet::new(vec![planner(1, 16)], 16);
    run(&mut fleet, 1, 0, DAY_S, |_, s| public_shape(s));
    let day = run(&mut fleet, 1, DAY_S, 2 * DAY_S, |_, s| public_shape(s));
    // What must have been there over the five minutes in which a number stands.
    let needed: Vec<u32> = day.iter().map(|look| fewest(look.per_s[0], 1)).collect();
    let around = |i: usize| &needed[i / 60 * 60..(i / 60 * 60 + 60).min(needed.len())];
    let fewest: Vec<u32> = (0..needed.len()).map(|i| *around(i).iter().max().unwrap()).collect();
    let mean = |of: &mut dyn Iterator<Item = u32>| of.map(f64::from).sum::<f64>() / day.len() as f64;
    let (had, due) = (mean(&mut day.iter().map(|look| look.planned[0])), mean(&mut fewest.iter().copied()));
    assert!((had - due).abs() <= 1.0, "{had:.2} servers on average for {due:.2}");
    let close =
        day.iter().zip(&fewest).filter(|(look, fewest)| look.planned[0].abs_diff(**fewest) <= 1).count();
    let close = close as f64 / day.len() as f64;
    assert!(close >= 0.95, "within one in {:.1} % of the day", close * 100.0);
    println!("{had:.2} servers on average for {due:.2}; within one in {:.2} % of the day", close * 100.0);
    // Nothing is refused but where the crowd begins, and where the lull ends: until a step, the next and a start have passed.
    let short: Vec<u64> = day
        .iter()
        .filter(|look| capacity(look.ready[0]) < look.per_s[0])
        .map(|look| look.s - DAY_S)
        .collect();
    let unforeseen = |s: &u64| [9, 18].iter().any(|hour| (hour * 3_600..hour * 3_600 + 600).contains(s));
    assert!(short.iter().all(unforeseen), "{short:?}");
}
