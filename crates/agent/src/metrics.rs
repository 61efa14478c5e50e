//! `/metrics`, in the OpenMetrics text format. Labels are names from the config, and of resources.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_herald::view::finite;
use plimsoll_sentry::admin::scrape::{self, Family, Rows};
use plimsoll_sentry::reload::Reloads;
use prometheus_client::metrics::MetricType::{Counter, Gauge};

use crate::admin::Seen;
use crate::herald::{Figures, Process};
use crate::status::{Status, Watched};

/// The metrics now.
pub fn render(seen: &Seen<'_>) -> String {
    let mut families = watched(seen.status);
    families.extend(herald(seen.herald));
    families.push(reloads(seen.reloads));
    scrape::render(families)
}

fn reloads(reloads: &Reloads) -> Family {
    let results = [("done", &reloads.done), ("failed", &reloads.failed)];
    let row = |(result, count): (&str, &AtomicU64)| {
        (vec![("result", result.to_owned())], count.load(Relaxed) as f64)
    };
    ("plimsoll_agent_reloads", "Times that the config was read again", Counter, results.map(row).to_vec())
}

fn watched(status: &Status) -> Vec<Family> {
    let each = |of: fn(&Watched) -> f64| -> Rows {
        let row = |(name, watched): (&String, &Watched)| {
            (vec![("app", watched.app.clone()), ("watched", name.clone())], of(watched))
        };
        status.watched.iter().map(row).collect()
    };
    let contention = status.watched.iter().flat_map(|(name, watched)| {
        watched.contention.iter().map(move |contended| {
            let labels = vec![
                ("app", watched.app.clone()),
                ("watched", name.clone()),
                ("resource", contended.resource.clone()),
                ("kind", contended.kind.to_owned()),
            ];
            (labels, contended.contention)
        })
    });
    let states = status.watched.iter().flat_map(|(name, watched)| {
        ["calm", "suspected", "regular_overload", "overload"].into_iter().map(move |state| {
            let labels =
                vec![("app", watched.app.clone()), ("watched", name.clone()), ("state", state.to_owned())];
            (labels, f64::from(u8::from(watched.state == state)))
        })
    });
    vec![
        (
            "plimsoll_agent_up",
            "Whether the last look succeeded",
            Gauge,
            each(|w| f64::from(u8::from(w.trouble.is_none()))),
        ),
        ("plimsoll_agent_state", "How things stand: 1 for the state that holds", Gauge, states.collect()),
        (
            "plimsoll_agent_contention_ratio",
            "The part of the requests' time that is lost to a resource",
            Gauge,
            contention.collect(),
        ),
        (
            "plimsoll_agent_late_ratio",
            "The share of recent requests that missed the objective, while it is missed",
            Gauge,
            each(|w| w.late.map_or(0.0, |late| late.late_pct / 100.0)),
        ),
        ("plimsoll_agent_tasks", "Tasks that run", Gauge, each(|w| w.tasks as f64)),
        ("plimsoll_agent_requests_completed", "Requests that ended", Counter, each(|w| w.completed as f64)),
        (
            "plimsoll_agent_queued_seconds",
            "How long tasks have waited for workers, permits and connections",
            Counter,
            each(|w| w.queued_s),
        ),
        (
            "plimsoll_agent_overloads",
            "Overloads for which somebody was to blame",
            Counter,
            each(|w| w.overloads as f64),
        ),
        (
            "plimsoll_agent_regular_overloads",
            "Overloads for which nobody was",
            Counter,
            each(|w| w.regular_overloads as f64),
        ),
        ("plimsoll_agent_cancelled", "Tasks that were told to end", Counter, each(|w| w.cancelled as f64)),
        (
            "plimsoll_agent_would_cancel",
            "Tasks that would have been, in shadow",
            Counter,
            each(|w| w.would_cancel as f64),
        ),
        ("plimsoll_agent_cancel_failures", "Cancellations that failed", Counter, each(|w| w.failed as f64)),
        ("plimsoll_agent_look_failures", "Looks that failed", Counter, each(|w| w.errors as f64)),
        ("plimsoll_agent_look_seconds", "How long a look takes", Gauge, each(|w| w.look_ms / 1e3)),
        (
            "plimsoll_agent_ledgers_left_alone",
            "Ledgers that cannot be read",
            Gauge,
            vec![(Vec::new(), status.left_alone.len() as f64)],
        ),
        (
            "plimsoll_agent_events_lost",
            "Events that could not be written",
            Counter,
            vec![(Vec::new(), status.events_lost as f64)],
        ),
    ]
}

/// Of the herald, none where there is none.
fn herald(figures: &Figures) -> Vec<Family> {
    let alone = |value: f64| -> Rows { vec![(Vec::new(), value)] };
    let mut families = vec![(
        "plimsoll_herald_up",
        "Whether the threads of the host are read",
        Gauge,
        alone(f64::from(u8::from(figures.readings > 0))),
    )];
    if figures.readings == 0 {
        return families;
    }
    let each = |of: fn(&Process) -> f64| -> Rows {
        let row = |process: &Process| (vec![("process", process.name.clone())], of(process));
        figures.processes.iter().map(row).collect()
    };
    let allocations = figures.processes.iter().flat_map(|process| {
        let Process { name, now, .. } = process;
        let row = |kind: &str, ms_per_s: f64| {
            (vec![("process", name.clone()), ("allocation", kind.to_owned())], ms_per_s / 1e3)
        };
        [
            row("actual", now.actual_ms_per_s),
            row("desired", now.desired_ms_per_s),
            row("predicted", now.predicted_ms_per_s),
            row("potential", now.potential_ms_per_s),
        ]
    });
    families.extend([
        (
            "plimsoll_herald_slowdown_ratio",
            "How many times slower than on an idle machine the processes of a name run",
            Gauge,
            each(|process| finite(process.now.slowdown())),
        ),
        (
            "plimsoll_herald_predicted_slowdown_ratio",
            "The same of the next second",
            Gauge,
            each(|process| finite(process.now.predicted_slowdown())),
        ),
        (
            "plimsoll_herald_waited_seconds",
            "How long their threads were ready to run without running",
            Counter,
            each(|process| process.waited_s),
        ),
        (
            "plimsoll_herald_cpus",
            "What all their threads got and wanted, will get and could get, in CPUs",
            Gauge,
            allocations.collect(),
        ),
        ("plimsoll_herald_tasks", "Threads that are followed", Gauge, alone(figures.tasks as f64)),
        (
            "plimsoll_herald_tasks_left_out",
            "Threads that are too many",
            Gauge,
            alone(figures.left_out as f64),
        ),
        ("plimsoll_herald_readings", "Readings of all threads", Counter, alone(figures.readings as f64)),
        (
            "plimsoll_herald_period_seconds",
            "From one reading to the next",
            Gauge,
            alone(figures.period_ms / 1e3),
        ),
        (
            "plimsoll_herald_cpu_ratio",
            "CPU time of the herald itself, as a part of one CPU",
            Gauge,
            alone(figures.cpu_pct / 100.0),
        ),
    ]);
    families
}

#[cfg(test)]
mod tests {
    use plimsoll_cpufutures::Allocations;

    use super::*;
    use crate::event::Contended;

    #[test]
    fn what_is_watched_is_measured() {
        let mut status = Status::default();
        let contention =
            vec![Contended { resource: "rows of \"a\"".to_owned(), kind: "LOCK", contention: 0.5 }];
        let main = Watched {
            app: "main".to_owned(),
            state: "overload",
            cancelled: 3,
            queued_s: 1.25,
            contention,
            ..Watched::default()
        };
        status.watched.insert("main".to_owned(), main);
        let now = Allocations { desired_ms_per_s: 500.0, actual_ms_per_s: 250.0, ..Allocations::default() };
        let figures = Figures {
            readings: 1,
            processes: vec![Process { name: "nginx".to_owned(), now, waited_s: 1.5 }],
            ..Figures::default()
        };
        let reloads = Reloads::default();
        reloads.failed.store(2, Relaxed);
        let text = render(&Seen { status: &status, herald: &figures, reloads: &reloads });
        for line in [
            "plimsoll_agent_up{app=\"main\",watched=\"main\"} 1",
            "plimsoll_agent_state{app=\"main\",watched=\"main\",state=\"overload\"} 1",
            "plimsoll_agent_cancelled_total{app=\"main\",watched=\"main\"} 3",
            "plimsoll_agent_queued_seconds_total{app=\"main\",watched=\"main\"} 1.25",
            "plimsoll_agent_reloads_total{result=\"failed\"} 2",
            "plimsoll_herald_up 1",
            "plimsoll_herald_slowdown_ratio{process=\"nginx\"} 2",
            "plimsoll_herald_predicted_slowdown_ratio{process=\"nginx\"} 1000000",
            "plimsoll_herald_waited_seconds_total{process=\"nginx\"} 1.5",
            "plimsoll_herald_cpus{process=\"nginx\",allocation=\"desired\"} 0.5",
            "resource=\"rows of \\\"a\\\"\",kind=\"LOCK\"} 0.5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
