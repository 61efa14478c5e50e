//! A sentry in this process, before a node.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use plimsoll_core::config::{Config, parse};
use plimsoll_sentry::admin::{self, Admin};
use plimsoll_sentry::reload::Reloads;
use plimsoll_sentry::state::Shared;
use plimsoll_sentry::worker::{self, WorkerSetup};
use tokio::task::{AbortHandle, spawn_local};

/// One that runs until it is dropped.
pub struct Front {
    /// Where it takes requests.
    pub address: SocketAddr,
    config: String,
    shared: Arc<Shared>,
    admin: AbortHandle,
    worker: Option<JoinHandle<Result<(), String>>>,
}

impl Front {
    /// Before this server, with what else the pool is told. To be called within a [`tokio::task::LocalSet`].
    pub fn before(server: SocketAddr, pool: &str) -> Front {
        let [listener, tells] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let config = format!(
            "[sentry]\nadmin = \"{}\"\n[pool.front]\nservers = [\"{server}\"]\n{pool}\n[class.default]\n",
            tells.local_addr().unwrap()
        );
        let parsed = parse::<Config>(&config, "").unwrap_or_else(|e| panic!("{e}")).0;
        let shared = Arc::new(Shared::new(parsed, 1, None).unwrap());
        tells.set_nonblocking(true).unwrap();
        let tells = tokio::net::TcpListener::from_std(tells).unwrap();
        let told = Admin::new(Arc::clone(&shared), Arc::new(Reloads::default()), 0, true);
        let admin = spawn_local(admin::serve(tells, Arc::new(told))).abort_handle();
        let of_worker = Arc::clone(&shared);
        let worker = thread::spawn(move || {
            let listeners = vec![vec![listener]];
            worker::run(WorkerSetup { listeners, shared: of_worker, seed: 1, ready: Box::new(|| {}) })
        });
        Front { address, config, shared, admin, worker: Some(worker) }
    }

    /// Its config, for who watches the server and is to ask it, too.
    pub fn config(&self) -> &str {
        &self.config
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.admin.abort();
        self.shared.begin_drain();
        if let Some(worker) = self.worker.take().filter(|_| !thread::panicking()) {
            worker.join().unwrap().unwrap();
        }
    }
}
