//! Noticing that the other end of a connection is gone although it never said so: its machine has lost its power, or the
//! network the way to it. Without this a stream that may be silent for long would keep its slot for as long.
//!
//! TCP's own probes do it for all protocols alike. HTTP/2 has pings of its own, which are left alone: gRPC servers end the
//! connections of clients that ping more often than every five minutes.

use std::time::Duration;

use plimsoll_core::Nanos;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence after which the other end is asked whether it is there.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is asked then,
const INTERVAL: Duration = Duration::from_secs(10);
/// and how many times, before it is taken to be gone.
const PROBES: u32 = 4;

/// Has the system look after a connection. The other end may keep it full, taking nothing, for `patience` at least.
pub fn keep_alive(stream: &TcpStream, patience: Nanos) {
    let socket = SockRef::from(stream);
    let gone = (IDLE + INTERVAL * PROBES).max(patience.into());
    let probes = TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    // A system that has no such options leaves it at the limits of the protocols above.
    let _ = socket.set_tcp_keepalive(&probes);
    let _ = socket.set_tcp_user_timeout(Some(gone));
}
