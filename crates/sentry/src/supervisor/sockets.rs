//! The listening sockets. The parent binds them once and keeps them for its whole life, through every restart
//! and upgrade: a connection that arrives while no worker accepts waits in the socket's own queue.
//!
//! An address has one SO_REUSEPORT socket per worker thread, among which the kernel spreads the connections.
//! A socket that a later config has no thread for is kept and given to the threads there are: closing it would
//! reset the connections in its queue.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plimsoll_core::config;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{descriptors, group};
use crate::worker::threads;

/// Connections that the kernel completes before anybody accepts them; it lowers this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The sockets of one address.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listener {
    /// The address as the config says it; its port may be 0.
    pub configured: SocketAddr,
    /// The address as bound.
    pub bound: SocketAddr,
    /// One socket or more, all listening.
    #[serde(with = "descriptors")]
    pub sockets: Vec<OwnedFd>,
}

/// The sockets of all addresses.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Sockets {
    /// Where requests arrive.
    pub traffic: Vec<Listener>,
    /// Where the operator asks, if anywhere.
    pub admin: Option<Listener>,
}

/// Addresses that others serve from now on, and the turn to leave each.
#[derive(Debug)]
pub struct Leaving(Vec<(SocketAddr, group::Past, group::Turn)>);

impl Sockets {
    /// Binds what the config asks for and is not held yet. Held sockets that it no longer mentions stay, until
    /// [`Sockets::release`].
    ///
    /// # Errors
    /// Says which address cannot be bound and why; what was bound before it stays bound. Where other sentries may have the
    /// addresses too, only somebody else's socket is in the way.
    pub fn bind(&mut self, config: &config::Sentry, with_others: bool) -> Result<(), String> {
        // First, so that whoever finds the service's port open finds the admin address open too.
        if self.admin.as_ref().is_none_or(|l| l.configured != config.admin) {
            let listener = Listener::bind(config.admin, 1, false, false).map_err(|e| {
                format!("cannot listen on the admin address {}, `[sentry] admin`: {e}", config.admin)
            })?;
            self.admin = Some(listener);
        }
        let threads = threads(config);
        for &address in &config.listen.0 {
            // On its own, an IPv6 wildcard takes IPv4 as well.
            let v6_only = config.listen.0.iter().any(|a| a.is_ipv4() && a.port() == address.port());
            let result = match self.traffic.iter_mut().find(|l| l.configured == address) {
                Some(listener) => listener.grow(threads, v6_only),
                None => Listener::bind(address, threads, v6_only, with_others).map(|l| self.traffic.push(l)),
            };
            result.map_err(|e| format!("cannot listen on {address}: {e}"))?;
        }
        Ok(())
    }

    /// Closes what the config no longer mentions, once no worker that serves it is left to hand it to.
    pub fn release(&mut self, config: &config::Sentry) {
        self.traffic.retain(|l| config.listen.0.contains(&l.configured));
    }

    /// Leaves the groups of sockets that other sentries are in too. Nothing where there are none.
    pub fn leave(&self) -> Option<Leaving> {
        let is_shared = |listener: &Listener| group::is_shared(listener.bound, &listener.sockets);
        let leave = |listener: &Listener| {
            let turn = group::Turn::take(listener.bound.port());
            // Whoever had the turn before may have been the last other one.
            if !is_shared(listener) {
                return None;
            }
            let past = group::leave(listener.bound, &listener.sockets);
            log::info!(address:% = listener.bound, new_connections:? = past; "leaving the port to other sentries");
            Some((listener.bound, past, turn))
        };
        let left: Vec<_> = self.traffic.iter().filter(|l| is_shared(l)).filter_map(leave).collect();
        (!left.is_empty()).then_some(Leaving(left))
    }

    /// They are about to be closed.
    pub fn gone(&self, leaving: &Leaving) {
        for (bound, past, _) in &leaving.0 {
            if let Some(listener) = self.traffic.iter().find(|l| l.bound == *bound) {
                group::gone(&listener.sockets, *past);
            }
        }
    }

    /// Every socket.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> + Clone {
        self.traffic.iter().chain(&self.admin).flat_map(|l| l.sockets.iter().map(AsFd::as_fd))
    }
}

impl Listener {
    fn bind(address: SocketAddr, count: usize, v6_only: bool, with_others: bool) -> io::Result<Listener> {
        // A group of SO_REUSEPORT sockets lets any process of the same user join it silently, another sentry
        // that somebody forgot for example. So ask first whether the address is free for one socket alone.
        if !with_others {
            open(address, false, v6_only)?;
        }
        let first = open(address, true, v6_only)?;
        let bound = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut listener = Listener { configured: address, bound, sockets: vec![first.into()] };
        listener.grow(count, v6_only)?;
        Ok(listener)
    }

    fn grow(&mut self, count: usize, v6_only: bool) -> io::Result<()> {
        // Listening only once all are bound: a connection that finds a group of one would put all the load of the
        // first moment on the first thread.
        let mut new = Vec::new();
        while self.sockets.len() + new.len() < count {
            new.push(open(self.bound, true, v6_only)?);
        }
        self.sockets.extend(new.into_iter().map(OwnedFd::from));
        let _turn = group::Turn::take(self.bound.port());
        for socket in &self.sockets {
            socket2::SockRef::from(socket).listen(BACKLOG)?;
        }
        if let Some(socket) = self.sockets.first() {
            group::joined(socket.as_fd());
        }
        Ok(())
    }
}

/// A socket bound to `address`, not yet listening.
fn open(address: SocketAddr, shared: bool, v6_only: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a predecessor in TIME_WAIT are no reason to refuse the address.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() && v6_only {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn config(listen: &str, threads: u32) -> config::Sentry {
        let text = format!("listen = {listen}\nadmin = \"127.0.0.1:0\"\nthreads = {threads}");
        config::parse(&text, "test").unwrap().0
    }

    #[test]
    fn an_address_has_a_socket_a_thread_and_keeps_them() {
        let mut sockets = Sockets::default();
        sockets.bind(&config("\"127.0.0.1:0\"", 2), false).unwrap();
        let bound = sockets.traffic[0].bound;
        assert_ne!(bound.port(), 0);
        assert_eq!(sockets.descriptors().count(), 2 + 1);
        TcpStream::connect(bound).unwrap();

        sockets.bind(&config("\"127.0.0.1:0\"", 3), false).unwrap();
        assert_eq!((sockets.traffic[0].sockets.len(), sockets.traffic[0].bound), (3, bound));
        sockets.bind(&config("\"127.0.0.1:0\"", 1), false).unwrap();
        assert_eq!(sockets.traffic[0].sockets.len(), 3, "a closed socket resets what waits in it");

        sockets.release(&config("\"127.0.0.2:0\"", 1));
        assert_eq!(sockets.descriptors().count(), 1);
        TcpStream::connect(bound).unwrap_err();
    }

    #[test]
    fn a_second_sentry_on_the_same_address_is_an_error() {
        let mut first = Sockets::default();
        first.bind(&config("\"127.0.0.1:0\"", 2), false).unwrap();
        let taken = first.traffic[0].bound;
        let error = Sockets::default().bind(&config(&format!("\"{taken}\""), 2), false).unwrap_err();
        assert!(error.contains(&taken.to_string()) && error.contains("in use"), "{error}");

        let mut second = Sockets::default();
        second.bind(&config(&format!("\"{taken}\""), 2), true).unwrap();
        assert_eq!(second.traffic[0].bound, taken, "where it is meant, it is none");
    }
}
