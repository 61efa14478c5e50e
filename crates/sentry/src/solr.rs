//! A pool whose servers are Solrs: the queries that pass get a number, by which Solr can cancel them, and those under way can be asked for
//! (`GET /queries` of the admin address). Solr alone lists only what its clients have marked, and of that neither age nor client.
//!
//! ```text
//!  GET /solr/items/select?q=...                     Solr
//!   |                                                ^  ...&canCancel=true&queryUUID=N&queryID=N
//!   '-> arrives (waits) -> sent (runs) --------------'
//!                  |          |
//!                  '-- /queries --> agent --- /solr/items/tasks/cancel?queryUUID=N ---> Solr
//! ```
//!
//! Solr wants `queryUUID` where a query goes to several shards, and hands it on to them as `queryID`; where it does not, that has to be there
//! from the beginning.

pub mod form;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::uri::PathAndQuery;
use http::{Method, Uri, request};
use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_core::config::Solr;
use serde::Serialize;

use crate::clock;
use crate::server::Server;

/// Threads share as many tables, so that hardly ever two of them want the same.
const SHARDS: usize = 16;
/// Handlers that search.
const HANDLERS: [&str; 2] = ["select", "query"];
/// Queries that are told at once; the oldest are.
const MOST_TOLD: usize = 2_048;
/// Longest query of which the form is remembered, in bytes.
const LONGEST: usize = 16 << 10;

/// What is under way at the Solrs of one pool.
#[derive(Debug)]
pub struct Queries {
    config: Solr,
    /// What its numbers begin with. Solr refuses one that it knows already, and has others to serve than this sentry.
    prefix: String,
    began: Nanos,
    next: AtomicU64,
    shards: [Mutex<HashMap<u64, Entry>>; SHARDS],
    answered: AtomicU64,
    /// From arrival, and from being sent.
    took_ns: AtomicU64,
    served_ns: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// Path and query as the client sent them.
    asked: PathAndQuery,
    client: IpAddr,
    arrived: Nanos,
    sent: Option<(Nanos, String)>,
}

/// A query that is under way until this is dropped.
#[derive(Debug)]
pub struct Query {
    queries: Arc<Queries>,
    shard: usize,
    id: u64,
    /// As it goes on.
    uri: PathAndQuery,
}

/// What is under way, and what has been so far.
#[derive(Debug, Serialize)]
pub struct View {
    /// The pool.
    pub name: String,
    /// Requests that may be with the servers at once.
    pub slots: u32,
    /// The time of day, and when counting began, in us since 1970.
    pub at_us: u64,
    /// Likewise.
    pub began_us: u64,
    /// Queries that were answered, how long that took them in all since they came, and since they were sent.
    pub answered: u64,
    /// Likewise, in us.
    pub took_us: u64,
    /// Likewise.
    pub served_us: u64,
    /// Those under way, the oldest first.
    pub queries: Vec<QueryView>,
}

/// A query under way.
#[derive(Debug, Serialize)]
pub struct QueryView {
    /// The number by which Solr can cancel it.
    pub id: String,
    /// How often there was another before it.
    pub number: u64,
    /// The core or the collection that it asks.
    pub core: String,
    /// What it asks, without anything that a user has written.
    pub form: String,
    /// Who asks.
    pub client: IpAddr,
    /// How long ago it came, in us.
    pub age_us: u64,
    /// The server that has it; none while it waits for a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl Queries {
    /// With nothing under way.
    pub fn new(config: Solr) -> Queries {
        Queries {
            config,
            prefix: format!("plimsoll-{:x}-{:x}", clock::wall().0, std::process::id()),
            began: clock::wall(),
            next: AtomicU64::new(1),
            shards: Default::default(),
            answered: AtomicU64::new(0),
            took_ns: AtomicU64::new(0),
            served_ns: AtomicU64::new(0),
        }
    }

    /// A request has come to this thread; nothing where it is no query, or its client sees to its being cancelled.
    pub fn arrive(
        self: &Arc<Self>,
        method: &Method,
        uri: &Uri,
        thread: usize,
        client: IpAddr,
        now: Nanos,
    ) -> Option<Query> {
        if !matches!(*method, Method::GET | Method::POST) {
            return None;
        }
        let asked = uri.path_and_query()?;
        core(asked.path())?;
        let id = self.next.fetch_add(1, Relaxed);
        let uri = marked(asked, &self.name(id), &self.config)?;
        let shard = thread % SHARDS;
        let entry = Entry { asked: asked.clone(), client, arrived: now, sent: None };
        self.shards[shard].lock().insert(id, entry);
        Some(Query { queries: Arc::clone(self), shard, id, uri })
    }

    fn name(&self, id: u64) -> String {
        format!("{}-{id}", self.prefix)
    }

    /// What is under way with these slots, at one server or at all; those that wait may come to any.
    pub fn view(&self, name: &str, slots: u32, server: Option<&str>) -> View {
        let (now, wall) = (clock::now(), clock::wall());
        let mut queries = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let here = shard.iter().filter(|(_, entry)| match (server, &entry.sent) {
                (Some(wanted), Some((_, server))) => wanted == server,
                _ => true,
            });
            queries.extend(here.map(|(&id, entry)| {
                (entry.arrived, id, entry.asked.clone(), entry.client, entry.sent.clone())
            }));
        }
        queries.sort_by_key(|&(arrived, id, ..)| (arrived, id));
        queries.truncate(MOST_TOLD);
        let view = |(arrived, id, asked, client, sent): (Nanos, u64, PathAndQuery, IpAddr, Option<_>)| {
            let (core, handler) = core(asked.path()).unwrap_or_default();
            let text = asked.query().filter(|text| text.len() <= LONGEST).unwrap_or_default();
            QueryView {
                id: self.name(id),
                number: id,
                core: core.to_owned(),
                form: form::of(handler, text),
                client,
                age_us: now.since(arrived).0 / 1_000,
                server: sent.map(|(_, server): (Nanos, String)| server),
            }
        };
        View {
            name: name.to_owned(),
            slots,
            at_us: wall.0 / 1_000,
            began_us: self.began.0 / 1_000,
            answered: self.answered.load(Relaxed),
            took_us: self.took_ns.load(Relaxed) / 1_000,
            served_us: self.served_ns.load(Relaxed) / 1_000,
            queries: queries.into_iter().map(view).collect(),
        }
    }
}

impl Query {
    /// Makes a request one that Solr can cancel.
    pub fn mark(&self, head: &mut request::Parts) {
        let mut parts = std::mem::take(&mut head.uri).into_parts();
        parts.path_and_query = Some(self.uri.clone());
        // What was a URI before is one with another query.
        head.uri = Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(self.uri.clone()));
    }

    /// A server has it now.
    pub fn sent(&self, server: &Server, now: Nanos) {
        if let Some(entry) = self.queries.shards[self.shard].lock().get_mut(&self.id) {
            entry.sent = Some((now, name(server)));
        }
    }

    /// The head of its answer is there: Solr has searched.
    pub fn answered(&self, now: Nanos) {
        let Some(entry) = self.queries.shards[self.shard].lock().remove(&self.id) else { return };
        let sent = entry.sent.map_or(entry.arrived, |(sent, _)| sent);
        self.queries.answered.fetch_add(1, Relaxed);
        self.queries.took_ns.fetch_add(now.since(entry.arrived).0, Relaxed);
        self.queries.served_ns.fetch_add(now.since(sent).0, Relaxed);
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.queries.shards[self.shard].lock().remove(&self.id);
    }
}

/// What a server is called here, whatever is spoken to it.
pub fn name(server: &Server) -> String {
    format!("{}:{}", server.origin.host, server.origin.port)
}

/// The core or collection that a path asks, as `/solr/items`, and the handler, if that searches.
fn core(path: &str) -> Option<(&str, &str)> {
    let (core, handler) = path.rsplit_once('/')?;
    let is_core = core.starts_with('/') && core.len() > 1 && !core.ends_with('/');
    (is_core && HANDLERS.contains(&handler)).then_some((core, handler))
}

/// Path and query with what it takes to cancel it; nothing where its client has seen to that, or it is one shard's part of another query.
fn marked(asked: &PathAndQuery, id: &str, config: &Solr) -> Option<PathAndQuery> {
    let text = asked.query().unwrap_or_default();
    let has = |wanted: &[&str]| {
        form_urlencoded::parse(text.as_bytes()).any(|(name, _)| wanted.contains(&name.as_ref()))
    };
    if has(&["canCancel", "queryUUID", "queryID", "isShard"]) {
        return None;
    }
    let before = if text.is_empty() { String::new() } else { format!("{text}&") };
    let limit = config.time_allowed.filter(|_| !has(&["timeAllowed"]));
    let limit = limit.map_or(String::new(), |limit| format!("&timeAllowed={}", limit.0 / 1_000_000));
    let marked = format!("{}?{before}canCancel=true&queryUUID={id}&queryID={id}{limit}", asked.path());
    PathAndQuery::try_from(marked).ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn queries(time_allowed: Option<Nanos>) -> Arc<Queries> {
        Arc::new(Queries::new(Solr { time_allowed }))
    }

    fn arrive(queries: &Arc<Queries>, method: Method, uri: &str) -> Option<Query> {
        queries.arrive(&method, &uri.parse().unwrap(), 3, HERE, clock::now())
    }

    #[test]
    fn a_query_gets_a_number_that_no_other_has() {
        let queries = queries(None);
        let query = arrive(&queries, Method::GET, "http://h/solr/items/select?q=a:b").unwrap();
        let again = arrive(&queries, Method::POST, "/solr/items/query").unwrap();
        let (id, other) = (queries.name(query.id), queries.name(again.id));
        assert_ne!(id, other);
        let (mut head, ()) =
            http::Request::get("http://h/solr/items/select?q=a:b").body(()).unwrap().into_parts();
        query.mark(&mut head);
        let marks = format!("canCancel=true&queryUUID={id}&queryID={id}");
        assert_eq!(head.uri.to_string(), format!("http://h/solr/items/select?q=a:b&{marks}"));
        assert!(again.uri.to_string().starts_with("/solr/items/query?canCancel=true&"));
    }

    #[test]
    fn what_is_no_query_or_is_seen_to_passes_as_it_is() {
        let queries = queries(None);
        for (method, uri) in [
            (Method::PUT, "/solr/items/select"),
            (Method::POST, "/solr/items/update"),
            (Method::GET, "/select?q=a"),
            (Method::GET, "//select?q=a"),
            (Method::GET, "/solr/items/select?q=a&canCancel=false"),
            (Method::GET, "/solr/items/select?queryUUID=mine&q=a"),
            (Method::POST, "/solr/items/select?isShard=true"),
        ] {
            assert!(arrive(&queries, method, uri).is_none(), "{uri}");
        }
        assert!(queries.view("p", 8, None).queries.is_empty());
    }

    #[test]
    fn a_limit_is_for_those_that_have_none() {
        let queries = queries(Some(Nanos::from_secs(5)));
        let limited = arrive(&queries, Method::GET, "/solr/a/select?q=a").unwrap();
        assert!(limited.uri.to_string().ends_with("&timeAllowed=5000"));
        let own = arrive(&queries, Method::GET, "/solr/a/select?timeAllowed=9&q=a").unwrap();
        assert!(!own.uri.to_string().contains("5000"), "{}", own.uri);
    }

    #[test]
    fn what_is_under_way_is_told_without_what_users_wrote() {
        let queries = queries(None);
        let first = arrive(&queries, Method::GET, "/solr/items/select?q=user:hush&rows=10").unwrap();
        let second = arrive(&queries, Method::GET, "/solr/items/select?q=hush").unwrap();
        let server = Server::new("127.0.0.1:8983".parse().unwrap());
        first.sent(&server, clock::now());
        let view = queries.view("p", 8, Some("127.0.0.1:8983"));
        assert_eq!((view.slots, view.queries.len()), (8, 2), "who waits may come to any");
        assert_eq!(view.queries[0].server.as_deref(), Some("127.0.0.1:8983"));
        assert_eq!((&*view.queries[0].core, view.queries[1].server.as_ref()), ("/solr/items", None));
        assert!(!serde_json::to_string(&view).unwrap().contains("hush"));
        assert_eq!(queries.view("p", 8, Some("127.0.0.1:1")).queries.len(), 1);
        first.answered(clock::now());
        drop((first, second));
        let view = queries.view("p", 8, None);
        assert_eq!((view.answered, view.queries.len()), (1, 0));
    }
}
