//! Locks, semaphores and pools that account for themselves, for futures: in place of those of `tokio`.
//!
//! They account for the current task of the future that waits, see [`Task::scope`](crate::Task::scope). A future that is dropped while it waits has
//! ended its wait; a guard may go to another thread with its future.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::{self, AcquireError, TryLockError};

use crate::Kind;
use crate::app::{App, Lock, Resource, lock};
use crate::held::{Held, Waiting};

/// Awaits what was not there at once, and accounts for the wait.
async fn wait<T>(resource: Resource, n: u64, what: impl Future<Output = T>) -> (Held, T) {
    let waiting = Waiting::now(resource);
    let taken = what.await;
    (waiting.got(n), taken)
}

/// A [`tokio::sync::Mutex`] that accounts for who holds it and who waits for it: of kind LOCK.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    resource: Resource,
    inner: sync::Mutex<T>,
}

/// What a [`Mutex`] guards, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Given back before the lock is, or the next would seem to hold it as well.
    _held: Held,
    inner: sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// One of this name.
    pub fn new(app: App, name: &str, value: T) -> Mutex<T> {
        Mutex { resource: app.resource(Kind::Lock, 1, name), inner: sync::Mutex::new(value) }
    }

    /// What it guarded.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        if let Ok(guard) = self.try_lock() {
            return guard;
        }
        let (held, inner) = wait(self.resource, 1, self.inner.lock()).await;
        MutexGuard { _held: held, inner }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        let inner = self.inner.try_lock()?;
        Ok(MutexGuard { _held: Held::now(self.resource, 1), inner })
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A [`tokio::sync::RwLock`] that accounts for who holds it and who waits for it: of kind LOCK, a reader and a writer each holding one unit.
#[derive(Debug)]
pub struct RwLock<T: ?Sized> {
    resource: Resource,
    inner: sync::RwLock<T>,
}

/// What an [`RwLock`] guards, to be read, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    _held: Held,
    inner: sync::RwLockReadGuard<'a, T>,
}

/// What an [`RwLock`] guards, to be changed, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    _held: Held,
    inner: sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// One of this name.
    pub fn new(app: App, name: &str, value: T) -> RwLock<T> {
        // How many can read at once, nobody knows.
        RwLock { resource: app.resource(Kind::Lock, 0, name), inner: sync::RwLock::new(value) }
    }

    /// What it guarded.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until it can be read.
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        let (held, inner) = match self.inner.try_read() {
            Ok(inner) => (Held::now(self.resource, 1), inner),
            Err(_) => wait(self.resource, 1, self.inner.read()).await,
        };
        RwLockReadGuard { _held: held, inner }
    }

    /// Waits until it can be changed.
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        let (held, inner) = match self.inner.try_write() {
            Ok(inner) => (Held::now(self.resource, 1), inner),
            Err(_) => wait(self.resource, 1, self.inner.write()).await,
        };
        RwLockWriteGuard { _held: held, inner }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A [`tokio::sync::Semaphore`] that accounts for who has permits and who waits for them: of kind QUEUE.
#[derive(Clone, Debug)]
pub struct Semaphore {
    resource: Resource,
    inner: Arc<sync::Semaphore>,
}

/// Permits, until this is dropped.
#[derive(Debug)]
#[must_use = "permits are given back when this is dropped"]
pub struct Permit {
    // Given back before the permits are, or the next would seem to have them as well.
    _held: Held,
    _inner: sync::OwnedSemaphorePermit,
}

impl Semaphore {
    /// One of this name.
    pub fn new(app: App, name: &str, permits: usize) -> Semaphore {
        let resource = app.resource(Kind::Queue, permits as u64, name);
        Semaphore { resource, inner: Arc::new(sync::Semaphore::new(permits)) }
    }

    /// Waits for a permit, in order of arrival. An error means that it was closed.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1).await
    }

    /// Waits for so many permits at once.
    pub async fn acquire_many(&self, n: u32) -> Result<Permit, AcquireError> {
        let inner = Arc::clone(&self.inner);
        let (held, inner) = match inner.try_acquire_many_owned(n) {
            Ok(inner) => (Held::now(self.resource, n.into()), inner),
            Err(_) => {
                let waiting = Waiting::now(self.resource);
                let inner = Arc::clone(&self.inner).acquire_many_owned(n).await?;
                (waiting.got(n.into()), inner)
            }
        };
        Ok(Permit { _held: held, _inner: inner })
    }

    /// Refuses whoever waits and comes.
    pub fn close(&self) {
        self.inner.close();
    }

    /// How many permits are free now.
    pub fn available(&self) -> usize {
        self.inner.available_permits()
    }
}

/// Things that are lent, in order of arrival, and an account of who has one and who waits for one: of kind QUEUE.
#[derive(Debug)]
pub struct Pool<T> {
    permits: Semaphore,
    free: Lock<Vec<T>>,
}

/// What a [`Pool`] lent, until this is dropped.
#[derive(Debug)]
#[must_use = "what was lent is given back when this is dropped"]
pub struct Pooled<'a, T> {
    /// There, until it is given back.
    one: Option<T>,
    pool: &'a Pool<T>,
    // Given back when what was lent is there again.
    _permit: Permit,
}

impl<T> Pool<T> {
    /// Of these, under this name.
    pub fn new(app: App, name: &str, all: impl IntoIterator<Item = T>) -> Pool<T> {
        let free: Vec<T> = all.into_iter().collect();
        Pool { permits: Semaphore::new(app, name, free.len()), free: Lock::new(free) }
    }

    /// Waits for one.
    pub async fn get(&self) -> Pooled<'_, T> {
        let permit = self.permits.acquire().await.expect("nobody closes it");
        let one = lock(&self.free).pop();
        Pooled { one, pool: self, _permit: permit }
    }
}

impl<T> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        lock(&self.pool.free).extend(self.one.take());
    }
}

impl<T> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.one.as_ref().expect("who has a permit has one of the pool")
    }
}

impl<T> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.one.as_mut().expect("who has a permit has one of the pool")
    }
}
