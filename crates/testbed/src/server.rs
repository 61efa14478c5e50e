//! An HTTP/1.1 and h2c server on a thread of its own: the outside of every testbed system.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::LocalRuntime;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::http::Body;

/// Connections that one server holds; further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 16_384;
const BACKLOG: u32 = 4_096;
/// As many as an overload queues: a victim must not hide its queue behind a small number of streams.
const MAX_STREAMS_PER_CONNECTION: u32 = 16_384;
/// How long a connection may take over a request's head; an idle one is closed after as long.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stop waits for answers that are under way.
const DRAIN: Duration = Duration::from_secs(5);

/// What a server does with a request. It runs on the server's one I/O thread and must not block it.
pub trait Handler: 'static {
    /// The answer. Dropped unfinished where the client goes away.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>>;
}

enum End {
    Drain,
    Crash,
}

/// Lets a handler bring its own server down.
pub struct Lifeline(mpsc::Sender<End>);

impl Lifeline {
    /// Closes the listener and every connection at once, answers or none: what a crash looks like from outside.
    pub fn cut(&self) {
        // A full channel means that it is ending already.
        let _ = self.0.try_send(End::Crash);
    }
}

/// A running server. Dropping it cuts it off; [`Server::stop`] lets it finish what it has begun.
pub struct Server {
    addr: SocketAddr,
    end: mpsc::Sender<End>,
    ended: Option<oneshot::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `listen` (port 0: any free one) and serves with the handler that `make` builds on the
    /// server's thread, inside its runtime.
    ///
    /// # Errors
    /// Where the address is taken, a thread cannot start, or `make` fails.
    pub fn start<H: Handler>(
        name: &str,
        listen: SocketAddr,
        make: impl FnOnce(Lifeline) -> io::Result<H> + Send + 'static,
    ) -> io::Result<Server> {
        let (end, ends) = mpsc::channel(1);
        let (ready, is_ready) = std_mpsc::sync_channel(1);
        let (over, ended) = oneshot::channel();
        let lifeline = Lifeline(end.clone());
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            match set_up(listen, lifeline, make) {
                Err(error) => drop(ready.send(Err(error))),
                Ok((runtime, listener, handler)) => {
                    drop(ready.send(listener.local_addr()));
                    runtime.block_on(serve(listener, Rc::new(handler), ends));
                }
            }
            drop(over);
        })?;
        let addr = is_ready.recv().map_err(io::Error::other)??;
        Ok(Server { addr, end, ended: Some(ended), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resolves when the server has ended by itself. Only the first call waits.
    pub async fn ended(&mut self) {
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }

    /// Takes no more connections and returns when those there are have their answers, after five seconds at
    /// most.
    pub fn stop(mut self) {
        self.end(End::Drain);
    }

    fn end(&mut self, how: End) {
        let _ = self.end.try_send(how);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(End::Crash);
    }
}

fn set_up<H: Handler>(
    listen: SocketAddr,
    lifeline: Lifeline,
    make: impl FnOnce(Lifeline) -> io::Result<H>,
) -> io::Result<(LocalRuntime, TcpListener, H)> {
    let runtime = LocalRuntime::new()?;
    let (listener, handler) = runtime.block_on(async { io::Result::Ok((bind(listen)?, make(lifeline)?)) })?;
    Ok((runtime, listener, handler))
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

async fn serve<H: Handler>(listener: TcpListener, handler: Rc<H>, mut ends: mpsc::Receiver<End>) {
    let mut builder = auto::Builder::new(OnThisThread);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS_PER_CONNECTION);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let end = loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            end = ends.recv() => break end,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: give connections time to end.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let handler = handler.clone();
        let service = service_fn(move |request| {
            let handler = handler.clone();
            async move { Ok::<_, Infallible>(handler.handle(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::task::spawn_local(async move {
            let _place = place;
            // A connection that fails is its client's loss.
            let _ = connection.await;
        });
    };
    drop(listener);
    if let Some(End::Drain) = end {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

/// Runs hyper's tasks where the handler lives.
#[derive(Clone, Copy)]
pub(crate) struct OnThisThread;

impl<F: Future + 'static> hyper::rt::Executor<F> for OnThisThread {
    fn execute(&self, future: F) {
        drop(tokio::task::spawn_local(async move { drop(future.await) }));
    }
}
