//! Coarse timeouts: what waits registers once and moves its own limit for the price of a store, and one sweep a
//! thread finds those that are over. tokio's timers are exact and cost a lock at every move, which on the
//! request path adds up.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_core::Nanos;
use slab::Slab;

use crate::clock;

/// Something whose time can run out.
pub trait Expire {
    /// When, if it does.
    fn expires(&self) -> Option<Nanos>;
    /// It has. Called at every sweep from then on, until [`Expire::expires`] says otherwise.
    fn expire(&self);
}

/// What waits on one thread.
#[derive(Default)]
pub struct Timeouts {
    waiting: RefCell<Slab<Rc<dyn Expire>>>,
}

/// Takes its entry off the list when it is dropped.
pub struct Registration {
    timeouts: Rc<Timeouts>,
    key: usize,
}

impl Timeouts {
    /// From now on every sweep looks at `entry`.
    pub fn register(self: &Rc<Self>, entry: Rc<dyn Expire>) -> Registration {
        let key = self.waiting.borrow_mut().insert(entry);
        Registration { timeouts: Rc::clone(self), key }
    }

    /// Expires what is over.
    pub fn sweep(&self) {
        // Limits are set by the coarse clock: rather a little late than too early.
        let now = clock::refresh() - clock::COARSENESS;
        let over = |entry: &&Rc<dyn Expire>| entry.expires().is_some_and(|at| at <= now);
        // Expiring may drop a registration, so that the list must not be borrowed meanwhile.
        let expired: Vec<_> =
            self.waiting.borrow().iter().map(|(_, entry)| entry).filter(over).cloned().collect();
        expired.iter().for_each(|entry| entry.expire());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = self.timeouts.waiting.borrow_mut().try_remove(self.key);
        // Outside the borrow: the entry's own drop may drop further registrations.
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Entry {
        at: Cell<Option<Nanos>>,
        expired: Cell<u32>,
        holds: RefCell<Option<Registration>>,
    }

    impl Expire for Entry {
        fn expires(&self) -> Option<Nanos> {
            self.at.get()
        }
        fn expire(&self) {
            self.expired.set(self.expired.get() + 1);
            self.at.set(None);
            self.holds.borrow_mut().take();
        }
    }

    fn entry(at: Option<Nanos>) -> Rc<Entry> {
        Rc::new(Entry { at: Cell::new(at), expired: Cell::new(0), holds: RefCell::default() })
    }

    #[test]
    fn what_is_over_expires_and_may_drop_others() {
        let timeouts = Rc::new(Timeouts::default());
        let (over, never, later) = (entry(Some(Nanos::ZERO)), entry(None), entry(Some(Nanos::MAX)));
        let other = entry(Some(Nanos::ZERO));
        let _over = timeouts.register(over.clone());
        let _never = timeouts.register(never.clone());
        let _later = timeouts.register(later.clone());
        *over.holds.borrow_mut() = Some(timeouts.register(other));
        timeouts.sweep();
        timeouts.sweep();
        assert_eq!([over.expired.get(), never.expired.get(), later.expired.get()], [1, 0, 0]);
        assert_eq!(timeouts.waiting.borrow().len(), 3, "the one it held is gone");
    }
}
