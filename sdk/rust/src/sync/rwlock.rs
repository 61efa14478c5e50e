//! A readers-writer lock: of kind LOCK, a reader and a writer each holding one unit.
#![expect(clippy::disallowed_types, reason = "it is what is wrapped: whoever takes it means to wait for it")]

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError};

use crate::Kind;
use crate::app::{App, Resource};
use crate::held::{Held, Waiting};

/// A [`std::sync::RwLock`] that accounts for who holds it and who waits for it.
#[derive(Debug)]
pub struct RwLock<T: ?Sized> {
    resource: Resource,
    inner: std::sync::RwLock<T>,
}

/// What an [`RwLock`] guards, to be read, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    _held: Held,
    inner: std::sync::RwLockReadGuard<'a, T>,
}

/// What an [`RwLock`] guards, to be changed, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    _held: Held,
    inner: std::sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// One of this name.
    pub fn new(app: App, name: &str, value: T) -> RwLock<T> {
        // How many can read at once, nobody knows.
        RwLock { resource: app.resource(Kind::Lock, 0, name), inner: std::sync::RwLock::new(value) }
    }

    /// What it guarded.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

/// Tries, and waits only if that fails; poison and all.
fn take<G, R>(
    resource: Resource,
    first: Result<G, TryLockError<G>>,
    wait: impl FnOnce() -> LockResult<G>,
    guard: impl FnOnce(Held, G) -> R,
) -> LockResult<R> {
    let (held, taken) = match first {
        Ok(taken) => (Held::now(resource, 1), Ok(taken)),
        Err(TryLockError::Poisoned(poisoned)) => (Held::now(resource, 1), Err(poisoned)),
        Err(TryLockError::WouldBlock) => {
            let waiting = Waiting::now(resource);
            let taken = wait();
            (waiting.got(1), taken)
        }
    };
    match taken {
        Ok(inner) => Ok(guard(held, inner)),
        Err(poisoned) => Err(PoisonError::new(guard(held, poisoned.into_inner()))),
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until it can be read. An error means that somebody panicked while changing it, as in `std`.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let guard = |held, inner| RwLockReadGuard { _held: held, inner };
        take(self.resource, self.inner.try_read(), || self.inner.read(), guard)
    }

    /// Waits until it can be changed. An error means that somebody panicked while changing it, as in `std`.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let guard = |held, inner| RwLockWriteGuard { _held: held, inner };
        take(self.resource, self.inner.try_write(), || self.inner.write(), guard)
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
