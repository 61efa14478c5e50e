//! Several sentries on one port: their sockets are one group (SO_REUSEPORT), among which the kernel spreads the connections.
//!
//! A socket that is closed takes the connections with it that nobody has accepted yet. So a sentry that stops leaves the group
//! first: it tells the kernel to give new connections to the others' sockets, waits until the handshakes that had begun are
//! through and accepted, and closes its sockets then.
//!
//! The kernel is told by a number for each connection, the socket's place in the group; but those places cannot be read,
//! and they change: the last one moves to where somebody has left. So they are found out: a program sends everything to one
//! place, and a connection of our own, which our sockets do not let begin, either comes about (the place is somebody
//! else's) or does not (it is ours). A few more connections show that the program which is made of that is right. Should
//! anything of this fail, our sockets still let no connection begin, and its client, who is not answered, asks again after
//! a second and is then answered by somebody else.
//!
//! The program stays with the group when its author has gone. Whoever joins takes it away, or it would know nothing of the
//! new sockets; and where fewer sockets than it counts on would not be used alike, so does whoever leaves. A place that does
//! not exist is none to the kernel, and it spreads as if there were no program.
//!
//! Joining and leaving are done by one at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_core::Nanos;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::bpf;

/// How long a handshake may take that had begun when we left, retransmissions apart.
pub const HANDSHAKE: Nanos = Nanos::from_millis(500);

/// How long, in ms, a connection of our own is waited for, in the first, second and third attempt. On this machine it takes
/// less than a tenth of one.
const PATIENCE_MS: [u16; 3] = [10, 50, 200];
/// Connections of our own that show that a program is right.
const TRIALS: usize = 16;

/// How long, in ms, others who join or leave are waited for. Nobody takes that long; if somebody does, it goes on without.
const TURN_MS: u16 = 2_000;
const TURN_LOOK_MS: u16 = 20;

/// The right to join or leave the group of a port, until this is dropped. A name that only one can have and that the kernel
/// takes away from the dead.
#[derive(Debug)]
pub struct Turn {
    /// Nothing where it was not to be had.
    _name: Option<UnixListener>,
}

impl Turn {
    /// Waits for it. After a while it is none: better two at once than a sentry that neither starts nor stops.
    pub fn take(port: u16) -> Turn {
        let name = format!("plimsoll-group-{}-{port}", nix::unistd::geteuid());
        let Ok(name) = UnixAddress::from_abstract_name(name) else { return Turn { _name: None } };
        for _ in 0..TURN_MS / TURN_LOOK_MS {
            match UnixListener::bind_addr(&name) {
                Ok(name) => return Turn { _name: Some(name) },
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => pause(TURN_LOOK_MS),
                Err(_) => break,
            }
        }
        log::warn!(port; "somebody else keeps joining or leaving this port; not waiting any longer");
        Turn { _name: None }
    }
}

/// Makes new sockets of a group take part like all others.
pub fn joined(socket: BorrowedFd<'_>) {
    // Mostly there is none to take away.
    let _ = bpf::steer_nowhere(socket);
}

/// Whether others listen on this address, beside these sockets of ours.
pub fn is_shared(address: SocketAddr, ours: &[OwnedFd]) -> bool {
    listening(address).is_some_and(|all| all > ours.len())
}

/// How new connections go past our sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// At once, and so that those who stay are used alike when we have gone.
    Even,
    /// At once. When we have gone, those who stay are not used alike any more.
    Uneven,
    /// A second later, if they would have come to us.
    Late,
}

/// Gives new connections to the others who listen on this address.
pub fn leave(address: SocketAddr, ours: &[OwnedFd]) -> Past {
    let attempt = |patience| match steer(address, ours, patience) {
        Ok(past) => past,
        Err(error) => {
            log::debug!(address:%, error:%; "connections are not steered to others yet");
            None
        }
    };
    let past = PATIENCE_MS.into_iter().find_map(attempt).unwrap_or(Past::Late);
    for socket in ours {
        if let Err(error) = bpf::begin_nothing(socket.as_fd()) {
            log::warn!(address:%, error:%; "connections may be reset");
        }
    }
    if past == Past::Late {
        gone(ours, past);
    }
    past
}

/// To be called when our sockets are about to be closed: leaves no program behind that would not use those of the others alike.
pub fn gone(ours: &[OwnedFd], past: Past) {
    if let (Past::Uneven | Past::Late, Some(socket)) = (past, ours.first()) {
        joined(socket.as_fd());
    }
}

/// One attempt at steering past our sockets.
fn steer(address: SocketAddr, ours: &[OwnedFd], patience: u16) -> io::Result<Option<Past>> {
    let (Some(all), Some(first)) = (listening(address), ours.first()) else { return Ok(None) };
    let all = u32::try_from(all).map_err(io::Error::other)?;
    let (mut places, mut others) = (Vec::new(), Vec::new());
    for place in 0..all {
        bpf::steer_to(first.as_fd(), place)?;
        let of_others = reaches_others(address, ours, patience)?;
        if of_others { &mut others } else { &mut places }.push(place);
    }
    if places.len() != ours.len() || others.is_empty() {
        return Ok(None);
    }
    bpf::steer_past(first.as_fd(), all, &places)?;
    for _ in 0..TRIALS {
        if !reaches_others(address, ours, patience.max(PATIENCE_MS[1]))? {
            return Ok(None);
        }
    }
    // There will be as many places as there are others. If the program names all of them, each is drawn as often as any
    // other; if it names none, the kernel spreads by itself.
    let named = others.iter().filter(|&&place| (place as usize) < others.len()).count();
    Ok(Some(if named == 0 || named == others.len() { Past::Even } else { Past::Uneven }))
}

/// Whether a connection of our own comes about, which our sockets let not begin.
fn reaches_others(address: SocketAddr, ours: &[OwnedFd], patience_ms: u16) -> io::Result<bool> {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(SocketAddr::new(host, 0)))?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    for ours in ours {
        bpf::begin_nothing_from(ours.as_fd(), port)?;
    }
    if socket.connect(&SockAddr::from(SocketAddr::new(host, address.port()))).is_ok() {
        return Ok(true);
    }
    let mut connecting = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let ready = poll(&mut connecting, PollTimeout::from(patience_ms))?;
    Ok(ready > 0 && socket.take_error()?.is_none())
}

/// How many sockets listen on this very address.
fn listening(address: SocketAddr) -> Option<usize> {
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    Some(count(BufReader::new(File::open(table).ok()?).lines().map_while(Result::ok), address))
}

/// Those in the kernel's table of sockets. It prints addresses as the words that they are in memory. All that listen come
/// first, and there may be a great many others.
fn count(table: impl Iterator<Item = String>, address: SocketAddr) -> usize {
    const LISTENING: &str = "0A";
    let words = |octets: &[u8]| {
        let words =
            octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        words.map(|word| format!("{word:08X}")).collect::<String>()
    };
    let host = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    let local = format!("{host}:{:04X}", address.port());
    let field = |line: &str, n| line.split_ascii_whitespace().nth(n).map(str::to_owned);
    let listening = table.skip(1).take_while(|line| field(line, 3).as_deref() == Some(LISTENING));
    listening.filter(|line| field(line, 1).as_deref() == Some(&local)).count()
}

fn pause(ms: u16) {
    // Interrupted by a signal it is shorter, and nobody minds.
    let _ = poll(&mut [], PollTimeout::from(ms));
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n   \
            1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0\n   \
            2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1 0\n   \
            3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1 0\n   \
            4: 0100007F:1F90 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 5 1 0\n";
        let count = |table: &str, address: &str| {
            super::count(table.lines().map(str::to_owned), address.parse().unwrap())
        };
        if cfg!(target_endian = "little") {
            let counts = ["127.0.0.1:8080", "0.0.0.0:8080", "127.0.0.1:8082"].map(|one| count(table, one));
            assert_eq!(counts, [2, 1, 0]);
        }
        let v6 = "  sl  local_address remote_address st\n   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000";
        if cfg!(target_endian = "little") {
            assert_eq!(count(v6, "[::1]:8080"), 1);
        }
    }

    /// Sockets of one group, in the order of their joining.
    fn group(host: &str, sizes: &[usize]) -> (SocketAddr, Vec<Vec<OwnedFd>>) {
        let mut address: SocketAddr = format!("{host}:0").parse().unwrap();
        let mut open = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1_024).unwrap();
            address = socket.local_addr().unwrap().as_socket().unwrap();
            OwnedFd::from(socket)
        };
        let sockets = sizes.iter().map(|&size| (0..size).map(|_| open()).collect()).collect();
        (address, sockets)
    }

    /// Connections that wait at these sockets.
    fn accepted(sockets: &[OwnedFd]) -> usize {
        let accept = |socket: &OwnedFd| {
            let listener = TcpListener::from(socket.try_clone().unwrap());
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        sockets.iter().map(accept).sum()
    }

    fn connect(address: SocketAddr, n: usize) {
        for _ in 0..n {
            drop(std::net::TcpStream::connect(address).unwrap());
        }
    }

    #[test]
    fn whoever_leaves_gets_nothing_more_wherever_it_is_in_the_group() {
        for host in ["127.0.0.1", "[::1]", "0.0.0.0"] {
            // The second leaves first, so that the last are no longer in one piece; then one in the middle, then the last.
            let (address, mut sentries) = group(host, &[2, 3, 1, 2]);
            for (leaver, left) in [(1, 3), (1, 2), (1, 1)] {
                connect(address, 30);
                sentries.iter().for_each(|sockets| _ = accepted(sockets));
                assert!(is_shared(address, &sentries[leaver]));
                let past = leave(address, &sentries[leaver]);
                assert_ne!(past, Past::Late, "{host}");
                sentries.iter().for_each(|sockets| _ = accepted(sockets));
                connect(address, 100);
                assert_eq!(accepted(&sentries[leaver]), 0, "{host}");
                gone(&sentries[leaver], past);
                sentries.remove(leaver);
                assert_eq!(sentries.len(), left);
                assert_eq!(sentries.iter().map(|sockets| accepted(sockets)).sum::<usize>(), 100);

                // Nobody starves who stays, nor who joins.
                connect(address, 400);
                let each: Vec<usize> =
                    sentries.iter().flatten().map(|s| accepted(std::slice::from_ref(s))).collect();
                let even = 400 / each.len();
                assert!(each.iter().all(|&n| n > even / 2), "{host}: {each:?}");
            }
            assert!(!is_shared(address, &sentries[0]));
        }
    }

    #[test]
    fn whoever_joins_after_somebody_has_left_gets_its_part() {
        let (address, mut sentries) = group("127.0.0.1", &[2, 2]);
        assert_eq!(leave(address, &sentries[0]), Past::Even);
        gone(&sentries[0], Past::Even);
        sentries.remove(0);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(1_024).unwrap();
        accepted(&sentries[0]);
        let new = [OwnedFd::from(socket)];
        joined(new[0].as_fd());
        connect(address, 300);
        let got = accepted(&new);
        assert!(got > 50, "{got} of 300");
    }

    #[test]
    fn one_turn_at_a_time() {
        let port = std::process::id() as u16;
        let turn = Turn::take(port);
        let name =
            UnixAddress::from_abstract_name(format!("plimsoll-group-{}-{port}", nix::unistd::geteuid()));
        UnixListener::bind_addr(name.as_ref().unwrap()).unwrap_err();
        drop(turn);
        UnixListener::bind_addr(&name.unwrap()).unwrap();
    }
}
