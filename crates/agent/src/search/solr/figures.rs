//! What Solr counts, as `GET /solr/admin/metrics` says it, and what that comes to from look to look: pure.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::server::stamp::Stamp;

use super::super::figures::{Change, Collected, Did, stops_everybody};

/// What is asked: of the machine that it runs on.
pub const METRICS: &str = "/solr/admin/metrics?wt=json&compact=true&group=jvm&prefix=os.processCpuTime,gc.,memory.heap.used,memory.heap.max";
/// Likewise, and what its cores have answered.
pub const OF_CORES: &str = "/solr/admin/metrics?wt=json&compact=true&group=jvm,core\
    &prefix=os.processCpuTime,gc.,memory.heap.used,memory.heap.max,\
    QUERY./select.requests,QUERY./select.totalTime,QUERY./query.requests,QUERY./query.totalTime";

/// What the names of a core's figures begin with.
const CORE: &str = "solr.core.";
/// How long the mean time of queries is averaged.
const MEAN_S: f64 = 1.0;

/// An answer.
#[derive(Debug, Default, Deserialize)]
pub struct Metrics {
    metrics: HashMap<String, Map<String, Value>>,
}

/// Queries that were answered, and how long that took in all: from when they came, and from when Solr had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// How many.
    pub answered: u64,
    /// In us.
    pub took_us: u64,
    /// Likewise.
    pub served_us: u64,
}

impl Metrics {
    /// Where its cores are.
    pub fn cores(&self) -> impl Iterator<Item = String> {
        self.metrics.keys().filter_map(|name| Some(format!("/solr/{}", name.strip_prefix(CORE)?)))
    }

    /// What its cores have answered.
    pub fn counts(&self) -> Counts {
        let cores = self.metrics.iter().filter(|(name, _)| name.starts_with(CORE));
        let sum = |end: &str| {
            let figures = cores.clone().flat_map(|(_, figures)| figures);
            let of_queries = figures.filter(|(name, _)| name.ends_with(end));
            of_queries.filter_map(|(_, figure)| figure.as_f64()).sum::<f64>() as u64
        };
        let took_us = sum(".totalTime") / 1_000;
        Counts { answered: sum(".requests"), took_us, served_us: took_us }
    }

    fn jvm(&self, name: &str) -> u64 {
        self.metrics.get("solr.jvm").and_then(|jvm| jvm.get(name)).and_then(Value::as_u64).unwrap_or(0)
    }

    fn collected(&self) -> Collected {
        let figures = self.metrics.get("solr.jvm").into_iter().flatten();
        let collectors = figures.filter_map(|(name, figure)| {
            let (collector, what) = name.strip_prefix("gc.")?.rsplit_once('.')?;
            Some((what, figure.as_u64()?)).filter(|_| stops_everybody(collector))
        });
        let figures = collectors.map(|(what, figure)| match what {
            "count" => (figure, 0),
            "time" => (0, figure),
            _ => (0, 0),
        });
        figures.collect()
    }
}

/// When it began, as its description of itself says.
pub fn began(system: &Value) -> Stamp {
    let text = system["jvm"]["jmx"]["startTime"].as_str().unwrap_or_default();
    let began = humantime::parse_rfc3339(text).ok();
    let since = began.and_then(|began| began.duration_since(std::time::UNIX_EPOCH).ok());
    Stamp(since.and_then(|since| i64::try_from(since.as_micros()).ok()).unwrap_or(0))
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Stamp,
    counts: Counts,
    cpu_ns: u64,
    collected: Collected,
    heap_used: u64,
}

/// Remembers the last look.
#[derive(Debug, Default)]
pub struct Figures {
    last: Option<Sample>,
    mean_ns: Option<f64>,
    allocated_per_s: f64,
}

impl Figures {
    /// Takes in a look.
    pub fn look(&mut self, at: Stamp, metrics: &Metrics, threads: u64, counts: Counts) -> Change {
        let now = Sample {
            at,
            counts,
            cpu_ns: metrics.jvm("os.processCpuTime"),
            collected: metrics.collected(),
            heap_used: metrics.jvm("memory.heap.used"),
        };
        let heap = metrics.jvm("memory.heap.max");
        let Some(last) = self.last.replace(now) else { return Change { heap, ..Change::default() } };
        let elapsed_ns = at.since_ns(last.at);
        let elapsed = elapsed_ns.max(1) as f64;
        let seconds = elapsed / 1e9;
        let since = |now: u64, last: u64| now.saturating_sub(last);
        let answered = since(counts.answered, last.counts.answered);
        if answered > 0 {
            let mean = 1e3 * since(counts.took_us, last.counts.took_us) as f64 / answered as f64;
            let before = self.mean_ns.unwrap_or(mean);
            self.mean_ns = Some(before + (mean - before) * (1.0 - (-seconds / MEAN_S).exp()));
        }
        // Where something was collected, by how much it has grown says nothing.
        if let Some(grown) =
            now.heap_used.checked_sub(last.heap_used).filter(|_| now.collected == last.collected)
        {
            self.allocated_per_s = grown as f64 / seconds;
        }
        let served_ns = since(counts.served_us, last.counts.served_us).saturating_mul(1_000);
        Change {
            elapsed_ns,
            requests: answered,
            search: Did { threads, ended: answered, ended_ns: served_ns },
            write: Did::default(),
            processors: since(now.cpu_ns, last.cpu_ns) as f64 / elapsed,
            paused: now.collected.since(last.collected, elapsed_ns),
            allocated_per_s: self.allocated_per_s,
            heap,
            mean_ns: self.mean_ns,
            // Of Solr's tasks it is not known what they hold of it.
            in_use: None,
            full_per_s: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metrics(queries: u64, cpu_ms: u64, gc_ms: u64) -> Metrics {
        let answer = json!({ "responseHeader": { "status": 0 }, "metrics": {
            "solr.jvm": {
                "os.processCpuTime": cpu_ms * 1_000_000, "gc.G1-Young-Generation.time": gc_ms, "gc.G1-Young-Generation.count": gc_ms / 5,
                "gc.ZGC-Cycles.time": 100 * cpu_ms, "gc.ZGC-Cycles.count": cpu_ms,
                "memory.heap.used": 1_000 + cpu_ms, "memory.heap.max": 1_073_741_824,
            },
            "solr.core.items": {
                "QUERY./select.requests": queries, "QUERY./select.totalTime": 4_000_000 * queries,
                "QUERY./query.requests": 0, "QUERY./query.totalTime": 0,
            },
        } });
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn what_it_did_is_the_difference_of_two_looks() {
        let mut figures = Figures::default();
        let mut look =
            |at_ms: i64, metrics: &Metrics| figures.look(Stamp(1_000 * at_ms), metrics, 8, metrics.counts());
        assert_eq!(look(0, &metrics(10, 500, 7)).heap, 1_073_741_824);
        let change = look(100, &metrics(30, 650, 7));
        assert_eq!((change.elapsed_ns, change.requests, change.mean_ns), (100_000_000, 20, Some(4e6)));
        assert_eq!(change.search, Did { threads: 8, ended: 20, ended_ns: 80_000_000 });
        assert_eq!((change.processors, change.paused.part, change.allocated_per_s), (1.5, 0.0, 1_500.0));
        let change = look(200, &metrics(30, 650, 32));
        assert_eq!((change.paused.part, change.paused.each_ns), (0.25, 5_000_000));
        assert_eq!(change.allocated_per_s, 1_500.0);
    }

    #[test]
    fn it_says_where_its_cores_are_and_when_it_began() {
        assert_eq!(metrics(0, 0, 0).cores().collect::<Vec<_>>(), ["/solr/items"]);
        let system = json!({ "jvm": { "jmx": { "startTime": "2023-11-14T22:13:20.500Z" } } });
        assert_eq!(began(&system), Stamp(1_700_000_000_500_000));
        assert_eq!(began(&Value::Null), Stamp(0));
    }
}
