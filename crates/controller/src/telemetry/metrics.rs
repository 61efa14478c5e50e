//! What is learnt, as metrics. None is by API or service: names come from spans, and whoever sends those must not choose labels.

use plimsoll_sentry::admin::scrape::{Family, Rows};
use prometheus_client::metrics::MetricType::{Counter, Gauge};

use super::Learnt;
use super::usage::{Source, Usage};

/// The metrics of what is known now.
pub fn families(learnt: &Learnt, usage: &Usage) -> Vec<Family> {
    let alone = |value: f64| -> Rows { vec![(Vec::new(), value)] };
    let (figures, counts) = (learnt.paths.figures, learnt.counts);
    let fates = [
        ("taken", figures.spans),
        ("late", figures.late),
        ("left_out", figures.left_out),
        ("no_room", figures.no_room),
        ("rejected", counts.rejected),
    ];
    let spans = fates.map(|(fate, spans)| (vec![("fate", fate.to_owned())], spans as f64));
    let sources = |of: fn(&Source) -> f64| -> Rows {
        usage.sources.iter().map(|source| (vec![("source", source.name.clone())], of(source))).collect()
    };
    vec![
        ("plimsoll_controller_spans", "Spans that arrived, by what became of them", Counter, spans.to_vec()),
        (
            "plimsoll_controller_span_messages",
            "Messages of spans that were taken",
            Counter,
            alone(counts.messages as f64),
        ),
        (
            "plimsoll_controller_span_messages_refused",
            "Messages that are none, or too long",
            Counter,
            alone(counts.refused as f64),
        ),
        (
            "plimsoll_controller_traces_taken_ratio",
            "The share of traces that is taken in",
            Gauge,
            alone(figures.taken_share),
        ),
        (
            "plimsoll_controller_spans_open",
            "Spans that wait for the rest of their traces",
            Gauge,
            alone(figures.open_spans as f64),
        ),
        (
            "plimsoll_controller_apis",
            "APIs whose paths are known",
            Gauge,
            alone(learnt.paths.apis.len() as f64),
        ),
        (
            "plimsoll_controller_services_told",
            "Services of which is known how busy they are, how long their queues, or what they get done",
            Gauge,
            alone(usage.services.len() as f64),
        ),
        (
            "plimsoll_controller_source_up",
            "Whether a source of metrics answered the last time",
            Gauge,
            sources(|source| f64::from(u8::from(source.answers))),
        ),
        (
            "plimsoll_controller_source_failures",
            "Times that a source did not answer",
            Counter,
            sources(|source| source.failures as f64),
        ),
        (
            "plimsoll_controller_source_nonsense",
            "Values of a source that cannot be",
            Counter,
            sources(|source| source.nonsense as f64),
        ),
    ]
}
