//! The client's end of a connection: a TCP stream that notes what happens on it, tells when its peer has left, and
//! closes so that the last answer arrives.
//!
//! hyper reads an HTTP/1 connection only when it wants something from it. While the body of a request is unread
//! (it waits in the queue) hyper would not notice that the client has left, so [`Watch`] looks past what is unread.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use plimsoll_core::Nanos;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::activity::{Activity, Limits};
use crate::gather::{SMALL, gather};
use crate::keepalive::keep_alive;

/// Bytes that are read and thrown away after the last answer, so that the peer gets to read it.
const LINGER_BYTES: usize = 256 * 1024;
/// How long that may take.
const LINGER: Nanos = Nanos::from_secs(2);

/// What a client gets whose head took too long.
pub const SLOW_HEAD: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Tells when the peer of a connection has left.
#[derive(Clone, Debug)]
pub struct Watch {
    stream: Arc<OwnedWriteHalf>,
    activity: Arc<Activity>,
}

impl Watch {
    /// Resolves when the peer has closed its side, however much of what it sent is still unread.
    ///
    /// A peer that has only finished sending looks the same. It is taken to have left, as hyper and nginx take it
    /// where nothing is unread.
    pub async fn gone(&self) {
        loop {
            // Waits for urgent data or the peer's close. Urgent data is never asked for, so the close is all that
            // comes; and unlike READABLE it is not set by a body that waits to be read.
            match self.stream.ready(Interest::PRIORITY).await {
                Ok(ready) if !ready.is_read_closed() => tokio::task::yield_now().await,
                _ => return,
            }
        }
    }

    /// What happens on the connection.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Writes as much of `text` as goes at once, past whatever protocol is spoken.
    pub fn last_words(&self, text: &[u8]) {
        // Whether they arrive changes nothing: the connection is closed next.
        let _ = self.stream.try_write(text);
    }
}

/// A client's TCP stream.
#[derive(Debug)]
pub struct PeerIo {
    reader: OwnedReadHalf,
    writer: Arc<OwnedWriteHalf>,
    activity: Arc<Activity>,
    /// Read to tell the protocol, to be read again.
    prefix: Bytes,
    lingering: Option<Lingering>,
}

#[derive(Debug)]
struct Lingering {
    left: usize,
    until: Pin<Box<tokio::time::Sleep>>,
}

impl PeerIo {
    /// Takes over a stream.
    pub fn new(stream: TcpStream, limits: Limits) -> PeerIo {
        keep_alive(&stream, limits.body);
        let (reader, writer) = stream.into_split();
        let activity = Arc::new(Activity::new(limits));
        PeerIo { reader, writer: Arc::new(writer), activity, prefix: Bytes::new(), lingering: None }
    }

    /// What tells when the peer has left.
    pub fn watch(&self) -> Watch {
        Watch { stream: Arc::clone(&self.writer), activity: Arc::clone(&self.activity) }
    }

    /// Whether what the client sends begins like HTTP/2. Reads it again later.
    ///
    /// # Errors
    /// Where the stream breaks before that is clear.
    pub async fn speaks_http2(&mut self) -> io::Result<bool> {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let mut start = bytes::BytesMut::with_capacity(1024);
        loop {
            let read = self.reader.read_buf(&mut start).await?;
            let differs = !PREFACE.starts_with(&start) && !start.starts_with(PREFACE);
            if differs || read == 0 || start.len() >= PREFACE.len() {
                let http2 = !differs && read > 0;
                self.prefix = start.freeze();
                return Ok(http2);
            }
        }
    }

    /// Reads and forgets what the peer still sends, until it closes or has had its chance. Closing a socket that
    /// holds unread bytes resets the connection, and the reset may overtake the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let start = || Lingering { left: LINGER_BYTES, until: Box::pin(tokio::time::sleep(LINGER.into())) };
        if self.activity.is_still_sending() {
            self.lingering.get_or_insert_with(start);
        }
        let mut scratch = [0; 8 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.reader).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let lingering = self.lingering.get_or_insert_with(start);
                    lingering.left = lingering.left.saturating_sub(buffer.filled().len());
                    if lingering.left == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let Some(lingering) = &mut self.lingering else { return Poll::Ready(()) };
                    return lingering.until.as_mut().poll(cx);
                }
            }
        }
    }
}

impl AsyncRead for PeerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let n = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix[..n]);
            self.prefix.advance(n);
            if self.prefix.is_empty() {
                self.prefix = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.has_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl PeerIo {
    /// The writing half is shared with [`Watch`], so it is written to as a stream that is borrowed.
    fn poll_try_write(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream: &TcpStream = (*self.writer).as_ref();
        loop {
            match stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    self.activity.write_blocked();
                    return Poll::Pending;
                }
            }
            match write(stream) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.activity.has_written();
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncWrite for PeerIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try_write(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut room = [0; SMALL];
        match gather(bufs, &mut room) {
            Some(all) => self.poll_try_write(cx, |stream| stream.try_write(all)),
            None => self.poll_try_write(cx, |stream| stream.try_write_vectored(bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = (*self.writer).as_ref();
        let shut = socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write);
        match shut {
            Err(e) if e.kind() != io::ErrorKind::NotConnected => return Poll::Ready(Err(e)),
            _ => {}
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::activity::Phase;
    use crate::clock;

    const LIMITS: Limits =
        Limits { head: Nanos::from_secs(1), idle: Nanos::from_secs(2), body: Nanos::from_secs(3) };

    async fn pair() -> (PeerIo, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (PeerIo::new(listener.accept().await.unwrap().0, LIMITS), client)
    }

    #[tokio::test]
    async fn a_client_that_vanishes_without_a_word_is_looked_for() {
        let (io, _client) = pair().await;
        let stream: &TcpStream = (*io.writer).as_ref();
        let socket = socket2::SockRef::from(stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), std::time::Duration::from_secs(60));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(std::time::Duration::from_secs(100)));
    }

    #[tokio::test]
    async fn a_peer_that_leaves_is_noticed_past_what_is_unread() {
        let (mut io, mut client) = pair().await;
        let watch = io.watch();
        client.write_all(&[7; 1000]).await.unwrap();
        let mut one = [0];
        io.read_exact(&mut one).await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), watch.gone()).await;
        assert!(early.is_err(), "it is still there, with 999 bytes unread");
        drop(client);
        watch.gone().await;
    }

    #[tokio::test]
    async fn the_protocol_is_told_from_the_first_bytes_however_they_come() {
        for (parts, http2) in [
            (vec!["GET / HTTP/1.1\r\n"], false),
            (vec!["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore"], true),
            (vec!["P", "RI * HTTP/2.0\r\n\r\nS", "M\r\n\r\n"], true),
            (vec!["PR", "OPFIND / HTTP/1.1"], false),
            (vec!["PRI"], false),
        ] {
            let (mut io, mut client) = pair().await;
            let sent = parts.clone();
            let sender = tokio::spawn(async move {
                for part in sent {
                    client.write_all(part.as_bytes()).await.unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            });
            assert_eq!(io.speaks_http2().await.unwrap(), http2, "{parts:?}");
            sender.await.unwrap();
            let mut all = String::new();
            io.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, parts.concat(), "nothing is lost");
        }
    }

    #[tokio::test]
    async fn the_last_answer_survives_a_client_that_is_still_sending() {
        let (mut io, mut client) = pair().await;
        client.write_all(&[7; 100_000]).await.unwrap();
        io.write_all(b"no").await.unwrap();
        let closing = tokio::spawn(async move { io.shutdown().await });
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "no");
        drop(client);
        closing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_the_client_owes_has_a_limit() {
        clock::refresh();
        let (mut io, mut client) = pair().await;
        let watch = io.watch();
        let activity = watch.activity();
        assert_eq!((activity.phase(), activity.expires()), (Phase::Head, clock::coarse() + LIMITS.head));
        activity.enter(Phase::Busy);
        assert!(activity.expires() > clock::coarse() + Nanos::from_secs(1_000_000));
        activity.enter(Phase::Idle);
        assert_eq!(activity.expires(), clock::coarse() + LIMITS.idle);
        client.write_all(b"G").await.unwrap();
        io.read_u8().await.unwrap();
        assert_eq!(activity.phase(), Phase::Head);

        activity.enter(Phase::Busy);
        let chunk = vec![0; 1 << 20];
        let blocked = async { while io.write_all(&chunk).await.is_ok() {} };
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), blocked).await;
        assert_eq!(activity.expires(), clock::coarse() + LIMITS.body, "the client does not read");
        assert!(activity.is_stalled(clock::coarse() + LIMITS.body));
    }
}
