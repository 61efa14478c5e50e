//! The broker's side of the conversation with the shards.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use http::HeaderValue;
use http::header::RETRY_AFTER;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;

use super::gate::REASON;
use super::protocol::{self, SubQuery, decode_words};
use super::store::{Kind, Vertex, shard_of};
use crate::server::{HEADER_TIMEOUT, OnThisThread};

/// Why the shards did not answer.
#[derive(Debug)]
pub enum Failure {
    /// A shard's admission control refused; its reason and how long to wait are passed on.
    Refused(HeaderValue, Option<HeaderValue>),
    /// A shard is gone or talks nonsense.
    Broken(String),
}

/// All shards of a graph, over HTTP/1.1 connections that are kept alive.
pub struct Shards {
    client: Client<HttpConnector, Full<Bytes>>,
    uris: Vec<Uri>,
}

impl Shards {
    /// Shards at these addresses, in the order of their index.
    pub fn new(addrs: &[SocketAddr]) -> Shards {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let uri = |addr: &SocketAddr| {
            let built =
                Uri::builder().scheme("http").authority(addr.to_string()).path_and_query(protocol::PATH);
            built.build().expect("an address and a constant path make a URI")
        };
        // Idle connections go before the shards close them, perhaps just when they are used again.
        let client = Client::builder(OnThisThread).pool_idle_timeout(HEADER_TIMEOUT / 2).build(connector);
        Shards { client, uris: addrs.iter().map(uri).collect() }
    }

    /// Asks the shard that holds `vertex`.
    ///
    /// # Errors
    /// Where that shard refuses or does not answer.
    pub async fn ask_holder(&self, vertex: Vertex, query: SubQuery) -> Result<Vec<u32>, Failure> {
        self.ask(shard_of(vertex, self.uris.len()), query).await
    }

    /// The vertices at the other end of these vertices' edges, of one kind or of any: rising, each once.
    ///
    /// # Errors
    /// Where a shard refuses or does not answer.
    pub async fn neighbours(&self, kind: Option<Kind>, of: &[Vertex]) -> Result<Vec<Vertex>, Failure> {
        let asked = self.split(of).map(|(shard, part)| self.ask(shard, SubQuery::Neighbours(kind, part)));
        let mut found = all(asked).await?.concat();
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The neighbours of two vertices, asked for at the same time.
    ///
    /// # Errors
    /// Where a shard refuses or does not answer.
    pub async fn neighbours_of_both(
        &self,
        a: Vertex,
        b: Vertex,
    ) -> Result<(Vec<Vertex>, Vec<Vertex>), Failure> {
        let (of_a, of_b) = join(self.neighbours(None, &[a]), self.neighbours(None, &[b])).await;
        Ok((of_a?, of_b?))
    }

    /// The vertices with their degrees.
    ///
    /// # Errors
    /// Where a shard refuses or does not answer.
    pub async fn degrees(&self, of: &[Vertex]) -> Result<Vec<(Vertex, u32)>, Failure> {
        let asked = self.split(of).map(|(shard, part)| async move {
            let degrees = self.ask(shard, SubQuery::Degrees(None, part.clone())).await?;
            if degrees.len() != part.len() {
                return Err(Failure::Broken(format!("shard {shard} left out degrees")));
            }
            Ok(part.into_iter().zip(degrees).collect::<Vec<_>>())
        });
        Ok(all(asked).await?.concat())
    }

    /// Vertices by the shard that holds them, shards without any left out.
    fn split(&self, vertices: &[Vertex]) -> impl Iterator<Item = (usize, Vec<Vertex>)> {
        let mut parts = vec![Vec::new(); self.uris.len()];
        for &vertex in vertices {
            parts[shard_of(vertex, self.uris.len())].push(vertex);
        }
        parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty())
    }

    async fn ask(&self, shard: usize, query: SubQuery) -> Result<Vec<u32>, Failure> {
        let broken = |error: &dyn fmt::Display| Failure::Broken(format!("shard {shard}: {error}"));
        let mut request = Request::new(Full::new(query.encode()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uris[shard].clone();
        let answer = self.client.request(request).await.map_err(|error| broken(&error))?;
        let (head, body) = answer.into_parts();
        // Read to the end even where it is of no use, or the connection could not be used again.
        let body = body.collect().await.map_err(|error| broken(&error))?.to_bytes();
        match head.headers.get(REASON) {
            _ if head.status == StatusCode::OK => {
                decode_words(&body).ok_or_else(|| broken(&"the answer is not a whole number of words"))
            }
            Some(reason) => Err(Failure::Refused(reason.clone(), head.headers.get(RETRY_AFTER).cloned())),
            None => Err(broken(&head.status)),
        }
    }
}

/// Every answer, or the first failure. Waits for all of them even then: giving up a request in flight would
/// close its connection.
async fn all<T>(
    asked: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> Result<Vec<T>, Failure> {
    join_all(asked).await.into_iter().collect()
}
