//! Ports to listen on that are free.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many ports in a row that are free now. They are below those that connections are given by themselves, lest a load take them.
///
/// # Errors
/// Where there are none.
pub fn free_ports(count: u16) -> Result<Range<u16>, String> {
    const ALL: Range<u16> = 15_000..30_000;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let places = (ALL.end - ALL.start) / count.max(1);
    // Elsewhere than another such program that looks at the same time, and than this one a moment ago.
    let start = std::process::id().wrapping_add(ASKED.fetch_add(1, Relaxed)) % u32::from(places.max(1));
    let start = start as u16;
    let mut ranges =
        (0..places).map(|i| ALL.start + (start + i) % places * count).map(|first| first..first + count);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let free = ranges.find(|ports| ports.clone().all(is_free));
    free.ok_or_else(|| format!("there are no {count} free ports in a row"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_taken_are_left_out() {
        let ports = free_ports(4).unwrap();
        assert_eq!(ports.len(), 4);
        let last = ports.end - 1;
        let _taken = TcpListener::bind(("127.0.0.1", last)).unwrap();
        let others = free_ports(4).unwrap();
        assert!(!others.contains(&last), "{others:?}");
        assert!(free_ports(u16::MAX).is_err());
    }
}
