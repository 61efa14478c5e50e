//! A semaphore: of kind QUEUE.

use std::sync::Condvar;

use crate::Kind;
use crate::app::{App, Lock, Resource, lock};
use crate::held::{Held, Waiting};

/// So many permits, and an account of who has them and who waits for them.
#[derive(Debug)]
pub struct Semaphore {
    resource: Resource,
    free: Lock<usize>,
    freed: Condvar,
}

/// Permits, until this is dropped.
#[derive(Debug)]
#[must_use = "permits are given back when this is dropped"]
pub struct Permit<'a> {
    held: Option<Held>,
    semaphore: &'a Semaphore,
    n: usize,
}

impl Semaphore {
    /// One of this name.
    pub fn new(app: App, name: &str, permits: usize) -> Semaphore {
        let resource = app.resource(Kind::Queue, permits as u64, name);
        Semaphore { resource, free: Lock::new(permits), freed: Condvar::new() }
    }

    /// Waits for a permit.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1)
    }

    /// Waits for so many permits at once; for ever, if there are not so many.
    pub fn acquire_many(&self, n: usize) -> Permit<'_> {
        let mut free = lock(&self.free);
        let held = if *free >= n {
            *free -= n;
            drop(free);
            Held::now(self.resource, n as u64)
        } else {
            let waiting = Waiting::now(self.resource);
            while *free < n {
                free = self.freed.wait(free).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            *free -= n;
            drop(free);
            waiting.got(n as u64)
        };
        Permit { held: Some(held), semaphore: self, n }
    }

    /// Takes a permit if one is free.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let mut free = lock(&self.free);
        *free = free.checked_sub(1)?;
        drop(free);
        Some(Permit { held: Some(Held::now(self.resource, 1)), semaphore: self, n: 1 })
    }

    /// How many permits are free now.
    pub fn available(&self) -> usize {
        *lock(&self.free)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // First, or the next would seem to have it as well.
        self.held = None;
        *lock(&self.semaphore.free) += self.n;
        self.semaphore.freed.notify_all();
    }
}
