//! Asks every source, each by itself: one that hangs keeps nobody waiting.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::Serializer;
use http::uri::PathAndQuery;
use plimsoll_core::config::{Prometheus, Scrape, Secret, Server, Telemetry};
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;
use super::scrape::Exporter;
use super::{Told, Usage, fetch, query};

/// Whoever takes longer has not answered.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whom to ask, and how to read what is answered.
struct Asked {
    server: Server,
    path: String,
    token: Option<Secret>,
    reader: Reader,
}

enum Reader {
    Query { label: String },
    Page(Box<Exporter>),
}

impl Asked {
    fn prometheus(of: &Prometheus) -> Asked {
        let query = Serializer::new(String::new()).append_pair("query", &of.query).finish();
        let joint = if of.path.query().is_some() { '&' } else { '?' };
        Asked {
            server: of.server.clone(),
            path: format!("{}{joint}{query}", of.path),
            token: of.token.clone(),
            reader: Reader::Query { label: of.label.clone() },
        }
    }

    fn exporter(of: &Scrape) -> Asked {
        Asked {
            server: of.server.clone(),
            path: of.path.to_string(),
            token: of.token.clone(),
            reader: Reader::Page(Box::new(Exporter::new(of))),
        }
    }

    async fn ask(&mut self) -> Result<Vec<Told>, String> {
        let body = fetch::get(&self.server, &self.path, self.token.as_ref(), PATIENCE).await?;
        match &mut self.reader {
            Reader::Query { label } => query::parse(&body, label),
            Reader::Page(exporter) => {
                let page = String::from_utf8_lossy(&body);
                Ok(exporter.read(&page, clock::now().as_secs_f64()))
            }
        }
    }
}

fn name(server: &Server, path: &PathAndQuery) -> String {
    format!("{server}{}", path.path())
}

/// Asks for as long as the runtime runs.
pub fn spawn(settings: &Telemetry, usage: watch::Sender<Arc<Usage>>) {
    let prometheus = settings.prometheus.iter().map(|of| (name(&of.server, &of.path), Asked::prometheus(of)));
    let exporters = settings.scrape.iter().map(|of| (name(&of.server, &of.path), Asked::exporter(of)));
    let (names, all): (Vec<String>, Vec<Asked>) = prometheus.chain(exporters).unzip();
    let board = Rc::new(RefCell::new(Board::new(settings.stale, names)));
    let usage = Rc::new(usage);
    let period = Duration::from(settings.interval);
    for (source, mut asked) in all.into_iter().enumerate() {
        let (board, usage) = (Rc::clone(&board), Rc::clone(&usage));
        tokio::task::spawn_local(async move {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
