//! A state as metrics, in the OpenMetrics text format: families whose rows are read off at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// What [`render`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Values with their labels, none for a family of one value.
pub type Rows = Vec<(Vec<(&'static str, String)>, f64)>;

/// Name (without the `_total` of a counter), help, kind and rows.
pub type Family = (&'static str, &'static str, MetricType, Rows);

/// The families that have rows, as text.
pub fn render(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    let families = families.into_iter().filter(|(.., rows)| !rows.is_empty()).collect();
    registry.register_collector(Box::new(Scrape(families)));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Scrape(Vec<Family>);

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
