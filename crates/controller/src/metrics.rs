//! `/metrics`, in the OpenMetrics text format. Labels are names from the config, and addresses from it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::status::{PoolStatus, SentryStatus, Status};

/// What [`render`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics now.
pub fn render(status: &Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::of(status)));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

type Rows = Vec<(Vec<(&'static str, String)>, f64)>;

#[derive(Debug)]
struct Scrape(Vec<(&'static str, &'static str, MetricType, Rows)>);

impl Scrape {
    fn of(status: &Status) -> Scrape {
        let pools = |of: fn(&PoolStatus) -> Option<f64>| -> Rows {
            let row = |pool: &PoolStatus| Some((vec![("pool", pool.name.clone())], of(pool)?));
            status.pools.iter().filter_map(row).collect()
        };
        let alone = |value: u64| vec![(Vec::new(), value as f64)];
        let sentries = |of: &dyn Fn(&SentryStatus) -> Option<f64>| -> Rows {
            let row = |sentry: &SentryStatus| Some((vec![("sentry", sentry.address.clone())], of(sentry)?));
            status.sentries.iter().filter_map(row).collect()
        };
        use MetricType::{Counter, Gauge};
        let families = vec![
            (
                "plimsoll_controller_servers_planned",
                "Servers that there should be",
                Gauge,
                pools(|p| Some(p.planned.into())),
            ),
            (
                "plimsoll_controller_servers_ready",
                "Servers that take requests",
                Gauge,
                pools(|p| Some(p.ready.len() as f64)),
            ),
            (
                "plimsoll_controller_servers_starting",
                "Servers that are not ready yet",
                Gauge,
                pools(|p| Some(p.starting.into())),
            ),
            (
                "plimsoll_controller_servers_leaving",
                "Servers that finish what they have",
                Gauge,
                pools(|p| Some(p.leaving.into())),
            ),
            (
                "plimsoll_controller_server_failures",
                "Servers that did not start, died, or were found down, and providers that failed",
                Counter,
                pools(|p| Some(p.failures as f64)),
            ),
            ("plimsoll_controller_offered_per_second", "Requests that arrive", Gauge, pools(|p| p.per_s)),
            (
                "plimsoll_controller_refused_ratio",
                "The share of them that is refused",
                Gauge,
                pools(|p| p.refused),
            ),
            (
                "plimsoll_controller_target_seconds",
                "The mean response time that is planned for",
                Gauge,
                pools(|p| p.target_ms.map(|ms| ms / 1e3)),
            ),
            (
                "plimsoll_controller_sentry_up",
                "Whether a sentry answered",
                Gauge,
                sentries(&|s| Some(f64::from(u8::from(s.answers)))),
            ),
            (
                "plimsoll_controller_sentry_busy_ratio",
                "The share of its CPU that a sentry uses",
                Gauge,
                sentries(&|s| s.busy),
            ),
            (
                "plimsoll_controller_sentry_failures",
                "Looks at sentries and orders to them that failed",
                Counter,
                alone(status.sentry_failures),
            ),
            (
                "plimsoll_controller_nonsense",
                "Values that sentries reported and that cannot be",
                Counter,
                alone(status.nonsense),
            ),
        ];
        Scrape(families.into_iter().filter(|(.., rows)| !rows.is_empty()).collect())
    }
}

fn sample(value: f64, kind: MetricType, metric: &mut MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Counter => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        _ => metric.encode_gauge(&value),
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, kind, rows) in &self.0 {
            let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, value) in rows {
                if labels.is_empty() {
                    sample(*value, *kind, &mut family)?;
                } else {
                    sample(*value, *kind, &mut family.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}
