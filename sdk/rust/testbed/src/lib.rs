//! A server with a lock, a pool of workers and a cache that requests share, and requests that hog each of them. `plimsoll testbed hogs` runs
//! it, too.
//!
//! It knows no limit to how much may come but that of 512 connections, on purpose.

mod cache;
mod server;
mod shared;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_sdk::App;
use plimsoll_sdk::tower::{Account, http as about};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

/// What it calls itself in its ledger.
pub const APP: &str = "testbed-rust";

const MOST_CONNECTIONS: usize = 512;

/// What kind of a server it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What it takes to bring a page into the cache.
    pub miss: Duration,
    /// Whether it keeps accounts: what they cost is measured against a server that does not.
    pub accounts: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { miss: Duration::from_millis(2), accounts: true }
    }
}

/// Serves until SIGINT or SIGTERM. `ready` is told the address; port 0 takes a free one.
///
/// # Errors
/// Where it cannot listen there.
pub fn run(listen: SocketAddr, settings: Settings, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(listen, settings, ready))
}

async fn serve(listen: SocketAddr, settings: Settings, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    if !settings.accounts {
        return accept(listener, server::Server::new(None, settings.miss), || ready(address)).await;
    }
    let app = App::open(APP);
    if let Some(problem) = app.problem() {
        eprintln!("nobody accounts: {problem}");
    }
    let account = Account::new(app, about::label::<Incoming>, about::answer::<server::Body>)
        .with(about::again::<Incoming>);
    let service = account.layer(server::Server::new(Some(app), settings.miss));
    accept(listener, service, || ready(address)).await?;
    app.close();
    Ok(())
}

/// Accepts connections until it is told to end.
async fn accept<S>(listener: TcpListener, service: S, ready: impl FnOnce()) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = server::Answer, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    ready();
    loop {
        let free = Arc::clone(&connections).acquire_owned();
        let accepted = async { (free.await, listener.accept().await) };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        };
        // Who hung up before it was accepted is nobody's error.
        let Ok((stream, _)) = accepted else { continue };
        let service = service.clone();
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(move |request| service.clone().call(request));
            // Who hangs up meanwhile is nobody's error either; its request is dropped.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
    Ok(())
}
