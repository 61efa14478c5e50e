//! Opening connections to servers.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Protocol, Scheme, Server as Origin};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::connections::{Connections, Link, STREAMS};
use crate::gather::{SMALL, gather};
use crate::http1::Http1;
use crate::keepalive::keep_alive;
use crate::pool::Pool;
use crate::server::Server;

/// The largest response head, and the most that is read ahead of a response's body.
const BUFFER: usize = 64 * 1024;
/// HTTP/2 receive windows of a stream and of a connection: what a server may send ahead of the client's reading. The
/// connection's has room for all of its streams, so that clients that do not read hold up nobody else's.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// What is buffered of a request's body on its way to a server by HTTP/2.
const SEND_BUFFER: usize = 64 * 1024;

/// What a request needs from its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Any protocol, though gRPC wants HTTP/2.
    Exchange {
        /// Whether it is a gRPC call.
        grpc: bool,
    },
    /// HTTP/1.1, on a connection of its own.
    Upgrade,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speak {
    Http1,
    Http2,
    /// What the server prefers, said in the TLS handshake.
    Negotiated,
}

fn speak(need: Need, protocol: Protocol, scheme: Scheme) -> Speak {
    match (need, protocol, scheme) {
        (Need::Upgrade, ..) | (_, Protocol::Http1, _) => Speak::Http1,
        (_, Protocol::Http2, _) => Speak::Http2,
        (_, Protocol::Auto, Scheme::Https) => Speak::Negotiated,
        (Need::Exchange { grpc: true }, Protocol::Auto, Scheme::Http) => Speak::Http2,
        (Need::Exchange { grpc: false }, Protocol::Auto, Scheme::Http) => Speak::Http1,
    }
}

/// Why a connection could not be opened.
#[derive(Debug)]
pub enum ConnectError {
    /// It took too long.
    Timeout,
    /// TCP or TLS failed.
    Io(io::Error),
    /// The server did not begin as the protocol says.
    Protocol(hyper::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Timeout => f.write_str("connecting took too long"),
            ConnectError::Io(e) => e.fmt(f),
            ConnectError::Protocol(e) => e.fmt(f),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(e: io::Error) -> ConnectError {
        ConnectError::Io(e)
    }
}
impl From<hyper::Error> for ConnectError {
    fn from(e: hyper::Error) -> ConnectError {
        ConnectError::Protocol(e)
    }
}

/// A connection for a request, one that is open already where there is one.
///
/// # Errors
/// Where the server cannot be connected to within the pool's `connect_timeout`.
pub async fn link(
    connections: &Connections,
    pool: &Pool,
    server: &Server,
    need: Need,
) -> Result<Link, ConnectError> {
    let speak = speak(need, pool.config.protocol, server.origin.scheme);
    let open = match (need, speak) {
        (Need::Upgrade, _) => None,
        (_, Speak::Http1) => connections.idle(server.id),
        (_, Speak::Http2) => connections.stream(server.id),
        (_, Speak::Negotiated) => connections.stream(server.id).or_else(|| connections.idle(server.id)),
    };
    match open {
        Some(link) => Ok(link),
        None => fresh(connections, pool, server, speak).await,
    }
}

/// A connection that nobody has used yet, except where it shares one that somebody else has just opened.
async fn fresh(
    connections: &Connections,
    pool: &Pool,
    server: &Server,
    speak: Speak,
) -> Result<Link, ConnectError> {
    let connect = async {
        if speak == Speak::Http1 {
            return connect(connections, pool, server, speak).await;
        }
        let turn = connections.turn(server.id);
        // Never closed.
        let _turn = turn.acquire().await;
        match connections.stream(server.id) {
            Some(link) => Ok(link),
            None => connect(connections, pool, server, speak).await,
        }
    };
    let limit = pool.config.connect_timeout.into();
    // Boxed: rare, and large enough to make every request's future larger otherwise.
    tokio::time::timeout(limit, Box::pin(connect)).await.unwrap_or(Err(ConnectError::Timeout))
}

async fn connect(
    connections: &Connections,
    pool: &Pool,
    server: &Server,
    speak: Speak,
) -> Result<Link, ConnectError> {
    let origin = &server.origin;
    let stream = dial(origin, pool.config.response_timeout).await?;
    let (io, http2) = match origin.scheme {
        Scheme::Http => (Transport::Plain(stream), speak == Speak::Http2),
        Scheme::Https => {
            let tls = handshake(pool, server, speak, stream).await?;
            let agreed = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            (Transport::Tls(Box::new(tls)), agreed || speak == Speak::Http2)
        }
    };
    let io = TokioIo::new(io);
    if !http2 {
        let (sender, driver) = http1::Builder::new().max_buf_size(BUFFER).handshake(io).await?;
        return Ok(Link::Http1(Box::new(Http1::new(sender, driver))));
    }
    let (sender, driver) = http2::Builder::new(LocalExecutor)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(BUFFER as u32)
        .handshake(io)
        .await?;
    tokio::task::spawn_local(driver);
    Ok(connections.share(server.id, sender))
}

/// A connection on which a server may pause for so long.
async fn dial(origin: &Origin, patience: Nanos) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((&*origin.host, origin.port)).await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream, patience);
    Ok(stream)
}

async fn handshake(
    pool: &Pool,
    server: &Server,
    speak: Speak,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let Some(config) = pool.tls() else { return Err(io::Error::other("the pool has no TLS configuration")) };
    let mut config = Arc::clone(config);
    let offer: &[&[u8]] = match speak {
        Speak::Http1 => &[b"http/1.1"],
        Speak::Http2 => &[b"h2"],
        Speak::Negotiated => &[b"h2", b"http/1.1"],
    };
    Arc::make_mut(&mut config).alpn_protocols = offer.iter().map(|p| p.to_vec()).collect();
    let name = ServerName::try_from(server.origin.host.clone()).map_err(io::Error::other)?;
    tokio_rustls::TlsConnector::from(config).connect(name, stream).await
}

/// How a connection to a server is carried, for hyper.
pub type ServerIo = TokioIo<Transport>;

/// A TCP stream, in the clear or not.
#[derive(Debug)]
pub enum Transport {
    /// In the clear.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Transport::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, buf))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut room = [0; SMALL];
        match gather(bufs, &mut room) {
            Some(all) => self.poll_write(cx, all),
            None => either!(self, stream => stream.poll_write_vectored(cx, bufs)),
        }
    }
    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

/// Runs hyper's tasks on the thread that they come from.
#[derive(Clone, Copy, Debug)]
pub struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_server_that_vanishes_without_a_word_is_looked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = listener.local_addr().unwrap().to_string().parse().unwrap();
        for (patience, gone) in [(1, 100), (600, 600)] {
            let stream = dial(&origin, Nanos::from_secs(patience)).await.unwrap();
            let socket = socket2::SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(gone)));
        }
    }
}
