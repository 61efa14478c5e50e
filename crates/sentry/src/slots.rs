//! The slots of a pool: how many of its requests may be with the servers at once, and the one FIFO queue of
//! those that wait for it, shared by all threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A counted set of slots with a fair queue in front.
///
/// tokio's semaphore hands a freed permit to whoever has waited longest, so a newcomer that finds one free
/// has nobody in front of it. What is added here is that the number can shrink while slots are taken.
#[derive(Debug)]
pub struct Slots {
    free: Semaphore,
    /// Slots to take away from those that come back, because there were not enough free ones to shrink by.
    owed: AtomicU32,
    waiting: AtomicU32,
    /// The number asked for, for every request to read. The lock orders changes of it, which come from ticks and operators only.
    size: AtomicU32,
    resizing: Mutex<()>,
}

impl Slots {
    /// So many free slots.
    pub fn new(size: u32) -> Slots {
        Slots {
            free: Semaphore::new(size as usize),
            owed: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            size: AtomicU32::new(size),
            resizing: Mutex::new(()),
        }
    }

    /// Takes a slot if one is free and nobody waits. Whoever takes one must [`Slots::release`] it.
    pub fn try_take(&self) -> bool {
        let permit = self.free.try_acquire();
        if let Ok(permit) = permit {
            permit.forget();
            return true;
        }
        false
    }

    /// Whether a slot is free. Then nobody waits for one.
    pub fn is_idle(&self) -> bool {
        self.free.available_permits() > 0
    }

    /// Takes a slot when those that came before have had theirs. Dropped before that, it has taken nothing.
    pub async fn take(&self) {
        let _waiting = Count::up(&self.waiting);
        // Never closed, hence never an error; were it ever, letting a request through is the safe side.
        if let Ok(permit) = self.free.acquire().await {
            permit.forget();
        }
    }

    /// Gives a slot back.
    pub fn release(&self) {
        if !self.pay() {
            self.free.add_permits(1);
            self.settle();
        }
    }

    /// Changes the number of slots. Those that are taken beyond it stay so until they are released.
    pub fn resize(&self, to: u32) {
        let _resizing = self.resizing.lock();
        let size = self.size();
        if to > size {
            self.size.store(to, Relaxed);
            let more = (size..to).filter(|_| !self.pay()).count();
            self.free.add_permits(more);
        } else {
            self.owed.fetch_add(size - to, Relaxed);
            self.size.store(to, Relaxed);
            self.settle();
        }
    }

    /// Takes away free slots that are owed. A release that raced with a shrinking may have left some.
    fn settle(&self) {
        while self.owed.load(Relaxed) > 0 {
            let Ok(permit) = self.free.try_acquire() else { return };
            if self.pay() {
                permit.forget();
            }
        }
    }

    /// Whether one slot was owed, and no longer is.
    fn pay(&self) -> bool {
        self.owed.fetch_update(Relaxed, Relaxed, |owed| owed.checked_sub(1)).is_ok()
    }

    /// The number of slots, taken or free.
    pub fn size(&self) -> u32 {
        self.size.load(Relaxed)
    }

    /// Slots that are taken. One is from the moment on that it goes to whoever waits for it, who may take a while to wake up: who
    /// shares the slots must not think it free until then. While slots are changed it may be too many for a moment, never too few.
    pub fn taken(&self) -> u32 {
        let all = self.size() + self.owed.load(Relaxed);
        all.saturating_sub(self.free.available_permits() as u32)
    }

    /// Requests that wait for one.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }
}

/// Counts one up until it is dropped.
#[derive(Debug)]
pub struct Count<'a>(&'a AtomicU32);

impl Count<'_> {
    /// Counts one up.
    pub fn up(counter: &AtomicU32) -> Count<'_> {
        counter.fetch_add(1, Relaxed);
        Count(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::future::Future;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use plimsoll_core::rng::seeded;
    use rand::RngExt;

    use super::*;

    type Waiter = (u32, Pin<Box<dyn Future<Output = ()>>>);

    /// Drives arrivals, departures, clients that give up and changes of the size in a random order, and holds
    /// the slots to a plain model of a FIFO queue.
    fn run(seed: u64) {
        let mut rng = seeded(seed, 0);
        let slots = Arc::new(Slots::new(4));
        let mut size = 4_u32;
        let mut taken = 0_u32;
        let mut waiters: VecDeque<Waiter> = VecDeque::new();
        let served = Rc::new(RefCell::new(Vec::new()));
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = 0;

        for step in 0..4_000 {
            match rng.random_range(0..10) {
                0..4 => {
                    let (slots, served, id) = (Arc::clone(&slots), Rc::clone(&served), next);
                    next += 1;
                    if slots.try_take() {
                        assert!(waiters.is_empty(), "seed {seed} step {step}: nobody overtakes");
                        taken += 1;
                    } else {
                        let mut take = Box::pin(async move {
                            slots.take().await;
                            served.borrow_mut().push(id);
                        });
                        assert!(
                            take.as_mut().poll(&mut cx).is_pending(),
                            "seed {seed} step {step}: there was none"
                        );
                        waiters.push_back((id, take));
                    }
                }
                4..7 if taken > 0 => {
                    slots.release();
                    taken -= 1;
                }
                7 if !waiters.is_empty() => {
                    waiters.remove(rng.random_range(0..waiters.len()));
                }
                8 => {
                    size = rng.random_range(0..9);
                    slots.resize(size);
                }
                _ => {}
            }
            // Whoever may go now goes, in order of arrival.
            while taken < size && !waiters.is_empty() {
                let (id, mut take) = waiters.pop_front().unwrap();
                assert!(take.as_mut().poll(&mut cx).is_ready(), "seed {seed} step {step}: {id} was next");
                assert_eq!(served.borrow_mut().pop(), Some(id));
                taken += 1;
            }
            for (id, take) in &mut waiters {
                assert!(take.as_mut().poll(&mut cx).is_pending(), "seed {seed} step {step}: {id} was not");
            }
            assert_eq!((slots.taken(), slots.waiting(), slots.size()), (taken, waiters.len() as u32, size));
        }
        waiters.clear();
        (0..taken).for_each(|_| slots.release());
        assert_eq!((slots.taken(), slots.waiting()), (0, 0));
        slots.resize(7);
        assert_eq!((0..9).filter(|_| slots.try_take()).count(), 7, "seed {seed}: none leaked, none appeared");
    }

    #[test]
    fn slots_are_a_fifo_queue_that_never_leaks() {
        (0..50).for_each(run);
    }

    #[test]
    fn a_slot_that_goes_to_somebody_who_waits_is_taken_before_they_wake_up() {
        let slots = Slots::new(2);
        assert!(slots.try_take() && slots.try_take());
        let mut cx = Context::from_waker(Waker::noop());
        let mut take = std::pin::pin!(slots.take());
        assert!(take.as_mut().poll(&mut cx).is_pending());
        slots.release();
        assert_eq!(slots.taken(), 2, "another worker would have taken it, too");
        assert!(take.as_mut().poll(&mut cx).is_ready());
        assert_eq!(slots.taken(), 2);
    }

    #[test]
    fn threads_share_the_slots_without_losing_any() {
        let slots = Arc::new(Slots::new(3));
        let (held, peak) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (slots, held, peak) = (Arc::clone(&slots), Arc::clone(&held), Arc::clone(&peak));
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        for i in 0..2_000 {
                            if i % 11 == 0 {
                                // Somebody who gives up while the slot is perhaps already on its way.
                                let mut impatient = Box::pin(slots.take());
                                if std::future::poll_fn(|cx| Poll::Ready(impatient.as_mut().poll(cx)))
                                    .await
                                    .is_pending()
                                {
                                    continue;
                                }
                            } else if !slots.try_take() {
                                slots.take().await;
                            }
                            peak.fetch_max(held.fetch_add(1, Relaxed) + 1, Relaxed);
                            if i % 7 == n {
                                tokio::task::yield_now().await;
                            }
                            held.fetch_sub(1, Relaxed);
                            slots.release();
                        }
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!((slots.taken(), slots.waiting()), (0, 0));
        assert_eq!((0..9).filter(|_| slots.try_take()).count(), 3);
        assert!(peak.load(Relaxed) <= 3);
    }
}
