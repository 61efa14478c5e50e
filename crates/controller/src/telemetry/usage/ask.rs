//! Asks every source, each by itself: one that hangs keeps nobody waiting.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::Serializer;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Prometheus, Scrape, ScrapeKind, Secret, Server, Telemetry};
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;
use super::front::{self, Front};
use super::scrape::Exporter;
use super::{Told, Usage, What, fetch, query};

/// Whoever takes longer has not answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many questions may go unanswered before what was told is not known any more.
const CHANCES: u64 = 3;

/// Whom to ask, and how to read what is answered.
struct Asked {
    server: Server,
    path: String,
    token: Option<Secret>,
    reader: Reader,
    /// From one question to the next, where that is its own.
    interval: Option<Nanos>,
}

/// What a number that was asked for says.
type Says = fn(f64) -> What;

enum Reader {
    Query { label: String, what: Says, times: String, before: query::Times },
    Page(Box<Exporter>),
    Sentry(Front),
}

impl Asked {
    fn prometheus<'a>(of: &'a Prometheus) -> impl Iterator<Item = (String, Asked)> + 'a {
        let more = |query: &'a Option<String>| query.as_deref();
        let queries: [(&str, Option<&'a str>, Says); 3] = [
            ("", Some(&of.query), |used| What::Uses { used, of: 1.0 }),
            (" queue", more(&of.queue), What::Waits),
            (" served", more(&of.served), What::Serves),
        ];
        let asked = move |(which, query, what): (&str, Option<&str>, _)| {
            Some((name(&of.server, of.path.path()) + which, Asked::query(of, query?, what)))
        };
        queries.into_iter().filter_map(asked)
    }

    fn query(of: &Prometheus, query: &str, what: Says) -> Asked {
        let joint = if of.path.query().is_some() { '&' } else { '?' };
        let path = |query: &str| {
            let query = Serializer::new(String::new()).append_pair("query", query).finish();
            format!("{}{joint}{query}", of.path)
        };
        let (label, times) = (of.label.clone(), path(&query::of_times(query)));
        Asked {
            server: of.server.clone(),
            path: path(query),
            token: of.token.clone(),
            reader: Reader::Query { label, what, times, before: query::Times::new() },
            interval: of.interval,
        }
    }

    fn exporter(of: &Scrape) -> Asked {
        let (path, reader) = match of.kind {
            ScrapeKind::Sentry => (front::PATH.to_owned(), Reader::Sentry(Front::new(of))),
            _ => (of.path.to_string(), Reader::Page(Box::new(Exporter::new(of)))),
        };
        Asked { server: of.server.clone(), path, token: of.token.clone(), reader, interval: None }
    }

    async fn ask(&mut self) -> Result<Vec<Told>, String> {
        let get = async |path: &str| fetch::get(&self.server, path, self.token.as_ref(), PATIENCE).await;
        // Before the values: what is scraped in between is news when it is asked for next.
        let times = match &self.reader {
            Reader::Query { times, .. } => get(times).await,
            _ => Err(String::new()),
        };
        let body = get(&self.path).await?;
        match &mut self.reader {
            Reader::Query { label, what, before, .. } => {
                let mut told = query::parse(&body, label, *what)?;
                let now = times.map(|times| query::times(&times, label)).unwrap_or_default();
                query::mark(&mut told, before, &now);
                *before = now;
                Ok(told)
            }
            Reader::Sentry(front) => front.read(&body, clock::now()),
            Reader::Page(exporter) => {
                let page = String::from_utf8_lossy(&body);
                Ok(exporter.read(&page, clock::now().as_secs_f64()))
            }
        }
    }
}

fn name(server: &Server, path: &str) -> String {
    format!("{server}{path}")
}

/// Asks for as long as the runtime runs.
pub fn spawn(settings: &Telemetry, usage: watch::Sender<Arc<Usage>>) {
    let prometheus = settings.prometheus.iter().flat_map(Asked::prometheus);
    let exporters = settings.scrape.iter().map(|of| {
        let path = if of.kind == ScrapeKind::Sentry { front::PATH } else { of.path.path() };
        (name(&of.server, path), Asked::exporter(of))
    });
    let all: Vec<(String, Asked)> = prometheus.chain(exporters).collect();
    let every = |asked: &Asked| asked.interval.unwrap_or(settings.interval);
    let stale = |asked: &Asked| settings.stale.max(Nanos(CHANCES * every(asked).0));
    let board = Board::new(all.iter().map(|(name, asked)| (name.clone(), stale(asked))));
    let board = Rc::new(RefCell::new(board));
    let usage = Rc::new(usage);
    for (source, (_, mut asked)) in all.into_iter().enumerate() {
        let (board, usage) = (Rc::clone(&board), Rc::clone(&usage));
        let mut ticks = interval(Duration::from(every(&asked)));
        tokio::task::spawn_local(async move {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let answer = asked.ask().await;
                let now = clock::now();
                board.borrow_mut().note(source, now, answer);
                usage.send_replace(Arc::new(board.borrow().usage(now)));
            }
        });
    }
}
