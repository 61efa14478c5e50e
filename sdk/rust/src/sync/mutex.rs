//! A mutex: of kind LOCK.
#![expect(clippy::disallowed_types, reason = "it is what is wrapped: whoever takes it means to wait for it")]

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use crate::Kind;
use crate::app::{App, Resource};
use crate::held::{Held, Waiting};

/// A [`std::sync::Mutex`] that accounts for who holds it and who waits for it.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    resource: Resource,
    inner: std::sync::Mutex<T>,
}

/// What a [`Mutex`] guards, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Given back before the lock is, or the next would seem to hold it as well.
    _held: Held,
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// One of this name.
    pub fn new(app: App, name: &str, value: T) -> Mutex<T> {
        Mutex { resource: app.resource(Kind::Lock, 1, name), inner: std::sync::Mutex::new(value) }
    }

    /// What it guarded.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock. An error means that somebody panicked while holding it, as in `std`.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Err(self.poisoned(poisoned)),
            Err(TryLockError::WouldBlock) => {
                let waiting = Waiting::now(self.resource);
                match self.inner.lock() {
                    Ok(inner) => Ok(MutexGuard { _held: waiting.got(1), inner }),
                    Err(poisoned) => Err(PoisonError::new(MutexGuard {
                        _held: waiting.got(1),
                        inner: poisoned.into_inner(),
                    })),
                }
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(self.poisoned(poisoned))),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// What it guards, where nobody else can have it.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    fn guard<'a>(&self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { _held: Held::now(self.resource, 1), inner }
    }

    fn poisoned<'a>(
        &self,
        poisoned: PoisonError<std::sync::MutexGuard<'a, T>>,
    ) -> PoisonError<MutexGuard<'a, T>> {
        PoisonError::new(self.guard(poisoned.into_inner()))
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
