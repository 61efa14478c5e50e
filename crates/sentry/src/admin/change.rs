//! What can be changed through the admin address: `PUT /pools/NAME/servers`, `PUT /pools/NAME/overload`, `PUT /pools/NAME/slowdown` and
//! `PUT /share`.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use http::header::ORIGIN;
use http::request::Parts;
use plimsoll_core::Nanos;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Admin;
use crate::pool::sheepdog::Workers;
use crate::put::PutError;
use crate::share::Share;

/// Longest body, in bytes: 1,024 servers with the longest names there are.
pub const LONGEST_BODY: usize = 512 * 1024;

/// What can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The servers of this pool.
    Servers(&'a str),
    /// Whether they are said to be late, and nobody in particular is to blame.
    Overload(&'a str),
    /// How their workers fare.
    Slowdown(&'a str),
    /// The sentry's share of all servers.
    Share,
}

/// Why nothing has changed.
pub type Refused = (StatusCode, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Servers {
    servers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overload {
    for_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slowdown {
    for_ms: u64,
    servers: BTreeMap<String, Fares>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fares {
    active: u32,
    slowdown: f64,
}

impl Change<'_> {
    /// What a path changes, if anything.
    pub fn of(path: &str) -> Option<Change<'_>> {
        if path == "/share" {
            return Some(Change::Share);
        }
        let (name, what) = path.strip_prefix("/pools/")?.split_once('/')?;
        match what {
            _ if name.is_empty() => None,
            "servers" => Some(Change::Servers(name)),
            "overload" => Some(Change::Overload(name)),
            "slowdown" => Some(Change::Slowdown(name)),
            _ => None,
        }
    }

    /// Whether whoever sends this request may change something; what it shows has been looked at.
    ///
    /// # Errors
    /// Where it comes from a page in a browser. Its user may reach this address, but a page of somebody else's speaks through
    /// it, and no controller says which page it is.
    pub fn may(request: &Parts) -> Result<(), Refused> {
        if request.headers.contains_key(ORIGIN) {
            return Err((StatusCode::FORBIDDEN, "nothing can be changed from within a browser".to_owned()));
        }
        Ok(())
    }

    /// Changes it to what the body says; returns what it is now.
    ///
    /// # Errors
    /// Where the body does not say it, or it cannot be.
    pub fn make(self, admin: &Admin, body: &Bytes) -> Result<Value, Refused> {
        match self {
            Change::Servers(pool) => {
                let Servers { servers } = read(body, "{\"servers\": [\"127.0.0.1:9001\"]}")?;
                admin.shared.put_servers(pool, &servers).map_err(refused)?;
                Ok(json!({ "pool": pool, "servers": servers.len() }))
            }
            Change::Overload(pool) => {
                let Overload { for_ms } = read(body, "{\"for_ms\": 2000}")?;
                let share = admin.shared.put_overload(pool, Nanos::from_millis(for_ms)).map_err(refused)?;
                Ok(json!({ "pool": pool, "eased_to": share }))
            }
            Change::Slowdown(pool) => {
                let example =
                    r#"{"for_ms": 1000, "servers": {"127.0.0.1:9001": {"active": 16, "slowdown": 3.5}}}"#;
                let Slowdown { for_ms, servers } = read(body, example)?;
                let workers =
                    |fares: Fares| Workers { active: fares.active, slowdown: fares.slowdown.max(1.0) };
                let servers = servers.into_iter().map(|(name, fares)| (name, workers(fares))).collect();
                let holds = Nanos::from_millis(for_ms);
                let slots = admin.shared.put_slowdown(pool, servers, holds).map_err(refused)?;
                Ok(json!({ "pool": pool, "slots": slots }))
            }
            Change::Share => {
                let share: Share = read(body, "{\"part\": 0, \"of\": 2}")?;
                admin.shared.put_share(share);
                Ok(json!({ "part": share.part(), "of": share.of() }))
            }
        }
    }
}

fn refused(error: PutError) -> Refused {
    let status = match error {
        PutError::UnknownPool(_) => StatusCode::NOT_FOUND,
        PutError::Wrong(_) => StatusCode::BAD_REQUEST,
    };
    (status, error.to_string())
}

fn read<T: DeserializeOwned>(body: &Bytes, example: &str) -> Result<T, Refused> {
    serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}; write for example {example}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_four_kinds_of_path_can_be_put() {
        assert_eq!(Change::of("/share"), Some(Change::Share));
        assert_eq!(Change::of("/pools/shop.eu-1/servers"), Some(Change::Servers("shop.eu-1")));
        assert_eq!(Change::of("/pools/shop/overload"), Some(Change::Overload("shop")));
        assert_eq!(Change::of("/pools/shop/slowdown"), Some(Change::Slowdown("shop")));
        for path in
            ["/", "/shares", "/pools", "/pools//servers", "/pools/a/b/servers", "/pools/a", "/poolsservers"]
        {
            assert_eq!(Change::of(path), None, "{path}");
        }
    }
}
