//! Active health checks: each server of a pool that has a `path` is asked for it, by one thread of the worker.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Uri};

use crate::address::address;
use crate::connections::Connections;
use crate::pool::Pool;
use crate::server::Server;
use crate::state::Shared;
use crate::upload::UploadBody;
use crate::upstream::{self, Need};
use crate::{clock, thread::Thread};

/// How often servers are looked for that have not been there before.
const LOOK: Duration = Duration::from_millis(250);

/// Checks the servers of all pools, those of later configs included, for as long as the worker lives.
pub async fn check_all(thread: Rc<Thread>) {
    let watched = Rc::new(RefCell::new(HashSet::new()));
    loop {
        for pool in &thread.view().routing.pools {
            if pool.config.health.path.is_none() {
                continue;
            }
            for server in pool.servers.all() {
                let id = server.id;
                if watched.borrow_mut().insert(id) {
                    let (shared, pool) = (Arc::clone(&thread.shared), Arc::downgrade(pool));
                    let watched = Rc::clone(&watched);
                    tokio::task::spawn_local(async move {
                        check(shared, pool, server).await;
                        watched.borrow_mut().remove(&id);
                    });
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Checks one server until its pool is no longer configured, or it is no longer in it.
async fn check(shared: Arc<Shared>, pool: Weak<Pool>, server: Arc<Server>) {
    let (mut good, mut bad) = (0, 0);
    loop {
        let Some(pool) = pool.upgrade().filter(|pool| is_current(&shared, pool, &server)) else {
            return;
        };
        let health = &pool.config.health;
        let answer = tokio::time::timeout(health.timeout.into(), ask(&pool, &server)).await;
        if answer.unwrap_or(false) {
            (good, bad) = (good + 1, 0);
        } else {
            (good, bad) = (0, bad + 1);
        }
        if good == health.healthy || bad == health.unhealthy {
            let ill = bad > 0;
            if ill {
                log::warn!(pool = &*pool.config.name, server:% = server.origin; "server fails its health check");
            }
            server.set_ill(ill);
            pool.resize(clock::now());
        }
        let interval = Duration::from(health.interval);
        drop(pool);
        tokio::time::sleep(interval).await;
    }
}

fn is_current(shared: &Shared, pool: &Arc<Pool>, server: &Arc<Server>) -> bool {
    pool.servers.contains(server) && shared.routing().load().pools.iter().any(|p| Arc::ptr_eq(p, pool))
}

/// Whether the server answers with any 2xx. On a connection of its own: what is asked is whether a client could come.
async fn ask(pool: &Pool, server: &Arc<Server>) -> bool {
    let Some(path) = pool.config.health.path.clone() else { return false };
    let mut request = Request::new(UploadBody::empty());
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("plimsoll-health"));
    let fresh = Connections::default();
    let Ok(mut link) = upstream::link(&fresh, pool, server, Need::Exchange { grpc: false }).await else {
        return false;
    };
    address(&mut request, None, server, &link);
    link.send(request).await.is_ok_and(|response| response.status().is_success())
}
