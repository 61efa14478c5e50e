//! Ports for processes that cannot choose their own.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

/// So many ports in a row that nobody listens on, for this test alone.
pub fn ports(count: u16) -> (u16, u16) {
    // Below the ephemeral ports, and elsewhere than the same tests in another process.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 11_000 + (std::process::id() % 100) as u16 * 200;
    loop {
        let first = base + NEXT.fetch_add(count, SeqCst) % 2_000;
        let range = first..first + count;
        if range.clone().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return (first, first + count - 1);
        }
    }
}
