//! The tasks of a node, as `GET /_tasks` lists them: pure.
//!
//! A search is a task with children: on every shard one that works, on a thread of a pool, and has the time on processors and the memory. What
//! is of interest is who began it all, the root, and what all that it began have.

use std::collections::HashMap;

use serde::Deserialize;

use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

/// What is asked. Only roots and those that work are of interest, and of them nothing that a user has written.
pub const LIST: &str = "/_tasks?nodes=_local&detailed=true&group_by=none&actions=indices:data/*,indices:admin/forcemerge*\
    &filter_path=tasks.id,tasks.action,tasks.start_time_in_millis,tasks.running_time_in_nanos,tasks.cancellable,\
    tasks.parent_task_id,tasks.resource_stats.total,tasks.status.total,tasks.status.created,tasks.status.updated,\
    tasks.status.deleted,tasks.status.noops,tasks.status.version_conflicts";

/// Generations that are followed up.
const GENERATIONS: usize = 16;

/// An answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct List {
    tasks: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    id: Pid,
    action: String,
    start_time_in_millis: i64,
    running_time_in_nanos: u64,
    cancellable: bool,
    parent_task_id: Option<String>,
    resource_stats: Option<Stats>,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stats {
    total: Took,
}

/// What a task took since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Took {
    /// Time on processors, in ns.
    #[serde(rename = "cpu_time_in_nanos")]
    pub cpu_ns: u64,
    /// What it has allocated, in bytes.
    #[serde(rename = "memory_in_bytes")]
    pub bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    total: u64,
    created: u64,
    updated: u64,
    deleted: u64,
    noops: u64,
    version_conflicts: u64,
}

/// A pool of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// For searches.
    Search,
    /// For writes.
    Write,
}

/// One that nobody else began.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    /// Its number.
    pub id: Pid,
    /// When it began.
    pub began: Stamp,
    /// What it does, in the server's words.
    pub action: String,
    /// What it is if nobody waits for it.
    pub kind: Option<&'static str>,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// How far it is: done, of how much.
    pub progress: Option<(u64, u64)>,
}

/// One that works for a root, or wants to.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its number.
    pub id: Pid,
    /// Whom it works for.
    pub root: Pid,
    /// On whose threads.
    pub pool: Pool,
    /// For how long it has been there.
    pub age_ns: u64,
    /// What it took, where the server says so.
    pub took: Option<Took>,
}

impl List {
    /// Who began what, and who works for them. `node` is the node's own name for itself.
    pub fn sort(&self, node: &str) -> (Vec<Root>, Vec<Part>) {
        let rows: HashMap<Pid, &Row> = self.tasks.iter().map(|row| (row.id, row)).collect();
        let parent = |row: &Row| {
            let id = row.parent_task_id.as_deref()?.strip_prefix(node)?.strip_prefix(':')?.parse().ok()?;
            rows.get::<Pid>(&id).copied()
        };
        let root = |row: &Row| {
            let up = std::iter::successors(rows.get(&row.id).copied(), |row| parent(row));
            up.take(GENERATIONS).last().map_or(row.id, |root| root.id)
        };
        let roots = self.tasks.iter().filter(|row| parent(row).is_none()).map(Row::root).collect();
        let part = |row: &Row| {
            let (id, pool) = (row.id, pool(&row.action)?);
            let took = row.resource_stats.as_ref().map(|stats| stats.total);
            Some(Part { id, root: root(row), pool, age_ns: row.running_time_in_nanos, took })
        };
        (roots, self.tasks.iter().filter_map(part).collect())
    }
}

impl Row {
    fn root(&self) -> Root {
        let status = self.status.as_ref().filter(|status| status.total > 0);
        Root {
            id: self.id,
            began: Stamp(self.start_time_in_millis.saturating_mul(1_000)),
            kind: kind(&self.action),
            action: self.action.clone(),
            cancellable: self.cancellable,
            progress: status.map(|s| {
                let done = [s.created, s.updated, s.deleted, s.noops, s.version_conflicts];
                (done.into_iter().fold(0, u64::saturating_add).min(s.total), s.total)
            }),
        }
    }
}

/// On whose threads such a task works, if it does.
fn pool(action: &str) -> Option<Pool> {
    if action.starts_with("indices:data/read/search[") {
        Some(Pool::Search)
    } else if action.starts_with("indices:data/write/bulk[s][") {
        Some(Pool::Write)
    } else {
        None
    }
}

/// What a task is that people start and leave alone.
fn kind(action: &str) -> Option<&'static str> {
    match action {
        "indices:data/write/update/byquery" => Some("update by query"),
        "indices:data/write/delete/byquery" => Some("delete by query"),
        "indices:data/write/reindex" => Some("reindex"),
        action if action.starts_with("indices:admin/forcemerge") => Some("force merge"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"{"tasks":[
        {"id":7,"action":"indices:data/read/search","start_time_in_millis":1700000000123,"running_time_in_nanos":500000000,
         "cancellable":true,"resource_stats":{"total":{"cpu_time_in_nanos":0,"memory_in_bytes":0}}},
        {"id":8,"action":"indices:data/read/search[phase/query]","start_time_in_millis":1700000000124,
         "running_time_in_nanos":499000000,"cancellable":true,"parent_task_id":"n1:7",
         "resource_stats":{"total":{"cpu_time_in_nanos":310000000,"memory_in_bytes":4096}}},
        {"id":9,"action":"indices:data/read/search[phase/query]","running_time_in_nanos":1000,"cancellable":true,
         "parent_task_id":"n2:7"},
        {"id":10,"action":"indices:data/write/update/byquery","cancellable":true,
         "status":{"total":1000,"updated":200,"noops":50,"version_conflicts":1,"batches":3}},
        {"id":11,"action":"indices:data/write/bulk","cancellable":false,"parent_task_id":"n1:10"},
        {"id":12,"action":"indices:data/write/bulk[s]","cancellable":false,"parent_task_id":"n1:11"},
        {"id":13,"action":"indices:data/write/bulk[s][p]","running_time_in_nanos":77,"cancellable":false,"parent_task_id":"n1:12"}
    ]}"#;

    #[test]
    fn who_works_is_found_by_who_began_it() {
        let list: List = serde_json::from_str(LISTED).unwrap();
        let (roots, parts) = list.sort("n1");
        // What another node has begun is a root here.
        assert_eq!(roots.iter().map(|root| root.id).collect::<Vec<_>>(), [7, 9, 10]);
        assert_eq!((roots[0].began, roots[0].kind), (Stamp(1_700_000_000_123_000), None));
        assert_eq!((roots[2].progress, roots[2].kind), (Some((251, 1_000)), Some("update by query")));
        let works: Vec<_> = parts.iter().map(|part| (part.id, part.root, part.pool)).collect();
        assert_eq!(works, [(8, 7, Pool::Search), (9, 9, Pool::Search), (13, 10, Pool::Write)]);
        assert_eq!(parts[0].took, Some(Took { cpu_ns: 310_000_000, bytes: 4_096 }));
        assert_eq!(parts[1].took, None);
    }

    #[test]
    fn nothing_runs_and_nonsense_are_both_taken() {
        assert_eq!(serde_json::from_str::<List>("{}").unwrap().sort("n1"), (vec![], vec![]));
        // Each the other's parent.
        let circle = r#"{"tasks":[{"id":1,"action":"indices:data/read/search[x]","parent_task_id":"n:2"},
            {"id":2,"action":"y","parent_task_id":"n:1"}]}"#;
        let (roots, parts) = serde_json::from_str::<List>(circle).unwrap().sort("n");
        assert_eq!((roots.len(), parts.len()), (0, 1));
    }
}
