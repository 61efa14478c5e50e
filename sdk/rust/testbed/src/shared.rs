//! What requests share, accounted for, or as tokio has it: what accounts cost is measured against the latter.

use plimsoll_sdk::tokio::{Mutex, MutexGuard, Pool, Pooled};
use plimsoll_sdk::{App, Kind, Resource, current};
use tokio::sync;

/// Workers, of which a request has one.
pub enum Workers {
    Accounted(Pool<usize>),
    Plain(sync::Semaphore),
}

/// A worker, until this is dropped.
#[expect(dead_code, reason = "they are held, and that is all")]
pub enum Worker<'a> {
    Accounted(Pooled<'a, usize>),
    Plain(sync::SemaphorePermit<'a>),
}

impl Workers {
    pub fn new(app: Option<App>, count: usize) -> Workers {
        match app {
            Some(app) => Workers::Accounted(Pool::new(app, "workers", 0..count)),
            None => Workers::Plain(sync::Semaphore::new(count)),
        }
    }

    pub async fn get(&self) -> Worker<'_> {
        match self {
            Workers::Accounted(pool) => Worker::Accounted(pool.get().await),
            Workers::Plain(permits) => Worker::Plain(permits.acquire().await.expect("nobody closes it")),
        }
    }
}

/// A table with one lock.
pub enum Table {
    Accounted(Mutex<()>),
    Plain(sync::Mutex<()>),
}

/// The table, until this is dropped.
#[expect(dead_code, reason = "they are held, and that is all")]
pub enum Locked<'a> {
    Accounted(MutexGuard<'a, ()>),
    Plain(sync::MutexGuard<'a, ()>),
}

impl Table {
    pub fn new(app: Option<App>) -> Table {
        match app {
            Some(app) => Table::Accounted(Mutex::new(app, "table", ())),
            None => Table::Plain(sync::Mutex::new(())),
        }
    }

    pub async fn lock(&self) -> Locked<'_> {
        match self {
            Table::Accounted(table) => Locked::Accounted(table.lock().await),
            Table::Plain(table) => Locked::Plain(table.lock().await),
        }
    }
}

/// The account of the cache's pages, if there is one.
#[derive(Clone, Copy)]
pub struct Pages(Option<Resource>);

impl Pages {
    pub fn new(app: Option<App>, capacity: usize) -> Pages {
        Pages(app.map(|app| app.resource(Kind::Memory, capacity as u64, "pages")))
    }

    pub fn get(self, count: u64) {
        if let Some(pages) = self.0 {
            current::get(pages, count);
        }
    }

    pub fn free(self, count: u64) {
        if let Some(pages) = self.0 {
            current::free(pages, count);
        }
    }

    pub fn slow(self, count: u64, delay: std::time::Duration) {
        if let Some(pages) = self.0 {
            current::slow(pages, count, delay);
        }
    }
}
