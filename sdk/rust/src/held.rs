//! Guards: what is held until it is dropped, and what is waited for.

use plimsoll_ledger::{Account, Stamps};

use crate::app::Resource;
use crate::clock;
use crate::current;
use crate::handle::Handle;

/// An account, as long as it is its task's: a guard may outlive its task, and must not touch what another has taken over.
struct Lease {
    account: Account<'static>,
    owner: u64,
    stamps: Stamps<'static>,
}

impl Lease {
    #[inline]
    fn of(handle: &Handle, resource: Resource) -> Option<Lease> {
        let account = *handle.account(resource)?;
        Some(Lease { account, owner: account.owner(), stamps: handle.stamps() })
    }

    #[inline]
    fn stamp(&self) -> u64 {
        self.stamps.now(clock::exact_ns)
    }

    #[inline]
    fn account(&self) -> Option<&Account<'static>> {
        (self.account.owner() == self.owner).then_some(&self.account)
    }
}

/// Units of a resource that are held until this is dropped.
#[must_use = "what is held is given back when this is dropped"]
pub struct Held {
    lease: Option<Lease>,
    n: u64,
}

impl Held {
    #[inline]
    pub(crate) fn of(handle: Option<&Handle>, resource: Resource, n: u64) -> Held {
        let lease = handle.and_then(|handle| Lease::of(handle, resource));
        if let Some(lease) = &lease {
            lease.account.get_stamped(n, lease.stamps, clock::exact_ns);
        }
        Held { lease, n }
    }

    /// Held by the current task.
    #[inline]
    pub(crate) fn now(resource: Resource, n: u64) -> Held {
        current::handle(|handle| Held::of(handle, resource, n))
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Some(lease) = &self.lease
            && let Some(account) = lease.account()
        {
            account.free_stamped(self.n, lease.stamps, clock::exact_ns);
        }
    }
}

/// A wait for a resource, until this is dropped or has got it.
#[must_use = "a wait ends when this is dropped"]
pub struct Waiting {
    lease: Option<Lease>,
}

impl Waiting {
    pub(crate) fn of(handle: Option<&Handle>, resource: Resource) -> Waiting {
        let lease = handle.and_then(|handle| Lease::of(handle, resource));
        if let Some(lease) = &lease {
            lease.account.wait(|| lease.stamp());
        }
        Waiting { lease }
    }

    /// The current task waits.
    pub(crate) fn now(resource: Resource) -> Waiting {
        current::handle(|handle| Waiting::of(handle, resource))
    }

    /// The wait was not in vain: `n` units are held from now on.
    pub fn got(mut self, n: u64) -> Held {
        let lease = self.lease.take().filter(|lease| lease.account().is_some());
        if let Some(lease) = &lease {
            lease.account.get(n, || lease.stamp());
        }
        Held { lease, n }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease
            && let Some(account) = lease.account()
        {
            account.unwait(|| lease.stamp());
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("n", &self.n).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}
