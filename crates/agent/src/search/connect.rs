//! The connection to a node, and what its errors say.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use plimsoll_core::config::Secret;
use plimsoll_sentry::tls;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(6);
/// Longest answer that is read, in bytes: tens of thousands of tasks fit.
const LONGEST: usize = 32 << 20;

/// Where a node is and who asks.
#[derive(Clone)]
pub struct Target {
    /// Host and port.
    address: String,
    /// What it is told of us.
    authorization: Option<HeaderValue>,
    /// Our name there.
    user: Option<String>,
    /// How it proves who it is, and as whom.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// What became of a question.
#[derive(Debug)]
pub struct Answer {
    /// What sort of answer it is.
    pub status: StatusCode,
    body: Bytes,
}

/// A connection to a node.
pub struct Connection {
    target: Target,
    sender: SendRequest<Full<Bytes>>,
}

impl Target {
    /// What a URL says, with the port if it has none; over TLS, a node is held to these certificates (PEM), or to those that the system trusts.
    ///
    /// # Errors
    /// What is wrong, without the URL.
    pub fn read(url: &str, port: u16, ca: Option<&[u8]>) -> Result<Target, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let rest = rest.trim_end_matches('/');
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
        let address = if after.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        let user = user.map(|user| percent_decode_str(user).decode_utf8()).transpose();
        let user = user.map_err(|_| "the name or the password is no text")?;
        let authorization = user.as_ref().map(|user| {
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(user.as_bytes())));
            let mut value = value.map_err(|_| "the name or the password cannot be sent".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let name = user.as_ref().and_then(|user| user.split_once(':')).map(|(name, _)| name.to_owned());
        let tls = match scheme {
            "https" => {
                let host = address.rsplit_once(':').map_or("", |(host, _)| host);
                let host = host.trim_matches(['[', ']']).to_owned();
                let server = ServerName::try_from(host).map_err(|_| "it names no host that TLS knows")?;
                Some((TlsConnector::from(tls::client(ca)?), server))
            }
            _ => None,
        };
        Ok(Target { address, authorization: authorization.transpose()?, user: name, tls })
    }

    /// A sentry's admin address, with the token that has to be shown there.
    ///
    /// # Errors
    /// Where the token cannot be sent.
    pub fn sentry(admin: SocketAddr, token: Option<&Secret>) -> Result<Target, String> {
        let shown = token.map(|token| {
            let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
            let mut value = value.map_err(|_| "the sentry's `admin_token` cannot be sent".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Target { address: admin.to_string(), authorization: shown.transpose()?, user: None, tls: None })
    }

    /// Where it is, as it may be told.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Our name there, as people are told it.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("nobody")
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// What is wrong, in one line and without secrets.
    pub async fn open(target: &Target) -> Result<Connection, String> {
        let connecting = async {
            let stream = TcpStream::connect(&target.address).await.map_err(|e| e.to_string())?;
            // Not essential.
            let _ = stream.set_nodelay(true);
            match &target.tls {
                None => speak(stream).await,
                Some((tls, name)) => {
                    let stream = tls.connect(name.clone(), stream).await;
                    speak(stream.map_err(|e| format!("no TLS with the node: {e}; see tls_ca"))?).await
                }
            }
        };
        let connected = timeout(PATIENCE, connecting).await;
        let sender = connected.map_err(|_| "the node does not answer".to_owned())??;
        Ok(Connection { target: target.clone(), sender })
    }

    /// Asks, whatever the answer.
    ///
    /// # Errors
    /// Where there is none.
    pub async fn ask(&mut self, method: Method, path: &str) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.target.address)
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.target.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(|e| e.to_string())?;
        let exchange = async {
            self.sender.ready().await.map_err(|e| lost(&e))?;
            let response = self.sender.send_request(request).await.map_err(|e| lost(&e))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            let body = body.map_err(|e| format!("the node's answer breaks off: {e}"))?.to_bytes();
            Ok(Answer { status, body })
        };
        let silence = || format!("the node has not answered for {} s", PATIENCE.as_secs());
        timeout(PATIENCE, exchange).await.map_err(|_| silence())?
    }

    /// Asks for something that is to be there.
    ///
    /// # Errors
    /// What is wrong and what to do about it, in one line and without secrets.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, String> {
        self.ask(Method::GET, path).await?.accepted(&self.target, path)
    }
}

impl Answer {
    /// What it holds.
    ///
    /// # Errors
    /// Where it is not what was asked for.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        // What the error says may quote the answer.
        serde_json::from_slice(&self.body).map_err(|e| {
            format!(
                "the node gave an answer that makes no sense, at byte {} of {}",
                e.column(),
                self.body.len()
            )
        })
    }

    /// What it holds, where it is no refusal.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub fn accepted<T: DeserializeOwned>(&self, target: &Target, path: &str) -> Result<T, String> {
        if self.status.is_success() { self.read() } else { Err(self.refusal(target, path)) }
    }

    /// In words, where it is a refusal.
    pub fn refusal(&self, target: &Target, path: &str) -> String {
        let path = path.split('?').next().unwrap_or(path);
        let user = target.user();
        match self.status {
            StatusCode::UNAUTHORIZED => format!(
                "the node does not take {user} and that password; write url = \"http://NAME:PASSWORD@HOST\""
            ),
            StatusCode::FORBIDDEN => {
                format!("user {user} may not ask for {path}; the docs say which rights it needs")
            }
            status => {
                let said: Value = self.read().unwrap_or_default();
                // Reasons may hold what users have asked for; types never do.
                let kind = said["error"]["type"].as_str().unwrap_or("no reason");
                format!(
                    "the node says {} to {path}: {}",
                    status.as_u16(),
                    kind.replace(char::is_control, " ")
                )
            }
        }
    }
}

async fn speak<I>(stream: I) -> Result<SendRequest<Full<Bytes>>, String>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // How it ended is told by the questions on it.
    tokio::spawn(connection);
    Ok(sender)
}

fn lost(error: &hyper::Error) -> String {
    if error.is_closed() || error.is_canceled() || error.is_incomplete_message() {
        "the node has closed the connection".to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;

    #[test]
    fn a_url_is_read_without_being_told() {
        let target = Target::read("http://plimsoll:p%40ss@127.0.0.1:9201/", 9_200, None).unwrap();
        assert_eq!((target.address.as_str(), target.user()), ("127.0.0.1:9201", "plimsoll"));
        let header = target.authorization.unwrap();
        assert_eq!(header, format!("Basic {}", STANDARD.encode(b"plimsoll:p@ss")));
        assert!(header.is_sensitive() && target.tls.is_none());
        let target = Target::read("http://[::1]", 9_200, None).unwrap();
        assert_eq!((target.address.as_str(), target.user()), ("[::1]:9200", "nobody"));
        for (url, ca, said) in [
            ("http://hush:%ff@h", None, "no text"),
            ("https://u:hush@h", Some("hush"), "tls_ca: no certificate"),
        ] {
            let error = Target::read(url, 9_200, ca.map(str::as_bytes)).err().unwrap();
            assert!(error.contains(said) && !error.contains("hush"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_said_so() {
        let target = Target::read("http://u:hush@127.0.0.1:9", 9_200, None).unwrap();
        let error = Connection::open(&target).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }

    #[tokio::test]
    async fn over_tls_a_node_has_to_prove_who_it_is() {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://u:hush@{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_buf(&mut asked).await.unwrap();
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").await.unwrap();
            }
        });
        let target = Target::read(&url, 9_200, Some(own.cert.pem().as_bytes())).unwrap();
        assert_eq!(Connection::open(&target).await.unwrap().get::<u8>("/").await, Ok(7));
        let target = Target::read(&url, 9_200, Some(other.cert.pem().as_bytes())).unwrap();
        let error = Connection::open(&target).await.err().unwrap();
        assert!(error.contains("no TLS with the node") && error.contains("tls_ca"), "{error}");
    }
}
