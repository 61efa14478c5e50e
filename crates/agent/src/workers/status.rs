//! How a server is asked what its workers do.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use plimsoll_core::config::{Database, DatabaseKind};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::fastcgi;
use super::page::Page;

/// How long connecting and an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest page of our module that is read.
const LONGEST: u64 = 8 << 20;

/// What can be read and written.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}
/// A connection, over TCP or a Unix socket.
pub type Stream = Box<dyn Bytes>;

/// Where it is asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// A host and a port, or the path of a socket.
    at: String,
    /// Of php-fpm, where its status page is.
    path: String,
}

impl Target {
    /// As the config has it.
    pub fn of(settings: &Database) -> Target {
        let path = match &settings.kind {
            DatabaseKind::PhpFpm { path } => path.clone(),
            _ => String::new(),
        };
        Target { at: settings.dsn.reveal().to_owned(), path }
    }

    async fn connect(&self) -> Result<Stream, String> {
        let connect = async {
            Ok::<Stream, Error>(match self.at.starts_with('/') {
                true => Box::new(UnixStream::connect(&self.at).await?),
                false => {
                    let stream = TcpStream::connect(&self.at).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
            })
        };
        in_time(connect).await.map_err(|error| format!("cannot reach {}: {error}", self.at))
    }
}

async fn in_time<T>(what: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    timeout(PATIENCE, what)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "it does not answer")))
}

/// A connection over which a kind of server tells what its workers do.
pub trait Status: Sized + 'static {
    /// The kind, as in the config.
    const SOURCE: &'static str;
    /// Whether it knows how many wait now; else only the kernel does.
    const KNOWS_QUEUE: bool;

    /// Connects.
    ///
    /// # Errors
    /// What is wrong and what to do about it, in one line.
    fn connect(target: &Target) -> impl Future<Output = Result<Self, String>>;

    /// Asks.
    ///
    /// # Errors
    /// Likewise.
    fn page(&mut self) -> impl Future<Output = Result<Page, String>>;
}

/// A pool of php-fpm, through its `pm.status_listen`.
pub struct Fpm {
    stream: Stream,
    path: String,
}

impl Status for Fpm {
    const SOURCE: &'static str = "phpfpm";
    /// What it says is up to a second old, and always nothing of a Unix socket.
    const KNOWS_QUEUE: bool = false;

    async fn connect(target: &Target) -> Result<Fpm, String> {
        Ok(Fpm { stream: target.connect().await?, path: target.path.clone() })
    }

    async fn page(&mut self) -> Result<Page, String> {
        let answer = in_time(fastcgi::get(&mut self.stream, &self.path, "full&json")).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            let Fpm { path, .. } = self;
            return Err(format!(
                "there is no status at {path} (it answers {}); write in the pool's configuration: pm.status_path = {path}",
                answer.status
            ));
        }
        Page::read(&answer.body)
    }
}

/// An Apache httpd, through our module: a line is asked, and a line is the answer.
pub struct Httpd(BufReader<Stream>);

impl Status for Httpd {
    const SOURCE: &'static str = "httpd";
    const KNOWS_QUEUE: bool = true;

    async fn connect(target: &Target) -> Result<Httpd, String> {
        Ok(Httpd(BufReader::new(target.connect().await?)))
    }

    async fn page(&mut self) -> Result<Page, String> {
        let mut line = Vec::new();
        let ask = async {
            self.0.write_all(b"status\n").await?;
            (&mut self.0).take(LONGEST).read_until(b'\n', &mut line).await
        };
        in_time(ask).await.map_err(|error| error.to_string())?;
        if line.is_empty() {
            return Err("it has closed the connection; no more than four may ask at once".to_owned());
        }
        Page::read(&line)
    }
}
