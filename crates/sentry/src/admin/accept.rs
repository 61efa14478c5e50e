//! The little HTTP server of an admin address: HTTP/1.1, few connections, short heads.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Longest head of a request, in bytes; hyper allows no less.
const LONGEST_HEAD: usize = 8 * 1024;
/// How long a head may take, and how long a connection may stay idle.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What connections are held to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; whoever comes on top waits.
    pub connections: usize,
    /// How long one may live: it holds one of few places.
    pub lifetime: Duration,
}

/// Serves this listener until the future is dropped; connections end with the runtime.
pub async fn serve<A, F, B>(listener: TcpListener, limits: Limits, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: nothing is gained by asking again at once.
                log::warn!(error:%; "admin connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(request);
                async { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // Errors are those of one client, who knows.
            let _ = tokio::time::timeout(limits.lifetime, connection).await;
            drop(place);
        });
    }
}
