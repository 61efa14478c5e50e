//! The connections of one thread: which are idle, and how many there may be.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_core::Rng;
use rand::RngExt;

use crate::connection::Sender;

/// The right to carry one request at a time on an open connection.
pub(crate) struct Lease {
    pub(crate) sender: Sender,
    _permit: Rc<Permit>,
}

/// The right to have a connection; it counts until the last lease of the connection is dropped.
pub(crate) struct Permit(Rc<Cell<usize>>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How a request gets onto the wire.
pub(crate) enum Ride {
    Idle(Lease),
    Open(Permit),
}

/// Idle leases and the count of open connections. HTTP/1.1 has one lease a connection, HTTP/2 `streams`.
pub(crate) struct Pool {
    idle: Vec<Lease>,
    open: Rc<Cell<usize>>,
    max_open: usize,
    streams: usize,
    rng: Rng,
}

impl Pool {
    pub(crate) fn new(max_open: usize, streams: usize, rng: Rng) -> Pool {
        Pool { idle: Vec::new(), open: Rc::default(), max_open, streams, rng }
    }

    /// An idle connection, the right to open one, or nothing while all are in use.
    ///
    /// Of HTTP/1.1 connections the one used last, so that no more stay busy than needed. Of HTTP/2 streams any,
    /// once every connection is there: the load lies evenly on the connections, and so on the server's threads.
    pub(crate) fn acquire(&mut self) -> Option<Ride> {
        let may_open = self.open.get() < self.max_open;
        if self.streams == 1 || !may_open {
            while let Some(lease) = self.take_idle() {
                if !lease.sender.is_closed() {
                    return Some(Ride::Idle(lease));
                }
            }
        }
        // Closed connections found above may have made room.
        (self.open.get() < self.max_open).then(|| {
            self.open.set(self.open.get() + 1);
            Ride::Open(Permit(self.open.clone()))
        })
    }

    fn take_idle(&mut self) -> Option<Lease> {
        if self.streams == 1 || self.idle.is_empty() {
            return self.idle.pop();
        }
        let any = self.rng.random_range(..self.idle.len());
        Some(self.idle.swap_remove(any))
    }

    /// The first lease of a connection just opened; its other streams become idle.
    pub(crate) fn opened(&mut self, sender: Sender, permit: Permit) -> Lease {
        let permit = Rc::new(permit);
        for _ in 1..self.streams {
            if let Some(sender) = sender.sibling() {
                self.idle.push(Lease { sender, _permit: permit.clone() });
            }
        }
        Lease { sender, _permit: permit }
    }

    /// Ready for the next request.
    pub(crate) fn release(&mut self, lease: Lease) {
        self.idle.push(lease);
    }
}
