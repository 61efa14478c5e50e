//! What admission costs a request: the decision alone, and all that a gate does for a request from its arrival to
//! its completion. Time comes in as an argument, so no clock is read unless a case says so.
//!
//! ```text
//! cargo bench -p plimsoll-admission --bench decision                       # a table
//! cargo bench -p plimsoll-admission --bench decision -- --json             # an object a case, for benches/decision
//! cargo bench -p plimsoll-admission --bench decision -- --turns 1000000 CASE   # for a profiler: no timing
//! ```

mod harness;
mod traffic;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use harness::{Case, Clock, measure, quantile};
use plimsoll_admission::bouncer::Bouncer;
use plimsoll_admission::policy::{self, Scene};
use plimsoll_admission::{Ask, Gate, Outcome};
use plimsoll_core::config::{Override, Policy, WaitLimit};
use plimsoll_core::estimator::{Estimator, Wait};
use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use traffic::Traffic;

const BOUNCER: Policy = Policy::Bouncer(Override::Never);
/// What every request waited: below CoDel's target.
const WAITED: Nanos = Nanos::from_millis(1);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().skip_while(|a| *a != name).nth(1).and_then(|v| v.parse().ok());
    let mut cases = cases();
    if let Some(turns) = value("--turns") {
        let wanted = args.last().expect("the case comes last");
        let case = cases.iter_mut().find(|c| c.name == *wanted).expect("a case of that name");
        case.time(turns);
        return;
    }
    // `cargo test --benches` runs this without `--bench`: enough that nothing panics.
    let rounds = if args.iter().any(|a| a == "--bench") { value("--rounds").unwrap_or(500) } else { 1 };
    let ns = measure(&mut cases, rounds);
    let json = args.iter().any(|a| a == "--json");
    for (Case { name, target_ns, .. }, ns) in cases.iter().zip(&ns) {
        let [low, median, high] = [0.1, 0.5, 0.9].map(|share| quantile(ns, share));
        if json {
            let target = target_ns.map_or("null".into(), |ns| ns.to_string());
            let quantiles = format!(r#""p10":{low:.2},"p50":{median:.2},"p90":{high:.2}"#);
            println!(r#"{{"what":"{name}",{quantiles},"target":{target}}}"#);
        } else {
            let target = target_ns.map_or(String::new(), |ns| format!("at most {ns} ns"));
            println!("{name:<52} {median:7.2} ns   p10 {low:7.2}   p90 {high:7.2}   {target}");
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for classes in [11, 100] {
        let traffic = Arc::new(Traffic::new(classes));
        let named = |what: &str| format!("{what}, {classes} classes");
        cases.push(decision(named("decision"), &traffic));
        cases.push(refusal(named("refusal"), &traffic));
        cases.push(cycle(named("whole cycle"), Some(40.0), BOUNCER, &traffic));
        cases.push(cycle_with_clock(named("whole cycle and its clock reads"), &traffic));
        cases.push(shared_cycle(named("whole cycle on two threads at one gate"), &traffic));
    }
    cases.push(clock_read());
    let traffic = Arc::new(Traffic::new(11));
    for policy in policies() {
        cases.push(cycle(format!("whole cycle, {}", name(&policy)), None, policy, &traffic));
    }
    cases
}

/// Every policy with the parameters of the paper's study, where it has some.
fn policies() -> Vec<Policy> {
    vec![
        Policy::Bouncer(Override::Allowance(0.1)),
        Policy::Bouncer(Override::Underserved(1.0)),
        Policy::MaxQl { limit: 400 },
        Policy::MaxQwt { limit: WaitLimit::All(Nanos::from_millis(15)) },
        Policy::AcceptFraction { max_util: 0.95 },
        Policy::Codel,
        Policy::Aimd,
        Policy::Vegas,
        Policy::Gradient2,
        Policy::None,
    ]
}

fn name(policy: &Policy) -> String {
    match policy {
        Policy::Bouncer(Override::Allowance(_)) => "bouncer with allowance".into(),
        Policy::Bouncer(Override::Underserved(_)) => "bouncer with help for the underserved".into(),
        policy => policy.kind().to_string(),
    }
}

/// The judgement alone, without entering the queue: what the gate asks of the estimates and the policy.
fn decision(name: String, traffic: &Arc<Traffic>) -> Case {
    let traffic = Arc::clone(traffic);
    Case::new(name, Some(5.0), move || {
        let estimator = Estimator::new(traffic.slos(), 50, Nanos::ZERO);
        (0..20_000)
            .map(|i| traffic.at(i))
            .for_each(|r| estimator.completed(r.class(), WAITED.into(), r.served()));
        let policy: Box<dyn policy::Policy> = black_box(Box::new(Bouncer::new(traffic.classes)));
        let mut rng = seeded(2, 0);
        move |turns| {
            for i in 0..turns {
                let class = traffic.at(i).class();
                let waiting = estimator.waiting(class);
                let scene = Scene { class, waiting, estimator: &estimator, max_queue: 800 };
                assert!(policy.judge(&scene, Nanos(i as u64), &mut rng).is_admit());
            }
        }
    })
}

/// All of a refusal, its reason included: it enters no queue.
fn refusal(name: String, traffic: &Arc<Traffic>) -> Case {
    let traffic = Arc::clone(traffic);
    Case::new(name, None, move || {
        let (gate, mut rng) = (traffic.overloaded_gate(&BOUNCER), seeded(2, 0));
        move |turns| {
            for i in 0..turns {
                let verdict = gate.offer(&Ask::of(traffic.at(i).class()), Nanos(i as u64), &mut rng);
                assert!(!black_box(&verdict).is_admit());
            }
        }
    })
}

/// Arrival, admission, leaving the queue, completion: all that a gate does for one request.
fn cycle(name: String, target_ns: Option<f64>, policy: Policy, traffic: &Arc<Traffic>) -> Case {
    let traffic = Arc::clone(traffic);
    Case::new(name, target_ns, move || {
        let (gate, mut rng) = (traffic.learnt_gate(&policy), seeded(2, 0));
        move |turns| serve(&gate, &traffic, 0..turns, &mut rng)
    })
}

fn serve(gate: &Gate, traffic: &Traffic, turns: Range<usize>, rng: &mut Rng) {
    for i in turns {
        let (request, now) = (traffic.at(i), Nanos(i as u64));
        let wait = Wait { expected: gate.expected_wait(), actual: WAITED };
        assert!(gate.offer(&Ask::of(request.class()), now, rng).is_admit());
        assert!(gate.start(request.class(), WAITED, now).is_admit());
        gate.finish(request.class(), wait, request.served(), Outcome::Measured);
    }
}

/// As a host runs it: it must know when a request came, when it left the queue and when it was done.
fn cycle_with_clock(name: String, traffic: &Arc<Traffic>) -> Case {
    let traffic = Arc::clone(traffic);
    Case::new(name, None, move || {
        let (gate, clock, mut rng) = (traffic.learnt_gate(&BOUNCER), Clock::new(), seeded(2, 0));
        move |turns| {
            for i in 0..turns {
                let class = traffic.at(i).class();
                let (came, expected) = (clock.now(), gate.expected_wait());
                assert!(gate.offer(&Ask::of(class), came, &mut rng).is_admit());
                let left = clock.now();
                assert!(gate.start(class, left - came, left).is_admit());
                gate.finish(
                    class,
                    Wait { expected, actual: left - came },
                    clock.now() - left,
                    Outcome::Measured,
                );
            }
        }
    })
}

/// Two threads at one gate; the time is that of a request on its thread.
fn shared_cycle(name: String, traffic: &Arc<Traffic>) -> Case {
    let traffic = Arc::clone(traffic);
    let mut case = Case::new(name, None, move || {
        let gate = traffic.learnt_gate(&BOUNCER);
        move |turns| {
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    // Apart, or they would always ask for the same class.
                    let turns = thread * 500..thread * 500 + turns;
                    let (gate, traffic) = (&gate, &traffic);
                    scope.spawn(move || serve(gate, traffic, turns, &mut seeded(2, thread as u64)));
                }
            });
        }
    });
    // So long that starting the threads does not count.
    case.round_ns = 10e6;
    case
}

fn clock_read() -> Case {
    Case::new("clock read", None, || {
        let clock = Clock::new();
        move |turns| {
            for _ in 0..turns {
                black_box(clock.now());
            }
        }
    })
}
