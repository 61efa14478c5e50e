//! The socket to the agent: made without waiting, read and written without waiting, and only to whom may cancel our tasks.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use plimsoll_ledger::control::{FromAgent, FromSdk, Lines};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::quiet;

/// Most bytes that the agent leaves unread until it is hung up on.
const MOST_UNREAD: usize = 64 * 1024;

/// Where the agent is found.
enum At {
    Socket(PathBuf),
    /// Given to us; not there any more once it was used.
    Given(Option<UnixStream>),
}

/// A connection to the agent, while there is one.
pub(crate) struct Connection {
    at: At,
    wire: Option<Wire>,
}

struct Wire {
    stream: UnixStream,
    lines: Lines,
    unsent: Vec<u8>,
}

impl Connection {
    /// To an agent that listens there.
    pub fn socket(path: PathBuf) -> Connection {
        Connection { at: At::Socket(path), wire: None }
    }

    /// To one that is there.
    pub fn given(stream: UnixStream) -> Connection {
        Connection { at: At::Given(Some(stream)), wire: None }
    }

    pub fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    pub fn stream(&self) -> Option<&UnixStream> {
        self.wire.as_ref().map(|wire| &wire.stream)
    }

    /// Whether it waits until it can send.
    pub fn has_unsent(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| !wire.unsent.is_empty())
    }

    /// Connects and says hello, if anybody is there.
    pub fn open(&mut self, file: &str) {
        let stream = match &mut self.at {
            At::Socket(path) => match connect(path) {
                Ok(stream) => stream,
                Err(Untrusted::No(why)) => return quiet::once(why),
                Err(Untrusted::NobodyThere) => return,
            },
            At::Given(stream) => match stream.take() {
                Some(stream) if stream.set_nonblocking(true).is_ok() => stream,
                _ => return,
            },
        };
        self.wire = Some(Wire { stream, lines: Lines::default(), unsent: Vec::new() });
        self.send(&FromSdk::Hello { version: plimsoll_ledger::control::VERSION, file: file.to_owned() });
    }

    pub fn close(&mut self) {
        self.wire = None;
    }

    /// Sends a line, as soon as it can be sent.
    pub fn send(&mut self, line: &FromSdk) {
        if let Some(wire) = &mut self.wire {
            wire.unsent.extend_from_slice(line.to_line().as_bytes());
            self.flush();
        }
    }

    /// Sends what it can.
    pub fn flush(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        while !wire.unsent.is_empty() {
            match wire.stream.write(&wire.unsent) {
                Ok(n) if n > 0 => drop(wire.unsent.drain(..n)),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock && wire.unsent.len() <= MOST_UNREAD => {
                    return;
                }
                _ => return self.close(),
            }
        }
    }

    /// What came meanwhile and was understood. Closes where the other side did, or is no agent.
    pub fn receive(&mut self) -> Vec<FromAgent> {
        let mut received = Vec::new();
        let mut bytes = [0; 4096];
        while let Some(wire) = &mut self.wire {
            match wire.stream.read(&mut bytes) {
                Ok(n) if n > 0 => wire.lines.take(&bytes[..n]),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                _ => {
                    self.close();
                    break;
                }
            }
            loop {
                match wire.lines.next_line() {
                    Ok(Some(line)) => received.extend(line.parse::<FromAgent>()),
                    Ok(None) => break,
                    Err(why) => {
                        quiet::once(format!("whoever listens on agent.sock is no agent: {why}"));
                        self.close();
                        return received;
                    }
                }
            }
        }
        received
    }
}

/// Why there is no connection.
enum Untrusted {
    NobodyThere,
    No(String),
}

/// Connects without waiting, to our own user's agent or root's.
fn connect(path: &Path) -> Result<UnixStream, Untrusted> {
    let try_to = || -> rustix::io::Result<_> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        Ok((socket, peer))
    };
    let (socket, peer) = try_to().map_err(|_| Untrusted::NobodyThere)?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(Untrusted::No(format!(
            "{} is listened on by user {}, who may not cancel our tasks",
            path.display(),
            peer.uid.as_raw()
        )));
    }
    Ok(UnixStream::from(socket))
}
