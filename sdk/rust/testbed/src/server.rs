//! The requests: items, which are what it is for; three hogs; and one that is slow and innocent.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_sdk::{App, current};
use rustix::time::{ClockId, clock_gettime};
use tower_service::Service;

use crate::cache::{Cache, Found};
use crate::shared::{Pages, Table, Workers};

pub type Body = Full<Bytes>;
pub type Answer = Response<Body>;

const WORKERS: usize = 8;
const PAGES: usize = 256;
const HOT_PAGES: u64 = 200;
/// What an item's row takes, with the table locked.
const WORK: Duration = Duration::from_micros(200);
/// How many pages a scan brings in at once.
const READ_AHEAD: u64 = 16;
/// How often a hog that does nothing says how far it is.
const STEP: Duration = Duration::from_millis(10);
/// No request takes longer.
const MOST_SECONDS: f64 = 3_600.0;

/// What requests share.
struct State {
    workers: Workers,
    table: Table,
    pages: Pages,
    /// What it takes to bring a page in.
    miss: Duration,
    cache: tokio::sync::Mutex<Cache>,
    requests: AtomicU64,
}

/// Answers requests. Cheap to copy.
#[derive(Clone)]
pub struct Server(Arc<State>);

fn answer(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer
}

/// The value of a name in a query string, as a number.
fn number(query: Option<&str>, name: &str) -> Option<f64> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok())
}

impl Server {
    /// Without an application nobody accounts.
    pub fn new(app: Option<App>, miss: Duration) -> Server {
        Server(Arc::new(State {
            workers: Workers::new(app, WORKERS),
            table: Table::new(app),
            pages: Pages::new(app, PAGES),
            miss,
            cache: tokio::sync::Mutex::new(Cache::new(PAGES)),
            requests: AtomicU64::new(0),
        }))
    }
}

impl Service<Request<Incoming>> for Server {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            let query = request.uri().query();
            let seconds = number(query, "seconds").unwrap_or(1.0).clamp(0.0, MOST_SECONDS);
            let lasts = Duration::from_secs_f64(seconds);
            if request.method() != Method::GET {
                return Ok(answer(StatusCode::METHOD_NOT_ALLOWED, "GET is all there is\n"));
            }
            match request.uri().path() {
                "/item" => state.item(number(query, "id").unwrap_or(0.0) as u64).await,
                "/hog/lock" => state.hog_lock(lasts).await,
                "/hog/cache" => state.hog_cache(lasts).await,
                "/hog/pool" => state.hog_pool(lasts).await,
                "/slow" => tokio::time::sleep(lasts).await,
                _ => {
                    return Ok(answer(
                        StatusCode::NOT_FOUND,
                        "/item, /hog/lock, /hog/cache, /hog/pool, /slow\n",
                    ));
                }
            }
            Ok(answer(StatusCode::OK, "ok\n"))
        })
    }
}

impl State {
    async fn item(&self, id: u64) {
        let _worker = self.workers.get().await;
        {
            let _table = self.table.lock().await;
            work();
        }
        self.read(id % HOT_PAGES, 1, 0).await;
        self.pages.free(1);
    }

    /// Reads so many pages that follow one another.
    async fn read(&self, first: u64, count: u64, owner: u64) {
        let (mut missed, mut evicted) = (0, 0);
        {
            let mut cache = self.cache.lock().await;
            for page in first..first + count {
                match cache.find(page, owner) {
                    Found::Hit => {}
                    Found::Miss(whose) => {
                        missed += 1;
                        evicted += u64::from(whose.is_some());
                        // Its own pages make room as well as others'.
                        self.pages.free(u64::from(owner != 0 && whose == Some(owner)));
                    }
                }
            }
        }
        if missed > 0 {
            tokio::time::sleep(self.miss).await;
        }
        if evicted > 0 {
            self.pages.slow(evicted, self.miss);
        }
        self.pages.get(count);
    }

    /// Holds the table's lock.
    async fn hog_lock(&self, lasts: Duration) {
        let _worker = self.workers.get().await;
        let _table = self.table.lock().await;
        last(lasts).await;
    }

    /// Holds a worker.
    async fn hog_pool(&self, lasts: Duration) {
        let _worker = self.workers.get().await;
        last(lasts).await;
    }

    /// Scans what nobody else wants, which drives out what they do.
    async fn hog_cache(&self, lasts: Duration) {
        let _worker = self.workers.get().await;
        let owner = 1 + self.requests.fetch_add(1, Ordering::Relaxed);
        let mut page = HOT_PAGES + (owner << 32);
        let until = Until::new(lasts);
        while until.say() {
            self.read(page, READ_AHEAD, owner).await;
            page += READ_AHEAD;
        }
    }
}

/// Lasts so long, and says how far it is.
async fn last(lasts: Duration) {
    let until = Until::new(lasts);
    while until.say() {
        tokio::time::sleep(STEP.min(lasts)).await;
    }
}

/// The end of something that takes its time.
struct Until {
    began: Duration,
    lasts: Duration,
}

impl Until {
    fn new(lasts: Duration) -> Until {
        Until { began: now(), lasts }
    }

    /// Says how far it is, in milliseconds; whether there is more to do.
    fn say(&self) -> bool {
        let passed = now() - self.began;
        let (done, total) = (passed.as_millis() as u64, self.lasts.as_millis() as u64);
        current::progress(done.min(total), total);
        passed < self.lasts
    }
}

/// Keeps a processor busy for as long as a row takes.
fn work() {
    let until = now() + WORK;
    while now() < until {
        std::hint::spin_loop();
    }
}

/// Since whenever.
#[expect(clippy::disallowed_methods, reason = "somebody has to, and it is here")]
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
