//! The listeners: OTLP over gRPC and over HTTP, each on every address. One thread, one message after the other; what is on its way is
//! bounded before it is read.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use plimsoll_core::config::Secret;
use plimsoll_sentry::admin::auth;
use plimsoll_sentry::clock;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::receiver::{Format, Receiver, Taken};
use super::reply::{self, Body, Code, Problem};

/// Connections at once; whoever comes on top waits. Fleets send through collectors, which are few.
const CONNECTIONS: usize = 512;
/// Messages of the greatest length that may be on their way at once; of shorter ones more.
const LONGEST_AT_ONCE: usize = 8;
/// How long a message may take to arrive, and a head, and the first request that is let in.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a connection may send before it is read, in bytes, and how many calls at once.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
const STREAMS: u32 = 64;
const LONGEST_HEAD: u32 = 16 << 10;

const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const HTTP_PATH: &str = "/v1/traces";
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// What all connections share.
pub struct Endpoint {
    /// Who takes the messages.
    pub receiver: Rc<RefCell<Receiver>>,
    token: Option<Secret>,
    longest: usize,
    /// Kilobytes of messages that may be on their way.
    room: Semaphore,
    places: Arc<Semaphore>,
}

impl Endpoint {
    /// Messages up to `longest` bytes, from whoever shows the token, if there is one.
    pub fn new(receiver: Rc<RefCell<Receiver>>, token: Option<Secret>, longest: usize) -> Endpoint {
        let room = Semaphore::new(kilobytes(longest) as usize * LONGEST_AT_ONCE);
        Endpoint { receiver, token, longest, room, places: Arc::new(Semaphore::new(CONNECTIONS)) }
    }

    /// Serves a listener until the future is dropped.
    pub async fn serve(self: Rc<Endpoint>, listener: TcpListener) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: nothing is gained by asking again at once.
                    log::warn!(error:%; "connection of a sender of spans not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let endpoint = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                let asked = Rc::new(Cell::new(false));
                let of_service = Rc::clone(&asked);
                let service = service_fn(move |request| {
                    let (endpoint, asked) = (Rc::clone(&endpoint), Rc::clone(&of_service));
                    async move { Ok::<_, std::convert::Infallible>(endpoint.answer(request, &asked).await) }
                });
                // Whoever has nothing to ask keeps a place from those who have, and answers to pings all the same.
                let silence = async {
                    sleep(PATIENCE).await;
                    if asked.get() {
                        std::future::pending::<()>().await;
                    }
                };
                let mut server = auto::Builder::new(OnThisThread);
                server
                    .http1()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .max_buf_size(LONGEST_HEAD as usize);
                server
                    .http2()
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_concurrent_streams(STREAMS)
                    .max_header_list_size(LONGEST_HEAD)
                    // A peer that is gone without a word gives its place back.
                    .keep_alive_interval(Duration::from_secs(60))
                    .keep_alive_timeout(PATIENCE);
                // Errors are those of one sender, who knows.
                tokio::select! {
                    _ = server.serve_connection(TokioIo::new(stream), service) => {}
                    () = silence => {}
                }
                drop(place);
            });
        }
    }

    /// Notes in `asked` that something was asked by somebody who is let in.
    async fn answer(&self, request: Request<Incoming>, asked: &Cell<bool>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
        let is = |name: &str| {
            kind.split(|&byte| byte == b';')
                .next()
                .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
        };
        if kind.starts_with(b"application/grpc") {
            return reply::grpc(self.grpc(&head, body, asked).await);
        }
        let format = if is("application/json") { Format::Json } else { Format::Protobuf };
        let is_known = format == Format::Json || is("application/x-protobuf") || is("application/protobuf");
        reply::http(format, self.http(&head, format, is_known, body, asked).await)
    }

    async fn http(
        &self,
        head: &Parts,
        format: Format,
        is_known: bool,
        body: Incoming,
        asked: &Cell<bool>,
    ) -> Result<Taken, Problem> {
        if head.uri.path() != HTTP_PATH {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                Code::Unimplemented,
                format!("there is {HTTP_PATH} alone: traces are learnt from, nothing else"),
            ));
        }
        if head.method != Method::POST {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, "only POST"));
        }
        self.is_let_in(head)?;
        asked.set(true);
        if !is_known {
            let words = "content-type is neither application/x-protobuf nor application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, words));
        }
        let is_packed = is_packed(head, &CONTENT_ENCODING)?;
        let message = self.read(body, 0).await?;
        Ok(self.receiver.borrow_mut().take(clock::now(), format, is_packed, &message)?)
    }

    /// One message in, one out, each behind five bytes.
    async fn grpc(&self, head: &Parts, body: Incoming, asked: &Cell<bool>) -> Result<Taken, Problem> {
        let wrong = |words: &str| Problem::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, words);
        if head.uri.path() != GRPC_PATH {
            let words = format!("there is {GRPC_PATH} alone: traces are learnt from, nothing else");
            return Err(Problem::new(StatusCode::NOT_FOUND, Code::Unimplemented, words));
        }
        self.is_let_in(head)?;
        asked.set(true);
        let can_be_packed = is_packed(head, &GRPC_ENCODING)?;
        let mut frame = self.read(body, FRAME).await?;
        if frame.len() < FRAME {
            return Err(wrong("there is no message"));
        }
        let (flag, length) = (frame.get_u8(), frame.get_u32());
        if frame.len() as u64 != u64::from(length) || flag > 1 || flag == 1 && !can_be_packed {
            return Err(wrong("it is not one message of the length and the encoding that is said"));
        }
        Ok(self.receiver.borrow_mut().take(clock::now(), Format::Protobuf, flag == 1, &frame)?)
    }

    fn is_let_in(&self, head: &Parts) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !auth::shows(token.reveal(), head) => {
                let words = "show the token of [controller.telemetry] in `authorization: Bearer`";
                Err(Problem::new(StatusCode::UNAUTHORIZED, Code::Unauthenticated, words))
            }
            _ => Ok(()),
        }
    }

    /// The whole body, and `more` bytes than a message may have.
    async fn read(&self, body: Incoming, more: usize) -> Result<Bytes, Problem> {
        let longest = self.longest + more;
        let announced = body.size_hint().exact().unwrap_or(longest as u64);
        if announced > longest as u64 {
            return Err(Problem::too_long(self.longest));
        }
        // Whoever gets no room is not read, and so sends no more than the window.
        let room = self.room.acquire_many(kilobytes(announced as usize).min(kilobytes(self.longest))).await;
        let read = timeout(PATIENCE, Limited::new(body, longest).collect()).await;
        drop(room);
        match read {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::too_long(self.longest)),
            Ok(Err(error)) => Err(broken(&*error)),
            Err(_) => {
                let words = format!("it did not arrive within {} s", PATIENCE.as_secs());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, words))
            }
        }
    }
}

/// Bytes before a message of gRPC.
const FRAME: usize = 5;

fn broken(error: &(dyn Error + 'static)) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, error.to_string())
}

/// Whether the message may be packed by gzip, the only way that is taken.
fn is_packed(head: &Parts, header: &HeaderName) -> Result<bool, Problem> {
    match head.headers.get(header).map_or(&b"identity"[..], |value| value.as_bytes()) {
        b"" | b"identity" => Ok(false),
        b"gzip" => Ok(true),
        _ => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::Unimplemented,
            format!("{header} is neither gzip nor identity"),
        )),
    }
}

fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// Runs hyper's tasks on the thread that they come from.
#[derive(Clone, Copy)]
struct OnThisThread;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for OnThisThread {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_ratecontrol::paths::{Learner, Limits};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::LocalSet;
    use tokio::time::Instant;

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    const ASKS: &[u8] = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    const ASKS_IN_VAIN: &[u8] = b"POST /v1/metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";

    /// Time goes on by itself while all wait.
    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_gives_its_place_back() {
        let work = async {
            let learner = Learner::new(Limits::default(), &[], 1);
            let receiver = Rc::new(RefCell::new(Receiver::new(learner, 1 << 20)));
            let mut endpoint = Endpoint::new(receiver, None, 1 << 20);
            endpoint.places = Arc::new(Semaphore::new(3));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::task::spawn_local(Rc::new(endpoint).serve(listener));
            let mut silent = Vec::new();
            for says in [&b""[..], PREFACE, ASKS_IN_VAIN] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(says).await.unwrap();
                silent.push(stream);
            }
            let began = Instant::now();
            let mut sender = TcpStream::connect(address).await.unwrap();
            sender.write_all(ASKS).await.unwrap();
            let mut answer = [0; 15];
            sender.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
            assert!(began.elapsed() <= 2 * PATIENCE, "{:?}", began.elapsed());
            for mut stream in silent {
                let mut said = Vec::new();
                // Whatever was answered, it ends.
                let _ = stream.read_to_end(&mut said).await;
            }
            assert!(began.elapsed() <= 3 * PATIENCE, "{:?}", began.elapsed());
        };
        LocalSet::new().run_until(work).await;
    }
}
