//! Asks a broker for its figures.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::runtime::Runtime;

/// An HTTP client that blocks.
pub struct Client {
    runtime: Runtime,
    client: legacy::Client<HttpConnector, Empty<Bytes>>,
}

impl Client {
    /// # Errors
    /// Where the system gives no means to wait for sockets.
    pub fn new() -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Nothing is kept between calls: nobody would notice that the broker closes it.
        let client = legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Ok(Client { runtime, client })
    }

    /// The JSON at a path.
    pub fn get(&self, addr: SocketAddr, path: &str) -> io::Result<Value> {
        let body = self.call(Method::GET, addr, path)?;
        serde_json::from_slice(&body).map_err(io::Error::other)
    }

    /// Deletes what is at a path.
    pub fn delete(&self, addr: SocketAddr, path: &str) -> io::Result<()> {
        self.call(Method::DELETE, addr, path).map(drop)
    }

    fn call(&self, method: Method, addr: SocketAddr, path: &str) -> io::Result<Bytes> {
        let request = Request::builder().method(method).uri(format!("http://{addr}{path}"));
        let request = request.body(Empty::new()).map_err(io::Error::other)?;
        self.runtime.block_on(async {
            let answer = self.client.request(request).await.map_err(io::Error::other)?;
            if !answer.status().is_success() {
                return Err(io::Error::other(format!("{addr}{path} answered {}", answer.status())));
            }
            Ok(answer.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
        })
    }
}
