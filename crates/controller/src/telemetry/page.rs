//! `GET /paths`: what has been learnt of the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::Nanos;
use plimsoll_core::config::Class;
use serde_json::{Value, json};

use super::Telemetry;
use super::fleet::Classes;
use super::usage::Figure;

/// Where it is.
pub const PATH: &str = "/paths";

/// The page as of `now`.
pub fn render(telemetry: &Telemetry, classes: &[Class], now: Nanos) -> Value {
    let (learnt, usage) = (Arc::clone(&telemetry.learnt.borrow()), Arc::clone(&telemetry.usage.borrow()));
    let of = Classes::new(classes);
    let apis = learnt.paths.apis.iter().map(|api| {
        let branches = api.branches.iter().map(|branch| {
            let services: BTreeMap<&str, f64> =
                branch.visits.iter().map(|visit| (&*visit.service, round(visit.calls))).collect();
            json!({ "share": round(branch.share), "rest": branch.is_rest, "services": services })
        });
        let own: BTreeMap<&str, f64> =
            api.own_times.iter().map(|(service, own)| (&**service, round(1e3 * own.mean_s))).collect();
        let names =
            of.of(&api.operation).into_iter().filter_map(|class| Some(&classes.get(class.index())?.name));
        let mut may_be: Vec<&String> = names.collect();
        let class = may_be.pop();
        json!({
            "service": &*api.service,
            "operation": &*api.operation,
            "class": class,
            "may_be": may_be,
            "requests": round(api.requests),
            "recent": round(api.recent),
            "failed": round(api.failed),
            "branches": branches.collect::<Vec<_>>(),
            "own_ms": own,
        })
    });
    let services = usage.services.iter().map(|known| {
        let value = |figure: Option<Figure>| figure.map(|figure| round(figure.value));
        let told = known.figures().map(|figure| figure.at).max().unwrap_or_default();
        let page = json!({
            "utilization": value(known.utilization),
            "queue_s": value(known.queue_s),
            "served_per_s": value(known.served_per_s),
            "age_s": round(now.since(told).as_secs_f64()),
        });
        (&*known.service, page)
    });
    let sources = usage.sources.iter().map(|source| {
        json!({ "source": source.name, "answers": source.answers, "failures": source.failures, "nonsense": source.nonsense, "trouble": source.trouble })
    });
    let (figures, counts) = (learnt.paths.figures, learnt.counts);
    json!({
        "apis": apis.collect::<Vec<_>>(),
        "utilization": services.collect::<BTreeMap<_, _>>(),
        "sources": sources.collect::<Vec<_>>(),
        "spans": {
            "messages": counts.messages, "refused_messages": counts.refused, "rejected": counts.rejected,
            "taken": figures.spans, "duplicates": figures.duplicates, "late": figures.late, "left_out": figures.left_out,
            "no_room": figures.no_room, "unplaced": figures.unplaced, "open": figures.open_spans, "open_traces": figures.open_traces,
            "taken_share": figures.taken_share, "requests": figures.requests, "doubtful": figures.doubtful,
            "turned_away": figures.turned_away, "names": figures.names, "operations": figures.operations,
        },
    })
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
