//! Who runs: pure.

use std::collections::HashMap;

use plimsoll_sentry::solr::form;
use serde::Deserialize;

use super::figures::Counts;
use crate::server::Told;
use crate::server::chains::Pid;
use crate::server::stamp::Stamp;

/// What a sentry is asked of the queries at one of its servers.
pub fn path(pool: &str, server: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = query.append_pair("pool", pool).append_pair("server", server).finish();
    format!("/queries?{query}")
}

/// What it answers.
#[derive(Debug, Deserialize)]
pub struct Queries {
    slots: u64,
    at_us: i64,
    began_us: i64,
    #[serde(flatten)]
    counts: Counts,
    queries: Vec<Query>,
}

#[derive(Debug, Deserialize)]
struct Query {
    id: String,
    number: Pid,
    core: String,
    form: String,
    client: String,
    age_us: i64,
    server: Option<String>,
}

/// What there is at a look.
#[derive(Debug)]
pub struct Listed {
    /// The time of whoever says so.
    pub at: Stamp,
    /// When that began.
    pub began: Stamp,
    /// Queries that have a thread at most.
    pub threads: u64,
    /// What has been answered.
    pub counts: Counts,
    /// What is under way.
    pub rows: Vec<Row>,
}

/// A query under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number here.
    pub pid: Pid,
    /// Its name, by which it is cancelled.
    pub id: String,
    /// What it asks of, as a path.
    pub core: String,
    /// When it came, or was first seen.
    pub began: Stamp,
    /// Whether it waits for a slot of the sentry.
    pub waits: bool,
    form: String,
    client: Option<String>,
}

impl Row {
    /// As it may be told.
    pub fn told(&self) -> Told {
        Told {
            statement: Some(self.form.clone()),
            database: Some(self.core.clone()),
            client: self.client.clone(),
            ..Told::default()
        }
    }
}

impl Queries {
    /// What there is.
    pub fn listed(self) -> Listed {
        let Queries { slots, at_us, began_us, counts, queries } = self;
        let rows = queries.into_iter().map(|query| Row {
            pid: query.number,
            id: query.id,
            core: query.core,
            began: Stamp(at_us.saturating_sub(query.age_us)),
            waits: query.server.is_none(),
            form: query.form,
            client: Some(query.client),
        });
        Listed { at: Stamp(at_us), began: Stamp(began_us), threads: slots, counts, rows: rows.collect() }
    }
}

/// Remembers which queries there were, as their clients named them, and since when.
#[derive(Debug, Default)]
pub struct Names {
    last: Pid,
    known: HashMap<(String, String), (Pid, Stamp)>,
}

impl Names {
    /// What runs: core, name and query of each.
    pub fn rows(&mut self, running: Vec<(String, String, String)>, at: Stamp) -> Vec<Row> {
        let before = std::mem::take(&mut self.known);
        let row = |(core, id, asked): (String, String, String)| {
            let key = (core, id);
            let (pid, began) = before.get(&key).copied().unwrap_or_else(|| {
                self.last += 1;
                (self.last, at)
            });
            self.known.insert(key.clone(), (pid, began));
            let ((core, id), form) = (key, form::of("", &asked));
            Row { pid, id, core, began, waits: false, form: form.trim_start().to_owned(), client: None }
        };
        running.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::Nanos;

    use super::*;

    #[test]
    fn a_name_is_the_same_query_until_it_is_gone() {
        let mut names = Names::default();
        let query = |id: &str| ("/solr/a".to_owned(), id.to_owned(), "q=user:hush".to_owned());
        let rows = names.rows(vec![query("x"), query("y")], Stamp(10));
        assert_eq!(rows[0].told().statement.as_deref(), Some("q=user:?"));
        let again = names.rows(vec![query("y"), query("z")], Stamp(20));
        assert_eq!(again[0], rows[1]);
        assert_eq!((again[1].pid, again[1].began), (3, Stamp(20)));
        let other = names.rows(vec![query("x")], Stamp(30));
        assert_eq!((other[0].pid, other[0].began), (4, Stamp(30)), "it was gone");
    }

    #[test]
    fn what_a_sentry_says_is_understood() {
        let solr = plimsoll_core::config::Solr { time_allowed: None };
        let queries = Arc::new(plimsoll_sentry::solr::Queries::new(solr));
        let (uri, client) = ("/solr/items/select?q=user:hush".parse().unwrap(), "127.0.0.1".parse().unwrap());
        let query = queries.arrive(&http::Method::GET, &uri, 0, client, Nanos::ZERO).unwrap();
        let said = serde_json::to_vec(&queries.view("shop", 8, None)).unwrap();
        let Listed { at, threads, counts, rows, .. } =
            serde_json::from_slice::<Queries>(&said).unwrap().listed();
        assert_eq!((threads, counts), (8, Counts::default()));
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.pid, &*row.core, row.waits), (1, "/solr/items", true));
        assert!(row.id.starts_with("plimsoll-") && row.began < at);
        let told = row.told();
        assert_eq!(
            (told.statement.as_deref(), told.client.as_deref()),
            (Some("select q=user:?"), Some("127.0.0.1"))
        );
        drop(query);
    }

    #[test]
    fn a_sentry_is_asked_for_one_of_its_servers() {
        assert_eq!(path("a b", "[::1]:8983"), "/queries?pool=a+b&server=%5B%3A%3A1%5D%3A8983");
    }
}
