//! What a node counts, as `GET /_nodes/_local/stats` says it, and what that comes to from look to look: pure.
//!
//! It counts searches, writes and what its threads do at once, but looks at its heap and its processes once a second only. So of those it
//! is known at what rate they were used a moment ago.

use std::collections::HashMap;

use serde::Deserialize;

use crate::server::latency::Pauses;
use crate::server::stamp::Stamp;

/// What is asked.
pub const STATS: &str = "/_nodes/_local/stats/indices,process,jvm,thread_pool/search,indexing,get\
    ?filter_path=nodes.*.timestamp,nodes.*.indices.search.query_total,nodes.*.indices.search.query_time_in_millis,\
    nodes.*.indices.search.fetch_time_in_millis,nodes.*.indices.indexing.index_time_in_millis,nodes.*.indices.get.total,\
    nodes.*.process.timestamp,nodes.*.process.cpu.total_in_millis,nodes.*.jvm.timestamp,nodes.*.jvm.uptime_in_millis,\
    nodes.*.jvm.mem.heap_used_in_bytes,nodes.*.jvm.mem.heap_max_in_bytes,nodes.*.jvm.gc.collectors.*.collection_count,\
    nodes.*.jvm.gc.collectors.*.collection_time_in_millis,\
    nodes.*.thread_pool.search,nodes.*.thread_pool.write";

/// How long the mean time of searches is averaged.
const MEAN_S: f64 = 1.0;

/// An answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    nodes: HashMap<String, Node>,
}

/// One node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    timestamp: i64,
    indices: Indices,
    process: Process,
    jvm: Jvm,
    thread_pool: Pools,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Indices {
    search: Search,
    indexing: Indexing,
    get: Get,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Search {
    query_total: u64,
    query_time_in_millis: u64,
    fetch_time_in_millis: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Indexing {
    index_time_in_millis: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Get {
    total: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    timestamp: i64,
    cpu: Cpu,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Cpu {
    total_in_millis: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Jvm {
    timestamp: i64,
    uptime_in_millis: i64,
    mem: Memory,
    gc: Collections,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    heap_used_in_bytes: u64,
    heap_max_in_bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Collections {
    collectors: HashMap<String, Collector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Collector {
    collection_count: u64,
    collection_time_in_millis: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Pools {
    search: Threads,
    write: Threads,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Threads {
    threads: u64,
    completed: u64,
}

impl Stats {
    /// The only one.
    ///
    /// # Errors
    /// Where there is none.
    pub fn node(self) -> Result<Node, String> {
        self.nodes.into_values().next().ok_or_else(|| "the node says nothing of itself".to_owned())
    }
}

impl Node {
    /// Its time.
    pub fn at(&self) -> Stamp {
        Stamp(self.timestamp.saturating_mul(1_000))
    }

    /// When it began.
    pub fn began(&self) -> Stamp {
        Stamp(self.jvm.timestamp.saturating_sub(self.jvm.uptime_in_millis).saturating_mul(1_000))
    }

    /// Requests that it has served: of a search, each shard counts.
    pub fn requests(&self) -> u64 {
        let served =
            [self.indices.search.query_total, self.thread_pool.write.completed, self.indices.get.total];
        served.into_iter().fold(0, u64::saturating_add)
    }
}

impl Jvm {
    /// Collections of what is old.
    fn full(&self) -> u64 {
        self.gc.collectors.get("old").map_or(0, |collector| collector.collection_count)
    }

    fn collected(&self) -> Collected {
        let pauses = self.gc.collectors.iter().filter(|(name, _)| stops_everybody(name));
        pauses.map(|(_, it)| (it.collection_count, it.collection_time_in_millis)).collect()
    }
}

/// Whether what a collector counts is time in which everybody stood still: the cycles of some run beside the requests, and their pauses are
/// counted under a name of their own.
pub fn stops_everybody(collector: &str) -> bool {
    !collector.contains("Cycles")
}

/// How often and for how many ms everybody stood still since the node began, as its collectors count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected(u64, u64);

impl Collected {
    /// What came to it in so many ns since `earlier`.
    pub fn since(self, earlier: Collected, in_ns: u64) -> Pauses {
        let ms = self.1.saturating_sub(earlier.1);
        Pauses::of(self.0.saturating_sub(earlier.0), ms.saturating_mul(1_000_000), in_ns)
    }
}

impl FromIterator<(u64, u64)> for Collected {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(collectors: T) -> Collected {
        let plus = |sum: Collected, it: (u64, u64)| {
            Collected(sum.0.saturating_add(it.0), sum.1.saturating_add(it.1))
        };
        collectors.into_iter().fold(Collected(0, 0), plus)
    }
}

/// What a pool of threads did since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Threads that there are.
    pub threads: u64,
    /// Tasks that ended.
    pub ended: u64,
    /// How long those had a thread, in ns.
    pub ended_ns: u64,
}

/// What a node did since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The time since then, in ns; 0 at the first.
    pub elapsed_ns: u64,
    /// Requests that ended.
    pub requests: u64,
    /// The pool that searches.
    pub search: Did,
    /// The pool that writes.
    pub write: Did,
    /// Time on processors for each unit of time.
    pub processors: f64,
    /// How it stood still to collect garbage.
    pub paused: Pauses,
    /// What was allocated, in bytes a second, as far as the heap grew.
    pub allocated_per_s: f64,
    /// The size of the heap, in bytes.
    pub heap: u64,
    /// What of it is in use, in bytes, where the node has looked since the last look.
    pub in_use: Option<u64>,
    /// How often all of it is gone through to collect what is old, a second.
    pub full_per_s: f64,
    /// What a search takes on average on a shard, in ns.
    pub mean_ns: Option<f64>,
}

/// Remembers the last look.
#[derive(Debug, Default)]
pub struct Figures {
    last: Option<Node>,
    /// The last of each that was another than the one before.
    process: Process,
    jvm: Jvm,
    change: Change,
}

impl Figures {
    /// Takes in a look.
    pub fn look(&mut self, node: Node) -> Change {
        let now = node.clone();
        let Some(last) = self.last.replace(node) else {
            (self.process, self.jvm) = (now.process.clone(), now.jvm.clone());
            self.change = Change { heap: now.jvm.mem.heap_max_in_bytes, ..Change::default() };
            return self.change;
        };
        self.change.in_use = None;
        self.rates(&now);
        let since = |now: u64, last: u64| now.saturating_sub(last);
        let time = |node: &Node| {
            let Search { query_time_in_millis, fetch_time_in_millis, .. } = node.indices.search;
            query_time_in_millis.saturating_add(fetch_time_in_millis)
        };
        let in_ns = |ms: u64| ms.saturating_mul(1_000_000);
        let searched_ns = in_ns(since(time(&now), time(&last)));
        let wrote = |node: &Node| node.indices.indexing.index_time_in_millis;
        let (pools, before) = (&now.thread_pool, &last.thread_pool);
        let did = |now: &Threads, last: &Threads, ended_ns| Did {
            threads: now.threads,
            ended: since(now.completed, last.completed),
            ended_ns,
        };
        let searches = since(now.indices.search.query_total, last.indices.search.query_total);
        let elapsed_ns = now.at().since_ns(last.at());
        self.mean(elapsed_ns, searches, searched_ns);
        self.change = Change {
            elapsed_ns,
            requests: since(now.requests(), last.requests()),
            search: did(&pools.search, &before.search, searched_ns),
            write: did(&pools.write, &before.write, in_ns(since(wrote(&now), wrote(&last)))),
            heap: now.jvm.mem.heap_max_in_bytes,
            ..self.change
        };
        self.change
    }

    fn mean(&mut self, elapsed_ns: u64, searches: u64, searched_ns: u64) {
        if searches > 0 {
            let mean = searched_ns as f64 / searches as f64;
            let factor = 1.0 - (-(elapsed_ns as f64 / 1e9) / MEAN_S).exp();
            let before = self.change.mean_ns.unwrap_or(mean);
            self.change.mean_ns = Some(before + (mean - before) * factor);
        }
    }

    /// What it looks at once a second only.
    fn rates(&mut self, now: &Node) {
        let Node { process, jvm, .. } = now;
        let passed_ms = process.timestamp.saturating_sub(self.process.timestamp);
        if passed_ms > 0 {
            let used_ms = process.cpu.total_in_millis.saturating_sub(self.process.cpu.total_in_millis);
            self.change.processors = (used_ms as f64 / passed_ms as f64).max(0.0);
            self.process = process.clone();
        }
        let passed_ms = jvm.timestamp.saturating_sub(self.jvm.timestamp);
        if passed_ms > 0 {
            let (collected, before) = (jvm.collected(), self.jvm.collected());
            self.change.paused = collected.since(before, (passed_ms as u64).saturating_mul(1_000_000));
            let full = jvm.full().saturating_sub(self.jvm.full());
            self.change.full_per_s = full as f64 / (passed_ms as f64 / 1e3);
            self.change.in_use = Some(jvm.mem.heap_used_in_bytes);
            let grown = jvm.mem.heap_used_in_bytes.checked_sub(self.jvm.mem.heap_used_in_bytes);
            // Where something was collected, by how much it has grown says nothing.
            if let Some(grown) = grown.filter(|_| collected == before) {
                self.change.allocated_per_s = grown as f64 / (passed_ms as f64 / 1e3);
            }
            self.jvm = jvm.clone();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A node after so many ms, which has served so many searches of 4 ms each.
    pub fn answer(ms: i64, searches: u64, cpu_ms: i64, gc_ms: u64) -> String {
        // It looks at itself once a second.
        let (seen, base) = (1_000 * (ms / 1_000), 1_700_000_000_000_i64);
        serde_json::json!({ "nodes": { "n1": {
            "timestamp": base + ms,
            "indices": {
                "search": { "query_total": searches, "query_time_in_millis": 3 * searches, "fetch_time_in_millis": searches },
                "indexing": { "index_time_in_millis": 500 }, "get": { "total": 5 },
            },
            "process": { "timestamp": base + seen, "cpu": { "total_in_millis": cpu_ms } },
            "jvm": {
                "timestamp": base + seen, "uptime_in_millis": 60_000 + seen,
                "mem": { "heap_used_in_bytes": 1_000_000 + seen, "heap_max_in_bytes": 1_073_741_824 },
                "gc": { "collectors": {
                    "young": { "collection_count": gc_ms / 125, "collection_time_in_millis": gc_ms },
                    "old": { "collection_count": 1, "collection_time_in_millis": 7 },
                    "ZGC Cycles": { "collection_count": ms, "collection_time_in_millis": ms },
                } },
            },
            "thread_pool": {
                "search": { "threads": 4, "queue": 3, "active": 4, "rejected": 0, "largest": 4, "completed": 2 * searches },
                "write": { "threads": 2, "queue": 0, "active": 0, "rejected": 0, "largest": 2, "completed": 10 },
            },
        } } })
        .to_string()
    }

    fn node(ms: i64, searches: u64, cpu_ms: i64, gc_ms: u64) -> Node {
        serde_json::from_str::<Stats>(&answer(ms, searches, cpu_ms, gc_ms)).unwrap().node().unwrap()
    }

    #[test]
    fn a_node_tells_its_time_and_what_it_has_served() {
        let node = node(1_500, 100, 0, 0);
        assert_eq!((node.at(), node.began()), (Stamp(1_700_000_001_500_000), Stamp(1_699_999_940_000_000)));
        assert_eq!(node.requests(), 100 + 10 + 5);
        assert!(serde_json::from_str::<Stats>("{}").unwrap().node().is_err());
    }

    #[test]
    fn what_it_did_is_the_difference_of_two_looks() {
        let mut figures = Figures::default();
        assert_eq!(figures.look(node(1_000, 100, 5_000, 50)).elapsed_ns, 0);
        let change = figures.look(node(1_100, 120, 5_000, 50));
        assert_eq!((change.elapsed_ns, change.requests), (100_000_000, 20));
        assert_eq!(change.search, Did { threads: 4, ended: 40, ended_ns: 80_000_000 });
        assert_eq!((change.write.ended, change.mean_ns), (0, Some(4e6)));
        assert_eq!((change.processors, change.paused.part), (0.0, 0.0), "not looked at yet");
        // What it did is known when it has looked, and lasts until it looks again.
        for ms in [2_000, 2_100, 2_900] {
            let change = figures.look(node(ms, 120, 6_500, 300));
            let paused = Pauses { part: 0.25, each_ns: 125_000_000 };
            assert_eq!((change.processors, change.paused), (1.5, paused), "{ms}");
        }
        let change = figures.look(node(3_000, 120, 6_600, 300));
        assert_eq!((change.paused.part, change.allocated_per_s), (0.0, 1_000.0));
    }
}
