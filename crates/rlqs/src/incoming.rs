//! Who connects, before the token is asked for: so many at once, and nobody for long who has nothing to say.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Sleep, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// Connections at once; whoever comes on top waits. An Envoy has one a thread.
pub const MOST: usize = 4_096;
/// How long one may be without a stream that was let in.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted: there are no descriptors left, most likely, and nothing is gained by asking again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, which keeps its place until it is dropped.
pub struct Connection {
    stream: TcpStream,
    opened: Opened,
    /// None once that was long ago.
    patience: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

/// Whether a stream of a connection was let in. Every request of it has this among its extensions.
#[derive(Clone, Default)]
pub struct Opened(Arc<AtomicBool>);

impl Opened {
    /// One was.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

/// The connections of a listener, for as long as somebody wants them.
pub fn incoming(
    listener: TcpListener,
    most: usize,
    patience: Duration,
) -> ReceiverStream<io::Result<Connection>> {
    let (connections, incoming) = mpsc::channel(1);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(most));
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place,
                () = connections.closed() => return,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = connections.closed() => return,
            };
            match (place, accepted) {
                (Ok(_place), Ok((stream, _))) => {
                    // Messages are small and each is waited for. Where that cannot be set they are a little late.
                    let _ = stream.set_nodelay(true);
                    let patience = Some(Box::pin(sleep(patience)));
                    let connection = Connection { stream, opened: Opened::default(), patience, _place };
                    if connections.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                (_, accepted) => {
                    if let Err(error) = accepted {
                        log::warn!(error:%; "connection of somebody who reports not accepted");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(incoming)
}

impl Connected for Connection {
    type ConnectInfo = Opened;

    fn connect_info(&self) -> Opened {
        self.opened.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(patience) = &mut self.patience
            && patience.as_mut().poll(context).is_ready()
        {
            self.patience = None;
            if !self.opened.0.load(Relaxed) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;
    use tokio_stream::StreamExt;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    /// Nothing here takes this long, on any machine.
    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn so_many_are_let_in_and_the_next_when_one_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = incoming(listener, 2, LONG);
        let _peers = [(); 3].map(|()| std::net::TcpStream::connect(address).unwrap());
        let first = timeout(LONG, connections.next()).await.unwrap();
        let _second = timeout(LONG, connections.next()).await.unwrap();
        assert!(timeout(SHORT, connections.next()).await.is_err(), "there is no place");
        drop(first);
        assert!(timeout(LONG, connections.next()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn who_opens_no_stream_is_gone_and_who_did_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = incoming(listener, 2, SHORT);
        for opens in [false, true] {
            let mut peer = TcpStream::connect(address).await.unwrap();
            let mut connection = timeout(LONG, connections.next()).await.unwrap().unwrap().unwrap();
            if opens {
                connection.connect_info().set();
            }
            let silence = timeout(10 * SHORT, connection.read_u8()).await;
            assert_eq!(silence.is_err(), opens, "{silence:?}");
            peer.write_u8(7).await.unwrap();
            assert!(!opens || timeout(LONG, connection.read_u8()).await.unwrap().unwrap() == 7);
        }
    }
}
