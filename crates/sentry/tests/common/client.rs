//! Clients in front of the sentry: hyper's, and plain sockets for what hyper would not send.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::server::{AnyBody, full};
use super::soon;

pub async fn http1(address: SocketAddr) -> http1::SendRequest<AnyBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub async fn http2(address: SocketAddr) -> http2::SendRequest<AnyBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A GET by HTTP/1 on a connection of its own: the status and the text.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = request("GET", path, "");
    let response = soon(http1(address).await.send_request(request)).await.unwrap();
    (response.status().as_u16(), text(response).await)
}

pub fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<AnyBody> {
    Request::builder().method(method).uri(path).header("host", "shop.example").body(full(body)).unwrap()
}

pub async fn text(response: Response<Incoming>) -> String {
    let body = soon(response.into_body().collect()).await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// Sends these bytes and reads until the other end closes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_all(&mut stream).await
}

/// Reads until the other end closes, or resets.
pub async fn read_all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = soon(stream.read_to_end(&mut all)).await;
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads one HTTP/1 response with a `content-length`: its head and its body.
pub async fn read_response(stream: &mut TcpStream) -> (String, String) {
    let mut all = Vec::new();
    loop {
        if let Some(end) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            let length = length.unwrap_or(0);
            if all.len() >= end + 4 + length {
                assert_eq!(all.len(), end + 4 + length, "nothing follows the response: {head}");
                return (head, String::from_utf8_lossy(&all[end + 4..]).into_owned());
            }
        }
        let mut part = [0; 4096];
        let n = soon(stream.read(&mut part)).await.unwrap();
        assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&part[..n]);
    }
}

/// A certificate for localhost and 127.0.0.1, and what trusts it.
pub struct Identity {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Identity {
    pub fn new() -> Identity {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        Identity { cert_pem: cert.pem(), key_pem: signing_key.serialize_pem() }
    }

    pub fn server(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let chain = vec![CertificateDer::from_pem_slice(self.cert_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    pub async fn connect(
        &self,
        address: SocketAddr,
        alpn: &[&str],
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.cert_pem.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}
