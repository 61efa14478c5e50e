//! Telling the sentry something of a pool; above all to ease off while objectives are missed and nobody in particular is to blame (ATROPOS,
//! section 3.3): `PUT /pools/NAME/overload`. What is said holds for a moment and is said again, so an agent that stops takes nothing away for long.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// From one time that it is told to the next, and for how long that holds.
const AGAIN: Nanos = Nanos::from_secs(1);
const HOLDS_MS: u32 = 2_000;
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A sentry's admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentry {
    admin: SocketAddr,
    token: Option<Secret>,
    pool: String,
    told: Option<Nanos>,
}

impl Sentry {
    /// The one at this address.
    pub fn new(admin: SocketAddr, token: Option<Secret>) -> Sentry {
        Sentry { admin, token, pool: String::new(), told: None }
    }

    /// The same, for one of its pools.
    pub fn of_pool(&self, pool: &str) -> Option<Sentry> {
        Some(Sentry { pool: pool.to_owned(), ..self.clone() })
    }

    /// Tells it, if it was not told a moment ago. Nothing waits for the answer.
    pub fn ease(&mut self, now: Nanos) {
        if self.told.is_some_and(|told| now.since(told) < AGAIN) {
            return;
        }
        self.told = Some(now);
        let sentry = self.clone();
        tokio::task::spawn_local(async move {
            if let Err(why) = sentry.put("overload", &format!("{{\"for_ms\": {HOLDS_MS}}}")).await {
                log::warn!(pool:% = sentry.pool, sentry:% = sentry.admin, why:%; "the sentry does not ease off");
            }
        });
    }

    /// The pool of its that this is about.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Puts something of the pool: `PUT /pools/NAME/WHAT`.
    ///
    /// # Errors
    /// Where it cannot be reached within a second, or says no; in words for the operator.
    pub async fn put(&self, what: &str, body: &str) -> Result<(), String> {
        match timeout(PATIENCE, self.answer(what, body)).await {
            Ok(Ok(status)) if status.contains(" 200 ") => Ok(()),
            Ok(Ok(status)) => Err(format!("it says {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }

    /// The first line of what it answers.
    async fn answer(&self, what: &str, body: &str) -> io::Result<String> {
        let Sentry { admin, token, pool, .. } = self;
        let token = token.as_ref().map(|token| format!("authorization: Bearer {}\r\n", token.reveal()));
        let request = format!(
            "PUT /pools/{pool}/{what} HTTP/1.1\r\nhost: {admin}\r\n{}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            token.unwrap_or_default(),
            body.len()
        );
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(4_096).read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test]
    async fn it_is_told_and_not_all_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sentry = Sentry::new(listener.local_addr().unwrap(), None).of_pool("shop").unwrap();
        LocalSet::new()
            .run_until(async move {
                for ms in [0, 500, 999, 1_000] {
                    sentry.ease(Nanos::from_secs(5) + Nanos::from_millis(ms));
                }
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut request = [0; 1_024];
                    let read = stream.read(&mut request).await.unwrap();
                    let request = String::from_utf8_lossy(&request[..read]).into_owned();
                    assert!(request.starts_with("PUT /pools/shop/overload HTTP/1.1\r\n"), "{request}");
                    assert!(request.ends_with("\r\n\r\n{\"for_ms\": 2000}"), "{request}");
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                }
            })
            .await;
    }
}
