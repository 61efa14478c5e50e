//! How many connections wait at a socket until somebody accepts them, as this host's kernel says. Nothing is opened of the server's: a
//! listening socket that another process has, too, would outlive its server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Result};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// In `/proc/net/tcp`, a socket that listens.
const LISTENS: &str = "0A";
/// `SOCK_DIAG_BY_FAMILY`, and that it is a question.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
/// Sockets of a worker that are looked at, at most.
const MOST: usize = 64;
/// `AF_UNIX`; the state of sockets that listen; that the length of the queue is asked for, and the attribute that holds it.
const UNIX: u8 = 1;
const LISTENING: u8 = 10;
const SHOW_LENGTH: u32 = 0x10;
const LENGTH: u16 = 4;

/// A socket at which a server's workers accept.
#[derive(Debug)]
pub struct Listen {
    inode: u64,
    family: Family,
}

#[derive(Debug)]
enum Family {
    /// The kernel's table in which it is.
    Tcp(String),
    /// Whom to ask.
    Unix(OwnedFd),
}

impl Listen {
    /// The socket of a worker: the one of its sockets that listens. Nothing where it is not to be seen.
    pub fn of_worker(pid: u32) -> Option<Listen> {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let sockets = links.filter_map(|link| {
            let target = fs::read_link(link.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        });
        sockets.take(MOST).find_map(|inode| Listen::at(inode, pid))
    }

    /// The socket of this number, if it listens.
    fn at(inode: u64, pid: u32) -> Option<Listen> {
        // The tables of the worker's network, which may be a container's.
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{pid}/net/{table}"));
        let tcp = tables.into_iter().find(|table| matches!(in_table(table, inode), Ok(Some(_))));
        let family = match tcp {
            Some(table) => Family::Tcp(table),
            None => Family::Unix(netlink_socket().ok()?),
        };
        let listen = Listen { inode, family };
        listen.waiting().is_ok().then_some(listen)
    }

    /// How many wait.
    ///
    /// # Errors
    /// Where the kernel does not say; the worker through whose eyes it was seen may have ended.
    pub fn waiting(&self) -> Result<usize> {
        let waiting = match &self.family {
            Family::Tcp(table) => in_table(table, self.inode)?,
            Family::Unix(netlink) => {
                send(netlink, &question(self.inode), SendFlags::empty())?;
                let mut answer = [0; 512];
                let (read, _) = recv(netlink, &mut answer, RecvFlags::empty())?;
                in_answer(&answer[..read])
            }
        };
        waiting.ok_or_else(|| std::io::Error::other("nobody listens there"))
    }
}

/// Those that listen come first in these tables, so a server's many connections are not read.
fn in_table(table: &str, inode: u64) -> Result<Option<usize>> {
    let inode = inode.to_string();
    for line in BufReader::new(File::open(table)?).lines().skip(1) {
        let line = line?;
        let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        if fields.get(3) != Some(&LISTENS) {
            break;
        }
        if fields.get(9) == Some(&inode.as_str()) {
            let waiting = fields[4].split_once(':').map(|(_, waiting)| usize::from_str_radix(waiting, 16));
            return Ok(waiting.and_then(std::result::Result::ok));
        }
    }
    Ok(None)
}

fn netlink_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?)
}

/// A `unix_diag_req` behind its `nlmsghdr`.
fn question(inode: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend_from_slice(&40_u32.to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    // Its number, and the sender's, which the kernel fills in.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[UNIX, 0, 0, 0]);
    bytes.extend_from_slice(&(1_u32 << LISTENING).to_ne_bytes());
    // The kernel keeps 32 bits of it.
    bytes.extend_from_slice(&(inode as u32).to_ne_bytes());
    bytes.extend_from_slice(&SHOW_LENGTH.to_ne_bytes());
    // Whatever its cookie is.
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

/// The attribute behind an `nlmsghdr` and a `unix_diag_msg` of sixteen bytes each.
fn in_answer(answer: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    // Whatever states were asked for, a socket that is asked for by its number is told of in any.
    if word(4)? != BY_FAMILY || answer.get(18) != Some(&LISTENING) {
        return None;
    }
    let mut at = 32;
    while let (Some(length), Some(kind)) = (word(at), word(at + 2)) {
        if kind == LENGTH {
            return Some(u32::from_ne_bytes(answer.get(at + 4..at + 8)?.try_into().ok()?) as usize);
        }
        at += usize::from(length).max(4).next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    use super::*;

    /// Somebody who has it, as workers do.
    fn waiting(socket: impl AsFd) -> usize {
        let socket = socket.as_fd().try_clone_to_owned().unwrap();
        let mut worker = Command::new("sleep").arg("60").stdin(Stdio::from(socket)).spawn().unwrap();
        let listen = Listen::of_worker(worker.id());
        let waiting = listen.and_then(|listen| listen.waiting().ok());
        worker.kill().unwrap();
        worker.wait().unwrap();
        waiting.expect("the kernel knows it")
    }

    #[test]
    fn who_waits_at_a_port_is_counted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has the newer protocol.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            assert_eq!(waiting(&listener), 0);
            let at = listener.local_addr().unwrap();
            let _waits: Vec<_> = (0..3).map(|_| TcpStream::connect(at).unwrap()).collect();
            assert_eq!(waiting(&listener), 3);
            let _accepted = listener.accept().unwrap();
            assert_eq!(waiting(&listener), 2);
        }
    }

    #[test]
    fn who_waits_at_a_path_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let _waits: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(waiting(&listener), 3);
    }

    #[test]
    fn what_does_not_listen_has_no_queue() {
        assert!(Listen::of_worker(u32::MAX).is_none());
        let (one, _other) = UnixStream::pair().unwrap();
        let mut process =
            Command::new("sleep").arg("60").stdin(Stdio::from(OwnedFd::from(one))).spawn().unwrap();
        assert!(Listen::of_worker(process.id()).is_none());
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
