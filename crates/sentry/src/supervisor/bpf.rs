//! Classic BPF programs on listening sockets. They need no privilege, no compiler and no library: a few instructions that the
//! kernel checks and keeps with the socket.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;
use socket2::{SockFilter, SockRef};

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const ADD: u16 = 0x04;
const AND: u16 = 0x54;
const MODULO: u16 = 0x94;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_RESULT: u16 = 0x16;
/// Where the kernel's own values begin (`SKF_AD_OFF`), and the random number among them (`SKF_AD_RANDOM`).
const RANDOM: u32 = (-0x1000_i32 + 56) as u32;

/// What a filter passes on of a packet: all of it, or nothing.
const ALL: u32 = u32::MAX;
const NOTHING: u32 = 0;

/// Where the flags are in a TCP header, and those that tell how a connection begins.
const FLAGS: u32 = 13;
const SYN: u32 = 0x02;
const SYN_AND_ACK: u32 = 0x12;

const fn step(code: u16, k: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, k)
}

/// New connections of the socket's group go to the socket with this number in it.
pub fn steer_to(socket: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    attach_to_group(socket, &[step(RETURN, number)])
}

/// New connections of the group of `all` sockets go to those without `ours`, at random. At least one is not ours.
///
/// Draws a number among the others, and steps over each of ours on its way up to it.
pub fn steer_past(socket: BorrowedFd<'_>, all: u32, ours: &[u32]) -> io::Result<()> {
    let mut ours = ours.to_vec();
    ours.sort_unstable();
    let mut program = vec![step(LOAD_WORD, RANDOM), step(MODULO, all - ours.len() as u32)];
    for number in ours {
        program.extend([SockFilter::new(IF_AT_LEAST, 0, 1, number), step(ADD, 1)]);
    }
    program.push(step(RETURN_RESULT, 0));
    attach_to_group(socket, &program)
}

/// New connections go to all sockets of the group alike, as they do where no program says otherwise.
pub fn steer_nowhere(socket: BorrowedFd<'_>) -> io::Result<()> {
    let none: libc::c_int = 0;
    // SAFETY: the option takes an int, and does not look at it.
    let result = unsafe {
        let value = (&raw const none).cast::<c_void>();
        let length = size_of_val(&none) as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No connection begins at this socket any more. Its client asks again after a second, as if the packet had been lost, and
/// finds another one. What has begun goes on.
pub fn begin_nothing(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).attach_filter(&[
        step(LOAD_BYTE, FLAGS),
        step(AND, SYN_AND_ACK),
        SockFilter::new(IF_EQUAL, 0, 1, SYN),
        step(RETURN, NOTHING),
        step(RETURN, ALL),
    ])
}

/// No connection from this port of its client begins at this socket.
pub fn begin_nothing_from(socket: BorrowedFd<'_>, port: u16) -> io::Result<()> {
    SockRef::from(&socket).attach_filter(&[
        step(LOAD_BYTE, FLAGS),
        step(AND, SYN_AND_ACK),
        SockFilter::new(IF_EQUAL, 0, 3, SYN),
        step(LOAD_HALF, 0),
        SockFilter::new(IF_EQUAL, 0, 1, port.into()),
        step(RETURN, NOTHING),
        step(RETURN, ALL),
    ])
}

fn attach_to_group(socket: BorrowedFd<'_>, program: &[SockFilter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        // A transparent wrapper, which the kernel only reads.
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the option takes a sock_fprog whose instructions are there for the time of the call.
    let result = unsafe {
        let value = (&raw const program).cast::<c_void>();
        let length = size_of_val(&program) as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
