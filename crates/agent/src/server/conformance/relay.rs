//! The way to a server, as it is when the network or the server fails: it stands still, connections break, no other is to be had.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};

/// Hands on to a server what comes to a port of its own.
pub struct Relay {
    /// The port, on 127.0.0.1.
    pub port: u16,
    frozen: watch::Sender<bool>,
    refuses: Rc<Cell<bool>>,
    /// What ends either direction of each connection that there is.
    connections: Rc<RefCell<Vec<[AbortHandle; 2]>>>,
}

impl Relay {
    /// To be called within a [`tokio::task::LocalSet`].
    pub async fn to(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay {
            port: listener.local_addr().unwrap().port(),
            frozen: watch::Sender::new(false),
            refuses: Rc::default(),
            connections: Rc::default(),
        };
        let (frozen, refuses) = (relay.frozen.subscribe(), Rc::clone(&relay.refuses));
        let connections = Rc::clone(&relay.connections);
        spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                if refuses.get() {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let ((from, to), (back_from, back_to)) = (client.into_split(), server.into_split());
                let ways = [(from, back_to), (back_from, to)];
                let handed =
                    ways.map(|(from, to)| spawn_local(hand_on(from, to, frozen.clone())).abort_handle());
                connections.borrow_mut().push(handed);
            }
        });
        relay
    }

    /// Whether nothing gets through any more, with all connections as they are.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// From now on no connection is to be had.
    pub fn refuse(&self) {
        self.refuses.set(true);
    }

    /// How many there are.
    pub fn connections(&self) -> usize {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|ways| ways.iter().all(|way| !way.is_finished()));
        connections.len()
    }

    /// Breaks the one that was made first.
    pub fn cut_first(&self) {
        self.connections.borrow_mut().remove(0).iter().for_each(AbortHandle::abort);
    }

    /// Breaks all of them.
    pub fn cut_all(&self) {
        self.connections.borrow_mut().drain(..).flatten().for_each(|way| way.abort());
    }
}

async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frozen: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let thawed = frozen.wait_for(|frozen| !frozen).await.is_ok();
        if !thawed || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
