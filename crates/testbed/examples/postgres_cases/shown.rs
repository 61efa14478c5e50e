//! The line that a run becomes. Times are in seconds since the beginning of what counts.

use std::collections::BTreeMap;

use clap::ValueEnum;
use plimsoll_core::Nanos;
use plimsoll_testbed::postgres::request::{CANCELLED, Outcome as Became, TERMINATED};
use plimsoll_testbed::postgres::stage::Outcome;
use plimsoll_testbed::postgres::{Figures, How, Plan, Request, judge};
use serde_json::{Value, json};

use crate::Args;

/// Around the action: what is left out of some figures begins with the culprit's coming and lasts so long.
const AROUND_S: u64 = 2;

/// `version` is the server's, `began_s` the time of day at which what counts began.
pub fn line(
    args: &Args,
    plan: &Plan,
    version: &str,
    began_s: f64,
    outcome: &Outcome,
    events: &[Value],
) -> Value {
    let Outcome { requests, endings, figures } = outcome;
    let mut by_outcome = BTreeMap::<String, usize>::new();
    requests.iter().for_each(|request| *by_outcome.entry(request.outcome.to_string()).or_default() += 1);
    let tasks = endings.iter().map(|ending| {
        json!({ "name": ending.name, "pid": ending.pid, "how": format!("{:?}", ending.how),
                "from_s": ending.from.as_secs_f64(), "to_s": ending.to.as_secs_f64() })
    });
    json!({
        "case": args.case.as_str(), "with": args.with.to_possible_value().map(|it| it.get_name().to_owned()),
        "seed": args.seed, "seconds": args.seconds, "rate": args.rate, "version": version, "at_s": args.at, "slo_ms": args.slo,
        "began": began_s,
        "figures": shown(figures), "figures_without_2s": shown(&elsewhere(args, plan, requests)),
        "requests": by_outcome,
        "p99_ms_by_second": by_second(args, requests, |it| it.p99_ms.map(|ms| (ms * 100.0).round() / 100.0).into()),
        "ok_by_second": by_second(args, requests, |it| it.ok.into()),
        "tasks": tasks.collect::<Vec<_>>(),
        "clients": clients(args, outcome),
        "events": events.iter().map(|event| said(event, began_s)).collect::<Vec<_>>(),
    })
}

fn shown(figures: &Figures) -> Value {
    json!({ "sent": figures.sent, "ok": figures.ok, "throughput_per_s": figures.throughput_per_s,
            "p50_ms": figures.p50_ms, "p99_ms": figures.p99_ms })
}

/// Of the requests that came at other times. The same span is left out of an undisturbed run.
fn elsewhere(args: &Args, plan: &Plan, requests: &[Request]) -> Figures {
    let around = Nanos::from_secs(args.at)..Nanos::from_secs(args.at + AROUND_S);
    let outside = requests.iter().filter(|request| !around.contains(&request.at));
    Figures::of(outside, plan.length.since(Nanos::from_secs(AROUND_S)))
}

fn by_second(args: &Args, requests: &[Request], of: fn(Figures) -> Value) -> Vec<Value> {
    let figures = |second| {
        let [from, to] = [second, second + 1].map(Nanos::from_secs);
        Figures::between(requests, from, to)
    };
    (0..args.seconds).map(figures).map(of).collect()
}

/// What the clients alone can tell of who was ended and how fast, without a word from the agent.
fn clients(args: &Args, outcome: &Outcome) -> Value {
    let limit = Nanos::from_millis(args.slo);
    let ended = |how: &How| matches!(how, How::Cancelled | How::Terminated);
    let is_ended = |request: &&Request| matches!(request.outcome, Became::Failed(state) if [CANCELLED, TERMINATED].contains(&state));
    let requests_ended = outcome.requests.iter().filter(is_ended).count();
    let Some((culprit, others)) = outcome.endings.split_last() else {
        // How often the objective was missed though nobody did anything.
        let missed = judge::missed(&outcome.requests, limit, Nanos::ZERO).map(Nanos::as_secs_f64);
        return json!({ "missed_s": missed, "requests_ended": requests_ended });
    };
    let missed = judge::missed(&outcome.requests, limit, culprit.from);
    let over = missed.and_then(|missed| judge::over(&outcome.requests, limit, missed));
    let victims = others.iter().filter(|other| ended(&other.how)).count();
    json!({
        "missed_s": missed.map(Nanos::as_secs_f64),
        "over_s": over.map(Nanos::as_secs_f64),
        "culprit_ended_s": ended(&culprit.how).then(|| culprit.to.as_secs_f64()),
        "others_ended": victims, "requests_ended": requests_ended,
    })
}

/// An event by the clock of the run.
fn said(event: &Value, began_s: f64) -> Value {
    let mut event = event.clone();
    if let Some(ts) = event["ts"].as_f64() {
        event["at_s"] = json!(((ts - began_s) * 1e4).round() / 1e4);
    }
    event
}
