//! What policing costs a request: the threshold policer, which answers at once, and the whole life of a request that waits in a
//! batch: offered, put in, processed, answered. One thread; time comes in as an argument.
//!
//! ```text
//! cargo bench -p plimsoll-policing --bench policers                          # a table
//! cargo bench -p plimsoll-policing --bench policers -- --json --share 0.1    # an object a case, for benches/policers; fewer rounds
//! cargo bench -p plimsoll-policing --bench policers -- --most 1e6            # no more than so many waiting
//! cargo bench -p plimsoll-policing --bench policers -- --turns 1000 CASE     # for a profiler: no timing
//! ```

mod crowd;
mod harness;
mod life;

use std::hint::black_box;

use crowd::Crowd;
use harness::{Case, measure, quantile};
use life::Life;
use plimsoll_core::Nanos;
use plimsoll_core::rng::seeded;
use plimsoll_policing::police::Police;

const CLASSES: [usize; 3] = [3, 11, 64];
const WAITING: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Where only one of the two is varied.
const SOME_CLASSES: usize = 11;
const SOME_WAITING: usize = 100_000;
/// Batches of which the longest call is looked for.
const LOOKED_AT: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value =
        |name: &str| args.iter().skip_while(|a| *a != name).nth(1).and_then(|v| v.parse::<f64>().ok());
    // `cargo test --benches` runs this without `--bench`: enough that nothing panics.
    let timed = args.iter().any(|a| a == "--bench");
    let most = value("--most").unwrap_or(if timed { f64::MAX } else { 1e4 });
    let waiting: Vec<usize> = WAITING.into_iter().filter(|&waiting| waiting as f64 <= most).collect();
    let mut cases = cases(&waiting);
    if let Some(turns) = value("--turns") {
        let wanted = args.last().expect("the case comes last");
        let case = cases.iter_mut().find(|c| c.name == *wanted).expect("a case of that name");
        case.run(turns as usize);
        return;
    }
    let json = args.iter().any(|a| a == "--json");
    let ns = measure(&mut cases, if timed { value("--share").unwrap_or(1.0) } else { 0.0 });
    for (name, ns) in cases.into_iter().map(|case| case.name).zip(&ns) {
        print(json, &name, "ns", ns);
    }
    for &waiting in &waiting {
        let mut life = Life::new(SOME_CLASSES, waiting);
        let (mut pushing, mut processing): (Vec<f64>, Vec<f64>) =
            (0..LOOKED_AT).map(|_| life.longest_ns(waiting)).unzip();
        for (what, ns) in [("pushes of a slice", &mut pushing), ("call of process", &mut processing)] {
            ns.iter_mut().for_each(|ns| *ns /= 1e3);
            ns.sort_by(f64::total_cmp);
            print(json, &format!("longest {what}, {waiting} waiting"), "us", ns);
        }
    }
}

fn print(json: bool, name: &str, unit: &str, sorted: &[f64]) {
    let [low, median, high] = [0.1, 0.5, 0.9].map(|share| quantile(sorted, share));
    let rounds = sorted.len();
    if json {
        let quantiles = format!(r#""p10":{low:.2},"p50":{median:.2},"p90":{high:.2}"#);
        println!(r#"{{"what":"{name}","unit":"{unit}",{quantiles},"rounds":{rounds}}}"#);
    } else {
        println!("{name:<52} {median:8.2} {unit}   p10 {low:8.2}   p90 {high:8.2}   {rounds} rounds");
    }
}

fn cases(waiting: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for classes in CLASSES {
        cases.push(at_once(format!("threshold, {classes} classes"), classes, crowd::thresholded));
        cases.push(at_once(format!("batch, nobody waits, {classes} classes"), classes, crowd::unhurried));
        cases.push(displacing(classes));
    }
    for &waiting in waiting {
        cases.extend(CLASSES.map(|classes| batch(classes, waiting)));
        cases.push(from_nothing(waiting));
    }
    cases
}

/// Requests that are answered when they are offered.
fn at_once(name: String, classes: usize, prepare: fn(usize) -> (Police, Nanos)) -> Case {
    Case::new(name, 1, move || {
        let (crowd, load) = (Crowd::new(0..classes as u16), crowd::load(SOME_WAITING));
        let ((police, mut now), mut rng) = (prepare(classes), seeded(2, 0));
        move |turns| {
            for i in 0..turns {
                let request = crowd.at(i);
                now += life::GAP;
                black_box(police.offer(request.class(), request.size(), &load, now, &mut rng));
            }
        }
    })
}

/// So many requests come, wait, and are processed; a turn is all of them.
fn batch(classes: usize, waiting: usize) -> Case {
    Case::new(format!("batch, {waiting} waiting, {classes} classes"), waiting, move || {
        let mut life = Life::new(classes, waiting);
        move |turns| (0..turns).for_each(|_| life.live(waiting))
    })
}

/// The same, but with a batch that has never held anybody and is thrown away.
fn from_nothing(waiting: usize) -> Case {
    Case::new(format!("batch, {waiting} waiting, from nothing"), waiting, move || {
        let mut life = Life::new(SOME_CLASSES, waiting);
        move |turns| {
            for _ in 0..turns {
                life.forget(waiting);
                life.live(waiting);
            }
        }
    })
}

/// As many wait as may: for everybody who comes somebody has to go.
fn displacing(classes: usize) -> Case {
    Case::new(format!("batch, as many wait as may, {classes} classes"), 1, move || {
        let mut life = Life::new(classes, SOME_WAITING);
        life.fill(SOME_WAITING);
        move |turns| life.fill(turns)
    })
}
