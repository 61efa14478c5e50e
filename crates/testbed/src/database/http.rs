//! Servers that speak HTTP, as the load and the tasks see them: a request is written as [`HttpCall`] has it, "METHOD PATH BODY".

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use plimsoll_core::config::HttpCall;
use tokio::net::TcpStream;

use super::load::Kind;
use super::request::Outcome;
use super::task::How;
use super::{Client, Database, Session};

/// Longest answer that is read, in bytes.
const LONGEST: usize = 256 << 20;
/// By which search engines tell whose a request is.
const WHOSE: &str = "x-opaque-id";

/// Where one is, and how it speaks of endings.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    /// Where.
    pub address: SocketAddr,
    /// Any of these in an answer says that the server has ended what was asked, because it was told to or by a limit of its own.
    pub ended: &'static [&'static str],
    /// The type of what is sent.
    pub content_type: &'static str,
}

/// Why there is no answer.
#[derive(Debug)]
enum Failure {
    /// Nobody takes connections.
    Unreachable(String),
    /// The connection broke.
    Broken(String),
}

/// What a server answers.
struct Answer {
    status: StatusCode,
    body: Bytes,
}

impl Http {
    /// Asks one thing, on a connection of its own, and returns what the server answers.
    ///
    /// # Errors
    /// Why there is no answer, or what it says where that is an error.
    pub async fn call(&self, call: &HttpCall) -> Result<String, String> {
        let mut connection = Connection::new(*self, "setup");
        let answer = connection.ask(call).await;
        let said = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
        match answer {
            Ok(Answer { status, body }) if status.is_client_error() || status.is_server_error() => {
                Err(format!("{} {}: {status}: {}", call.method, call.path, said(&body)))
            }
            Ok(Answer { body, .. }) => Ok(said(&body)),
            Err(Failure::Unreachable(why) | Failure::Broken(why)) => {
                Err(format!("{} {}: {why}", call.method, call.path))
            }
        }
    }

    fn has_ended(&self, body: &[u8]) -> bool {
        self.ended.iter().any(|word| body.windows(word.len()).any(|part| part == word.as_bytes()))
    }
}

/// A connection that is made when it is needed, and again when the server has closed it: some close each after an answer.
struct Connection {
    server: Http,
    whose: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// The port that it comes from, of the last one.
    port: u16,
}

impl Connection {
    fn new(server: Http, whose: &str) -> Connection {
        Connection { server, whose: whose.to_owned(), sender: None, port: 0 }
    }

    /// One that can be used.
    async fn connect(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Failure> {
        if let Some(sender) = &mut self.sender
            && sender.ready().await.is_err()
        {
            self.sender = None;
        }
        if self.sender.is_none() {
            let unreachable = |e: std::io::Error| Failure::Unreachable(e.to_string());
            let stream = TcpStream::connect(self.server.address).await.map_err(unreachable)?;
            // Not essential: without it a small request may wait for the acknowledgement of the last.
            let _ = stream.set_nodelay(true);
            self.port = stream.local_addr().map_or(0, |address| address.port());
            let handshake = http1::handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|e| Failure::Broken(e.to_string()))?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        Ok(self.sender.as_mut().expect("it was just made"))
    }

    fn request(&self, call: &HttpCall) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder()
            .method(call.method.as_str())
            .uri(call.path.as_str())
            .header(HOST, self.server.address.to_string())
            .header(CONTENT_TYPE, self.server.content_type)
            .header(WHOSE, &self.whose);
        // A call was checked when it was read; what was filled in are numbers.
        request.body(Full::new(Bytes::from(call.body.clone()))).map_err(|e| Failure::Broken(e.to_string()))
    }

    async fn ask(&mut self, call: &HttpCall) -> Result<Answer, Failure> {
        let mut request = self.request(call)?;
        let response = loop {
            let answer = self.connect().await?.try_send_request(request).await;
            match answer {
                Ok(response) => break response,
                Err(mut error) => {
                    self.sender = None;
                    match error.take_message() {
                        // The server had closed an idle connection: none of it was sent.
                        Some(unsent) => request = unsent,
                        None => return Err(Failure::Broken(error.into_error().to_string())),
                    }
                }
            }
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|e| Failure::Broken(e.to_string()))?.to_bytes();
        Ok(Answer { status, body })
    }
}

/// A connection of a load, with what is asked on it.
pub struct Prepared {
    connection: Connection,
    calls: Vec<HttpCall>,
}

/// A connection of a task.
pub struct Steps {
    connection: Connection,
}

impl Database for Http {
    type Client = Prepared;
    type Session = Steps;

    async fn open(&self, kinds: &[Kind]) -> Result<Prepared, String> {
        let calls = kinds.iter().map(|kind| kind.text.parse()).collect::<Result<_, String>>()?;
        Ok(Prepared { connection: Connection::new(*self, "load"), calls })
    }

    async fn begin(&self, task: &str) -> Result<Steps, String> {
        let mut connection = Connection::new(*self, task);
        match connection.connect().await {
            Ok(_) => Ok(Steps { connection }),
            Err(Failure::Unreachable(why) | Failure::Broken(why)) => Err(why),
        }
    }
}

impl Client for Prepared {
    /// It sees to that itself.
    fn is_closed(&self) -> bool {
        false
    }

    async fn ask(&mut self, kind: usize, parameters: &[i64]) -> Outcome {
        // Parameters count from 1 on.
        let mut values = vec![0];
        values.extend_from_slice(parameters);
        let call = self.calls[kind].with(&values);
        match self.connection.ask(&call).await {
            Ok(answer) if self.connection.server.has_ended(&answer.body) => Outcome::Ended,
            Ok(Answer {
                status: StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, ..
            }) => Outcome::Refused,
            Ok(Answer { status, .. }) if status.as_u16() >= 400 => Outcome::Status(status.as_u16()),
            Ok(_) => Outcome::Ok,
            Err(_) => Outcome::Lost,
        }
    }
}

impl Session for Steps {
    /// The port that it comes from: no server of these counts its connections.
    fn id(&self) -> i32 {
        self.connection.port.into()
    }

    async fn run(&mut self, text: &str) -> Result<(), How> {
        let call: HttpCall = text.parse().map_err(How::Failed)?;
        match self.connection.ask(&call).await {
            Ok(answer) if self.connection.server.has_ended(&answer.body) => Err(How::Cancelled),
            Ok(Answer { status, body }) if status.as_u16() >= 400 => {
                let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
                Err(How::Failed(format!("{status}: {said}")))
            }
            Ok(_) => Ok(()),
            // Who worked for it is gone.
            Err(Failure::Broken(_)) => Err(How::Terminated),
            Err(Failure::Unreachable(why)) => Err(How::Failed(why)),
        }
    }

    /// A connection on which nothing is asked may be closed at any time, which means nothing.
    async fn closed(&mut self) -> How {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives these answers, one after the other, each on a connection that it closes then. It returns what it was asked.
    async fn server(answers: Vec<&'static str>) -> (Http, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = Http {
            address: listener.local_addr().unwrap(),
            ended: &["task_cancelled", "\"timed_out\":true"],
            content_type: "application/json",
        };
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    assert!(stream.read_buf(&mut request).await.unwrap() > 0);
                }
                asked.push(String::from_utf8(request).unwrap());
                // Or the client may ask on before it sees that.
                let answer = answer.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        (http, asked)
    }

    fn kinds() -> Vec<Kind> {
        let text = "POST /items/_search?a=?1 {\"from\":?2}".to_owned();
        vec![Kind { text, share: 1.0, parameters: vec![(1, 1), (2, 2)] }]
    }

    #[tokio::test]
    async fn answers_are_what_they_are() {
        let answers = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", Outcome::Ok),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", Outcome::Status(400)),
            ("HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n", Outcome::Refused),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", Outcome::Refused),
            ("HTTP/1.1 500 No\r\ncontent-length: 15\r\n\r\n\"task_cancelled", Outcome::Ended),
            ("HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n\"timed_out\":true", Outcome::Ended),
            ("", Outcome::Lost),
        ];
        let (http, asked) = server(answers.iter().map(|(answer, _)| *answer).collect()).await;
        let mut client = http.open(&kinds()).await.unwrap();
        for (answer, outcome) in answers {
            assert_eq!(client.ask(0, &[7, -8]).await, outcome, "{answer}");
        }
        let asked = asked.await.unwrap();
        assert!(asked[0].starts_with("POST /items/_search?a=7 HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].contains("x-opaque-id: load\r\n") && asked[0].ends_with("{\"from\":-8}"));
        assert_eq!(client.ask(0, &[7, 8]).await, Outcome::Lost, "nobody is there any more");
    }

    #[tokio::test]
    async fn a_task_says_how_it_ended() {
        let answers = vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400 No\r\ncontent-length: 14\r\n\r\ntask_cancelled",
            "HTTP/1.1 404 No\r\ncontent-length: 3\r\n\r\nwhy",
            "",
        ];
        let (http, _asked) = server(answers).await;
        let mut steps = http.begin("report").await.unwrap();
        assert_ne!(steps.id(), 0);
        let ask = "POST /items/_search {}";
        assert_eq!(steps.run(ask).await, Ok(()));
        assert_eq!(steps.run(ask).await, Err(How::Cancelled));
        assert_eq!(steps.run(ask).await, Err(How::Failed("404 Not Found: why".to_owned())));
        assert_eq!(steps.run(ask).await, Err(How::Terminated));
        assert!(
            matches!(steps.run("select 1").await, Err(How::Failed(why)) if why.contains("not a request"))
        );
        let said = http.call(&ask.parse().unwrap()).await.unwrap_err();
        assert!(said.starts_with("POST /items/_search: "), "{said}");
    }
}
