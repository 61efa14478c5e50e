//! A network that comes apart, or is slow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What carries bytes between whoever connects to it and one other. Apart, it accepts and carries nothing.
pub struct Link {
    pub address: SocketAddr,
    way: Arc<Way>,
}

#[derive(Default)]
struct Way {
    is_apart: AtomicBool,
    takes_ms: AtomicU64,
}

impl Link {
    pub fn to(far: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link { address: listener.local_addr().unwrap(), way: Arc::default() };
        let way = Arc::clone(&link.way);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(far) else { continue };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (there, back) = (Arc::clone(&way), Arc::clone(&way));
                std::thread::spawn(move || carry(near, far, &there));
                std::thread::spawn(move || carry(far_too, near_too, &back));
            }
        });
        link
    }

    pub fn is_apart(&self, is_apart: bool) {
        self.way.is_apart.store(is_apart, SeqCst);
    }

    /// How long bytes are on their way from now on, one way.
    #[cfg(feature = "etcd")]
    pub fn takes(&self, delay: Duration) {
        self.way.takes_ms.store(delay.as_millis() as u64, SeqCst);
    }
}

/// Reads on while what was read is on its way.
fn carry(mut from: TcpStream, mut to: TcpStream, way: &Arc<Way>) {
    let (sent, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    let (end, way_too) = (to.try_clone().unwrap(), Arc::clone(way));
    let arrivals = std::thread::spawn(move || {
        for (arrives, bytes) in under_way {
            std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
            while way_too.is_apart.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(50));
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    let mut bytes = [0; 4_096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let takes = Duration::from_millis(way.takes_ms.load(SeqCst));
        if sent.send((Instant::now() + takes, bytes[..n].to_vec())).is_err() {
            break;
        }
    }
    drop(sent);
    let _ = arrivals.join();
    let _ = (from.shutdown(Shutdown::Both), end.shutdown(Shutdown::Both));
}
