//! A pool of workers, connections or buffers: of kind QUEUE.

use std::ops::{Deref, DerefMut};
use std::sync::Condvar;

use crate::Kind;
use crate::app::{App, Lock, Resource, lock};
use crate::held::{Held, Waiting};

/// Things that are lent, and an account of who has one and who waits for one.
#[derive(Debug)]
pub struct Pool<T> {
    resource: Resource,
    free: Lock<Vec<T>>,
    freed: Condvar,
}

/// What a [`Pool`] lent, until this is dropped.
#[derive(Debug)]
#[must_use = "what was lent is given back when this is dropped"]
pub struct Pooled<'a, T> {
    held: Option<Held>,
    pool: &'a Pool<T>,
    /// There, until it is given back.
    one: Option<T>,
}

impl<T> Pool<T> {
    /// Of these, under this name.
    pub fn new(app: App, name: &str, all: impl IntoIterator<Item = T>) -> Pool<T> {
        let free: Vec<T> = all.into_iter().collect();
        let resource = app.resource(Kind::Queue, free.len() as u64, name);
        Pool { resource, free: Lock::new(free), freed: Condvar::new() }
    }

    /// Waits for one.
    pub fn get(&self) -> Pooled<'_, T> {
        let mut free = lock(&self.free);
        let (held, one) = match free.pop() {
            Some(one) => {
                drop(free);
                (Held::now(self.resource, 1), one)
            }
            None => {
                let waiting = Waiting::now(self.resource);
                let one = loop {
                    free = self.freed.wait(free).unwrap_or_else(|poisoned| poisoned.into_inner());
                    if let Some(one) = free.pop() {
                        break one;
                    }
                };
                drop(free);
                (waiting.got(1), one)
            }
        };
        Pooled { held: Some(held), pool: self, one: Some(one) }
    }

    /// Takes one if one is there.
    pub fn try_get(&self) -> Option<Pooled<'_, T>> {
        let one = lock(&self.free).pop()?;
        Some(Pooled { held: Some(Held::now(self.resource, 1)), pool: self, one: Some(one) })
    }
}

impl<T> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        // First, or the next would seem to have it as well.
        self.held = None;
        lock(&self.pool.free).extend(self.one.take());
        self.pool.freed.notify_one();
    }
}

impl<T> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.one.as_ref().expect("it is there until it is given back")
    }
}

impl<T> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.one.as_mut().expect("it is there until it is given back")
    }
}
