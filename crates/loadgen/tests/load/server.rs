//! Servers to send load to, and plans to send it with.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{self, Mix};
use plimsoll_loadgen::{HttpVersion, Plan, Report, Spacing, run};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub type Body = BoxBody<Bytes, Infallible>;

/// Serves HTTP/1.1 and h2c. The test's runtime drives it and ends it.
pub async fn serve<H, F>(handler: H) -> SocketAddr
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<Body>, std::io::Error>> + Send + 'static,
{
    accept(move |stream| answer(stream, handler.clone())).await
}

/// The same with a certificate that nobody has signed.
pub async fn serve_tls<H, F>(handler: H) -> SocketAddr
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<Body>, std::io::Error>> + Send + 'static,
{
    use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    accept(move |stream| {
        let (acceptor, handler) = (acceptor.clone(), handler.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(stream, handler).await;
            }
        }
    })
    .await
}

/// Treats every connection as `on_connection` says.
pub async fn accept<C, F>(on_connection: C) -> SocketAddr
where
    C: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(on_connection(stream));
        }
    });
    address
}

async fn answer<I, H, F>(stream: I, handler: H)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<Body>, std::io::Error>> + Send + 'static,
{
    let server = auto::Builder::new(TokioExecutor::new());
    // How a client leaves is its own matter.
    let _ = server.serve_connection(TokioIo::new(stream), service_fn(handler)).await;
}

/// A whole answer with these headers.
pub fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<Body> {
    with_trailers(status, headers, None)
}

/// A whole answer with these headers and trailers.
pub fn with_trailers(
    status: u16,
    headers: &[(&'static str, &str)],
    trailers: Option<&[(&'static str, &str)]>,
) -> Response<Body> {
    use http_body_util::BodyExt;
    let fields = |fields: &[(&'static str, &str)]| -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let body = Full::new(Bytes::from_static(b"plimsoll"));
    let mut response = Response::new(match trailers.map(fields) {
        Some(trailers) => body.with_trailers(async { Some(Ok(trailers)) }).boxed(),
        None => body.boxed(),
    });
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    *response.headers_mut() = fields(headers);
    response
}

/// A mix of GETs in equal shares, each named after its path.
pub fn mix(paths: &[&str]) -> Mix {
    let requests = paths.iter().map(|path| mix::Request {
        name: (*path).into(),
        method: Method::GET,
        path: path.parse().unwrap(),
        share: 1.0 / paths.len() as f64,
        body: String::new(),
        headers: Vec::new(),
        deadline: None,
    });
    Mix { requests: requests.collect() }
}

/// Evenly spaced load for this many milliseconds.
pub fn plan(address: SocketAddr, mix: Mix, rate: &str, duration_ms: u64) -> Plan {
    let target: Uri = format!("http://{address}").parse().unwrap();
    let duration = Nanos::from_millis(duration_ms);
    Plan {
        spacing: Spacing::Fixed,
        ..Plan::new(target, mix, rate.parse().unwrap(), duration, HttpVersion::Http1)
    }
}

/// Carries the plan out and checks what holds for every report.
pub async fn report(plan: &Plan) -> Report {
    let report = run(plan, |_| ControlFlow::Continue(())).await.unwrap();
    let names: Vec<_> = report.table.requests.iter().map(|(name, _)| name).collect();
    assert_eq!(names, plan.mix.requests.iter().map(|request| &request.name).collect::<Vec<_>>());
    let rows = report.table.requests.iter().map(|(_, figures)| figures);
    for row in rows.clone().chain([&report.table.total]) {
        assert_eq!(row.sent, row.ok + row.rejected + row.refused_other + row.errors);
        assert_eq!(row.errors, row.error_kinds.values().sum::<u64>());
    }
    assert_eq!(report.table.total.sent, rows.map(|row| row.sent).sum::<u64>());
    report
}

/// Fixed spacing sends exactly as many as planned.
pub fn planned(plan: &Plan) -> u64 {
    plan.rate.expected(plan.duration).round() as u64
}
