//! A sentry of which only the admin address is there: it counts requests at the rate that a test sets, refuses what its servers
//! cannot do, and remembers what it is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, until};

/// Slots of a server, and what a request takes.
pub const SLOTS: f64 = 4.0;
pub const SERVICE_MS: f64 = 50.0;

pub struct Sentry {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

pub struct State {
    /// Requests a second.
    pub per_s: f64,
    pub busy: f64,
    /// Instead of an answer.
    pub instead: Option<String>,
    /// What it wants to be shown.
    pub token: Option<String>,
    /// Requests that servers have, whether they are in a pool or not.
    pub in_flight: HashMap<String, u32>,
    /// Servers that it finds down.
    pub down: Vec<String>,
    /// By pool, its servers.
    pub servers: HashMap<String, Vec<String>>,
    pub share: (u64, u64),
    /// Every order that it got.
    pub orders: Vec<(String, Value)>,
    pub unauthorized: usize,
    counted: [f64; 2],
    at: Instant,
}

impl State {
    fn count(&mut self) {
        let span_s = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let servers: usize = self.servers.values().map(Vec::len).sum();
        let capacity = servers as f64 * SLOTS * 1e3 / SERVICE_MS;
        self.counted[0] += self.per_s * span_s;
        self.counted[1] += (self.per_s - capacity).max(0.0) * span_s;
    }

    fn report(&self) -> Value {
        let pools = self.servers.iter().map(|(name, servers)| {
            let leaving = self.in_flight.keys().filter(|server| !servers.contains(server));
            let server = |address: &String| {
                let in_flight = self.in_flight.get(address).copied().unwrap_or(0);
                json!({ "address": address, "up": !self.down.contains(address), "in_flight": in_flight })
            };
            let [offered, refused] = self.counted.map(f64::floor);
            json!({
                "name": name, "slots": servers.len() as f64 * SLOTS, "queued": 0,
                "servers": servers.iter().map(server).collect::<Vec<_>>(),
                "leaving": leaving.map(server).collect::<Vec<_>>(),
                "classes": [{ "name": "default", "priority": 5, "revenue": 1.0, "min_rate_per_s": null,
                    "offered": offered, "admitted": offered - refused, "refused": refused, "served": offered - refused,
                    "service_mean_ms": SERVICE_MS, "service_scv": 1.0 }],
            })
        });
        let (part, of) = self.share;
        json!({ "sentry": { "busy": self.busy, "draining": false, "share": { "part": part, "of": of } },
            "pools": pools.collect::<Vec<_>>() })
    }
}

impl Sentry {
    /// With these pools, which have no servers.
    pub fn start(pools: &[&str]) -> Sentry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            per_s: 0.0,
            busy: 0.1,
            instead: None,
            token: None,
            in_flight: HashMap::new(),
            down: Vec::new(),
            servers: pools.iter().map(|pool| ((*pool).to_owned(), Vec::new())).collect(),
            share: (0, 1),
            orders: Vec::new(),
            unauthorized: 0,
            counted: [0.0; 2],
            at: Instant::now(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asks may be killed meanwhile.
                let _ = answer(stream, |method, path, body, authorization| {
                    respond(&mut shared.lock().unwrap(), method, path, body, authorization)
                });
            }
        });
        Sentry { address, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The rate from now on.
    pub fn load(&self, per_s: f64) {
        let mut state = self.state();
        state.count();
        state.per_s = per_s;
    }

    pub fn servers(&self, pool: &str) -> Vec<String> {
        self.state().servers[pool].clone()
    }

    /// Waits until the pool has so many servers.
    pub fn has(&self, pool: &str, servers: usize) -> Vec<String> {
        until(PATIENCE, &format!("{servers} servers in {pool}"), || self.servers(pool).len() == servers);
        self.servers(pool)
    }
}

/// Answers one request by what is made of its method, its path, its body and its authorization.
pub fn answer(
    stream: TcpStream,
    respond: impl FnOnce(&str, &str, &[u8], Option<String>) -> (&'static str, String),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let (mut first, mut length, mut authorization) = (String::new(), 0, None);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        match line.trim().split_once(": ") {
            Some(("content-length", n)) => length = n.parse().unwrap(),
            Some(("authorization", shown)) => authorization = Some(shown.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap_or(""));
    let (status, text) = respond(method, path, &body, authorization);
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    (&stream).write_all((head + &text).as_bytes())
}

fn respond(
    state: &mut State,
    method: &str,
    path: &str,
    body: &[u8],
    authorization: Option<String>,
) -> (&'static str, String) {
    if state.token.as_ref().is_some_and(|token| authorization != Some(format!("Bearer {token}"))) {
        state.unauthorized += 1;
        return ("401 Unauthorized", "show the token".to_owned());
    }
    state.count();
    if method == "GET" && path == "/pools" {
        return ("200 OK", state.instead.clone().unwrap_or_else(|| state.report().to_string()));
    }
    let order: Value = serde_json::from_slice(body).unwrap();
    state.orders.push((path.to_owned(), order.clone()));
    if path == "/share" {
        state.share = (order["part"].as_u64().unwrap(), order["of"].as_u64().unwrap());
    } else {
        let pool = path.strip_prefix("/pools/").and_then(|rest| rest.strip_suffix("/servers")).unwrap();
        let servers: Vec<String> = serde_json::from_value(order["servers"].clone()).unwrap();
        assert!(!servers.is_empty(), "a pool is never left without servers");
        state.servers.insert(pool.to_owned(), servers);
    }
    ("200 OK", "{}".to_owned())
}
