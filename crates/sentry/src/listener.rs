//! Client connections, from accepting them to their end.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use plimsoll_core::{Limit, Mechanism, Nanos, Quantity, Refusal};
use rand::RngExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::activity::Limits;
use crate::client::{Client, Command};
use crate::peer::{PeerIo, SLOW_HEAD};
use crate::proxy;
use crate::state::{Place, Routing};
use crate::thread::Thread;
use crate::timeouts::Expire;
use crate::upstream::LocalExecutor;

/// After an error that is not one connection's own (no descriptors left, say) accepting again at once would fail again.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections that are accepted at the end of it all, at most: a full queue.
const THE_REST: usize = 4096;

/// Requests that one HTTP/2 connection may have at once, and what it may buffer for them. What a stream waiting in the
/// queue has sent stays unread, so the connection's window has room for all of them: otherwise those that wait would use it up, and
/// the one that was let in would get nothing more. A stream's is enough for 2.5 MB/s of upload over 50 ms.
const STREAMS: u32 = 128;
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client has reset and nobody has looked at yet, and errors that it has provoked, before h2 ends the
/// connection. A client in good faith has next to none.
const PENDING_RESETS: usize = 32;
const PROVOKED_ERRORS: usize = 128;

/// Accepts connections until the worker drains.
pub async fn accept(thread: Rc<Thread>, listener: TcpListener) {
    let mut draining = thread.shared.draining();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => open(&thread, stream, peer),
            Err(e) if is_of_one_connection(&e) => {}
            Err(error) => {
                log::warn!(error:%; "cannot accept connections");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    if let Ok(listener) = listener.into_std() {
        accept_the_rest(&thread, &listener);
    }
}

/// Clients that wait in the socket's queue believe that they are connected; they would be reset along with it.
fn accept_the_rest(thread: &Rc<Thread>, listener: &std::net::TcpListener) {
    // Where another worker has the socket too, the queue may never be empty.
    for _ in 0..THE_REST {
        let Ok((stream, peer)) = listener.accept() else { return };
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            open(thread, stream, peer);
        }
    }
}

fn is_of_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(e.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

fn open(thread: &Rc<Thread>, stream: TcpStream, peer: SocketAddr) {
    let view = thread.view();
    let peer = peer.ip().to_canonical();
    thread.stats().accepted.bump();
    match thread.shared.connect(peer, &view.routing.config.sentry) {
        Ok(place) => {
            let terms = Terms::of(&view.routing);
            tokio::task::spawn_local(serve(Rc::clone(thread), terms, stream, peer, place));
        }
        Err((open, limit)) => {
            thread.stats().connections_refused.bump();
            if view.routing.tls.is_none() {
                // Jittered, so that those who come back do not come back at once.
                refuse(&stream, open, limit, thread.with_rng(|rng| rng.random_range(1..=3)));
            }
        }
    }
}

/// What a connection is held to for as long as it lives. It does not keep the config itself, which may be replaced
/// many times meanwhile.
struct Terms {
    limits: Limits,
    max_header_size: usize,
    max_headers: usize,
    tls: Option<Arc<ServerConfig>>,
}

impl Terms {
    fn of(routing: &Routing) -> Terms {
        let config = &routing.config.sentry;
        Terms {
            limits: Limits {
                head: config.header_timeout,
                idle: config.idle_timeout,
                body: config.body_timeout,
            },
            max_header_size: usize::try_from(config.max_header_size.bytes).unwrap_or(usize::MAX),
            max_headers: config.max_headers as usize,
            tls: routing.tls.clone(),
        }
    }
}

/// Says why, if that can be said at once. Nothing is kept for a connection that is not wanted.
fn refuse(stream: &TcpStream, open: u32, limit: u32, wait_s: u64) {
    let refusal = Refusal {
        mechanism: Mechanism::Connections,
        limit: Limit::Connections,
        estimate: Quantity::Count(u64::from(open) + 1),
        objective: Quantity::Count(u64::from(limit)),
        retry_after: Nanos::from_secs(wait_s),
    };
    let body = format!("{{\"error\":\"overloaded\",\"reason\":\"{refusal}\"}}");
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: {wait_s}\r\nplimsoll-reason: {refusal}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // The descriptor is fresh: there is room in its buffer, or the client is gone.
    let _ = socket2::SockRef::from(stream).send(text.as_bytes());
}

async fn serve(thread: Rc<Thread>, terms: Terms, stream: TcpStream, peer: IpAddr, place: Place) {
    // Without it small responses wait for acknowledgements; a connection where it fails is broken.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut io = PeerIo::new(stream, terms.limits);
    let watch = io.watch();
    let begin = Duration::from(terms.limits.head);
    // Boxed below: a connection in the clear should not take the room that one with TLS needs.
    match &terms.tls {
        None => match timeout(begin, io.speaks_http2()).await {
            Ok(Ok(http2)) => {
                let client = Client::new(thread, place, peer, false, http2, watch);
                Box::pin(drive(client, &terms, TokioIo::new(io))).await;
            }
            Ok(Err(_)) => {}
            Err(_) => {
                thread.stats().slow_heads.bump();
                watch.last_words(SLOW_HEAD);
            }
        },
        Some(tls) => match timeout(begin, TlsAcceptor::from(Arc::clone(tls)).accept(io)).await {
            Ok(Ok(io)) => {
                let http2 = io.get_ref().1.alpn_protocol() == Some(b"h2");
                let client = Client::new(thread, place, peer, true, http2, watch);
                Box::pin(drive(client, &terms, TokioIo::new(io))).await;
            }
            Ok(Err(_)) | Err(_) => thread.stats().tls_failures.bump(),
        },
    }
}

/// Polls a connection until it ends, or until its [`Client`] is told to end it.
macro_rules! until_its_end {
    ($connection:expr, $client:expr) => {{
        let mut connection = pin!($connection);
        let mut finishing = false;
        std::future::poll_fn(|cx| {
            match $client.command(cx) {
                Command::Serve => {}
                Command::Finish => {
                    if !std::mem::replace(&mut finishing, true) {
                        connection.as_mut().graceful_shutdown();
                    }
                }
                Command::Drop => return Poll::Ready(Ok(())),
            }
            connection.as_mut().poll(cx)
        })
        .await
    }};
}

async fn drive<I>(client: Client, terms: &Terms, io: I)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let client = Rc::new(client);
    let thread = Rc::clone(&client.thread);
    let _registration = thread.timeouts.register(Rc::clone(&client) as Rc<dyn Expire>);
    let service = {
        let client = Rc::clone(&client);
        service_fn(move |request| proxy::handle(Rc::clone(&client), request))
    };
    let max_head = terms.max_header_size;
    let ended = if client.http2 {
        let connection = http2::Builder::new(LocalExecutor)
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(PROVOKED_ERRORS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX))
            .serve_connection(io, service);
        until_its_end!(connection, client)
    } else {
        let connection = http1::Builder::new()
            // The sweep watches heads, which costs nothing per request.
            .header_read_timeout(None)
            .max_headers(terms.max_headers)
            .max_header_size(max_head)
            // What hyper reads ahead, and so the largest head that it ever holds; less than 8 KiB it will not take.
            .max_buf_size(max_head.max(8 * 1024))
            .serve_connection(io, service)
            .with_upgrades();
        until_its_end!(connection, client)
    };
    if let Err(e) = ended
        && is_malformed(&e)
    {
        thread.stats().malformed.bump();
    }
}

/// Whether a connection ended because of what its client sent.
fn is_malformed(e: &hyper::Error) -> bool {
    let of_http2 = || {
        e.source().and_then(|e| e.downcast_ref::<h2::Error>()).is_some_and(|e| !e.is_io() && !e.is_remote())
    };
    e.is_parse() || of_http2()
}
