//! Sentries in front of services within the fleet, which tell a controller how long their queues are.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::processes::{Process, configure, free_addresses, get, post, ready, role, said};

/// Puts a sentry of its own before a service of a shop, with its config and log in this directory. Where its admin is.
///
/// # Errors
/// What did not start, with the last lines of its log; that the shop does not answer, or has no such service.
pub async fn stand_before(
    service: &str,
    shop: SocketAddr,
    directory: &Path,
) -> Result<(Process, SocketAddr), String> {
    let failed = |e: std::io::Error| format!("the shop: {service}: {e}");
    let path = format!("/services/{service}");
    let of = get(shop, &path).await.map_err(failed)?;
    let of: Value = serde_json::from_str(&of).map_err(|e| format!("the shop: {path}: {e}"))?;
    let [listen, admin] = free_addresses()?;
    // It hands on as much as the workers do at once, so whoever waits does so here. Nobody is refused: that is for the entry to do.
    let config = format!(
        "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nthreads = 1\ndrain_timeout = \"1s\"\n\
         [pool.{service}]\nservers = {}\nworkers = {}\nadmission = {{ policy = \"none\" }}\nmax_queue = 100000\n",
        of["instances"], of["workers"],
    );
    std::fs::create_dir(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
    configure(directory, &config)?;
    let sentry = role(directory, "sentry", &[])?;
    ready(admin).await.map_err(|error| error + &said(directory, "sentry"))?;
    post(shop, &format!("{path}?front={listen}")).await.map_err(failed)?;
    Ok((sentry, admin))
}
