//! The way to a server, as it is when the network or the server fails: it stands still, connections break, no other is to be had.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};

/// Hands on to a server what comes to a port of its own.
pub struct Relay {
    /// Where it listens.
    pub at: String,
    frozen: watch::Sender<bool>,
    refuses: Rc<Cell<bool>>,
    asked: Rc<Cell<u64>>,
    /// What ends either direction of each connection that there is.
    connections: Rc<RefCell<Vec<[AbortHandle; 2]>>>,
}

impl Relay {
    /// To be called within a [`tokio::task::LocalSet`].
    pub async fn to(server: String) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay {
            at: listener.local_addr().unwrap().to_string(),
            frozen: watch::Sender::new(false),
            refuses: Rc::default(),
            asked: Rc::default(),
            connections: Rc::default(),
        };
        let (frozen, refuses) = (relay.frozen.subscribe(), Rc::clone(&relay.refuses));
        let asked = Rc::clone(&relay.asked);
        let connections = Rc::clone(&relay.connections);
        spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                if refuses.get() {
                    continue;
                }
                let ways = match server.starts_with('/') {
                    true => {
                        UnixStream::connect(&server).await.map(|server| both(client, server, &frozen, &asked))
                    }
                    false => {
                        TcpStream::connect(&server).await.map(|server| both(client, server, &frozen, &asked))
                    }
                };
                connections.borrow_mut().extend(ways.ok());
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

    /// How often a client has said something, to be answered.
    pub fn asked(&self) -> u64 {
        self.asked.get()
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

/// Hands on what either says.
fn both<S>(
    client: TcpStream,
    server: S,
    frozen: &watch::Receiver<bool>,
    asked: &Rc<Cell<u64>>,
) -> [AbortHandle; 2]
where
    S: AsyncRead + AsyncWrite + 'static,
{
    let ((from, to), (back_from, back_to)) = (split(client), split(server));
    let asked = Rc::clone(asked);
    let there = spawn_local(hand_on(from, back_to, frozen.clone(), move || asked.set(asked.get() + 1)));
    let back = spawn_local(hand_on(back_from, to, frozen.clone(), || {}));
    [there.abort_handle(), back.abort_handle()]
}

async fn hand_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
    said: impl Fn(),
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        said();
        let thawed = frozen.wait_for(|frozen| !frozen).await.is_ok();
        if !thawed || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    // Either side sees that the other has ended.
    let _ = to.shutdown().await;
}
