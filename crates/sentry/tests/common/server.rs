//! Servers behind the sentry: well-behaved ones on hyper, and ones that do with a socket what they like.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub type AnyBody = UnsyncBoxBody<Bytes, io::Error>;

/// A server. It dies with its connections when this is dropped.
pub struct Server {
    pub address: SocketAddr,
    /// Connections that it has accepted.
    pub accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its connections are in a set that the task owns.
        self.task.abort();
    }
}

impl Server {
    /// Does this with every connection.
    pub async fn raw<F, R>(on_connection: F) -> Server
    where
        F: Fn(TcpStream) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Server::raw_at("127.0.0.1:0".parse().unwrap(), on_connection).await
    }

    /// The same, at this address.
    pub async fn raw_at<F, R>(address: SocketAddr, on_connection: F) -> Server
    where
        F: Fn(TcpStream) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        // So that a server can come back at once where another has just died.
        socket.set_reuse_address(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(1024).unwrap();
        let listener = TcpListener::from_std(socket.into()).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                connections.spawn(on_connection(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Server { address, accepted, task }
    }

    /// Answers every request with this, by HTTP/1 or HTTP/2 as the client likes.
    pub async fn http<F, R>(answer: F) -> Server
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        Server::http_at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    /// The same, at this address.
    pub async fn http_at<F, R>(address: SocketAddr, answer: F) -> Server
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        Server::raw_at(address, move |stream| serve(TokioIo::new(stream), answer.clone())).await
    }

    /// The same over TLS.
    pub async fn https<F, R>(tls: Arc<tokio_rustls::rustls::ServerConfig>, answer: F) -> Server
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        Server::raw(move |stream| {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(TokioIo::new(stream), answer).await;
                }
            }
        })
        .await
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve<I, F, R>(io: I, answer: F)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(io, service).await;
}

pub fn full(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body whose parts are sent by hand. It ends with the sender; an error breaks it off.
pub fn by_hand() -> (mpsc::Sender<io::Result<Frame<Bytes>>>, AnyBody) {
    let (sender, receiver) = mpsc::channel(16);
    (sender, ByHand(receiver).boxed_unsync())
}

struct ByHand(mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl Body for ByHand {
    type Data = Bytes;
    type Error = io::Error;
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx)
    }
}

/// Answers with what it was asked, as text: the first line, the headers in order, and the body.
pub async fn mirror<B>(request: Request<B>) -> Response<AnyBody>
where
    B: Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let (head, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    let mut lines: Vec<String> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    text.extend(lines);
    let body = body.collect().await.unwrap();
    if let Some(trailers) = body.trailers() {
        text.push_str(&format!("trailers {trailers:?}\n"));
    }
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&body.to_bytes()));
    Response::new(full(text))
}

/// A server that answers when it is let: each permit answers one request. Requests arrive at `arrived` first.
pub struct Held {
    pub server: Server,
    pub permits: Arc<tokio::sync::Semaphore>,
    pub arrived: Arc<AtomicUsize>,
    /// Requests whose client left before they were answered.
    pub dropped: Arc<AtomicUsize>,
}

struct Notice(Option<Arc<AtomicUsize>>);

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some(dropped) = &self.0 {
            dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Held {
    pub async fn start() -> Held {
        let permits = Arc::new(tokio::sync::Semaphore::new(0));
        let (arrived, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (p, a, d) = (Arc::clone(&permits), Arc::clone(&arrived), Arc::clone(&dropped));
        let server = Server::http(move |request: Request<Incoming>| {
            let (permits, dropped) = (Arc::clone(&p), Arc::clone(&d));
            a.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut notice = Notice(Some(dropped));
                let (head, body) = request.into_parts();
                // hyper notices that a client has left only where it has read all that came from it.
                let Ok(body) = body.collect().await else { return Response::new(full("")) };
                permits.acquire().await.unwrap().forget();
                notice.0 = None;
                mirror(Request::from_parts(head, Full::new(body.to_bytes()))).await
            }
        })
        .await;
        Held { server, permits, arrived, dropped }
    }

    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}
