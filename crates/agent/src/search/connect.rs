//! The connection to a node, and what its errors say.

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
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

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
    /// What a URL says.
    ///
    /// # Errors
    /// What is wrong, without the URL.
    pub fn read(url: &str) -> Result<Target, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(
                "https:// is not supported yet; reach the node over loopback or a tunnel, as in \"http://127.0.0.1:9200\""
                    .to_owned(),
            );
        };
        let rest = rest.trim_end_matches('/');
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
        let address = if after.contains(':') { host.to_owned() } else { format!("{host}:9200") };
        let user = user.map(|user| percent_decode_str(user).decode_utf8()).transpose();
        let user = user.map_err(|_| "the name or the password is no text")?;
        let authorization = user.as_ref().map(|user| {
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(user.as_bytes())));
            let mut value = value.map_err(|_| "the name or the password cannot be sent".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let name = user.as_ref().and_then(|user| user.split_once(':')).map(|(name, _)| name.to_owned());
        Ok(Target { address, authorization: authorization.transpose()?, user: name })
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
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())
        };
        let connected = timeout(PATIENCE, connecting).await;
        let (sender, connection) = connected.map_err(|_| "the node does not answer".to_owned())??;
        // How it ended is told by the questions on it.
        tokio::spawn(connection);
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
        let answer = self.ask(Method::GET, path).await?;
        if !answer.status.is_success() {
            return Err(answer.refusal(&self.target, path));
        }
        answer.read()
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

fn lost(error: &hyper::Error) -> String {
    if error.is_closed() || error.is_canceled() || error.is_incomplete_message() {
        "the node has closed the connection".to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_without_being_told() {
        let target = Target::read("http://plimsoll:p%40ss@127.0.0.1:9201/").unwrap();
        assert_eq!((target.address.as_str(), target.user()), ("127.0.0.1:9201", "plimsoll"));
        let header = target.authorization.unwrap();
        assert_eq!(header, format!("Basic {}", STANDARD.encode(b"plimsoll:p@ss")));
        assert!(header.is_sensitive());
        let target = Target::read("http://[::1]").unwrap();
        assert_eq!((target.address.as_str(), target.user()), ("[::1]:9200", "nobody"));
        for (url, said) in [("https://u:hush@h", "not supported yet"), ("http://hush:%ff@h", "no text")] {
            let error = Target::read(url).err().unwrap();
            assert!(error.contains(said) && !error.contains("hush"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_said_so() {
        let target = Target::read("http://u:hush@127.0.0.1:9").unwrap();
        let error = Connection::open(&target).await.err().unwrap();
        assert!(error.contains("refused") && !error.contains("hush"), "{error}");
    }
}
