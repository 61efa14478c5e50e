//! The events of a task at a resource.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use plimsoll_ledger::{Account, Stamps};

use crate::clock;

/// What a task does with a resource: see [`Task::at`](crate::Task::at). For where many events come one after the other.
///
/// Where the task or the resource found no room, nothing is done.
#[derive(Clone, Copy)]
pub struct Use<'t>(Option<(Account<'static>, Stamps<'static>)>, PhantomData<&'t Cell<()>>);

#[inline(always)]
fn stamp(stamps: Stamps<'static>) -> u64 {
    stamps.now(clock::exact_ns)
}

impl<'t> Use<'t> {
    #[inline(always)]
    pub(crate) fn new(account: Option<&Account<'static>>, stamps: Stamps<'static>) -> Use<'t> {
        Use(account.map(|account| (*account, stamps)), PhantomData)
    }

    /// At nothing.
    pub(crate) fn none() -> Use<'t> {
        Use(None, PhantomData)
    }

    /// Takes `n` units, which ends the wait for them.
    #[inline(always)]
    pub fn get(self, n: u64) {
        if let Some((account, stamps)) = self.0 {
            account.get_stamped(n, stamps, clock::exact_ns);
        }
    }

    /// Gives `n` units back, or all where fewer are held.
    #[inline(always)]
    pub fn free(self, n: u64) {
        if let Some((account, stamps)) = self.0 {
            account.free_stamped(n, stamps, clock::exact_ns);
        }
    }

    /// Begins to wait.
    #[inline]
    pub fn wait(self) {
        if let Some((account, stamps)) = self.0 {
            account.wait(|| stamp(stamps));
        }
    }

    /// Ends the wait without success.
    #[inline]
    pub fn unwait(self) {
        if let Some((account, stamps)) = self.0 {
            account.unwait(|| stamp(stamps));
        }
    }

    /// `n` units had to be evicted, or `n` waits were measured elsewhere: that took so long.
    #[inline]
    pub fn slow(self, n: u64, delay: Duration) {
        if let Some((account, _)) = self.0 {
            account.slow(n, u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

impl std::fmt::Debug for Use<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Use").field("held", &self.0.map(|(account, _)| account.held())).finish()
    }
}
