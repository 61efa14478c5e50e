//! The sentries: reads them, and tells them which servers they have and which share of them is theirs.
//!
//! They are told everything again at every look, so that one that began anew is made right.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use plimsoll_core::Nanos;
use plimsoll_core::config::{Secret, Server};
use plimsoll_sentry::share::Share;
use serde_json::json;

use crate::ask::ask;
use crate::measure::{Meter, Rates};
use crate::reading::{self, Reading};

/// How long a sentry may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// One that has not answered for so long is left out: it holds no share, and what it knows is not waited for.
const SILENT: Nanos = Nanos::from_secs(30);
/// How long all sentries must hold a server to be down until it is.
const DOWN: Nanos = Nanos::from_secs(30);

/// One sentry.
pub struct Sentry {
    /// Its admin address.
    pub address: SocketAddr,
    /// What it said at the last look, if it did.
    pub reading: Option<Reading>,
    /// What was wrong with it at the last look.
    pub trouble: Option<String>,
    /// When it answered last; at first, when it was first looked at.
    answered: Nanos,
    /// Whether it was on its way out when it answered last.
    draining: bool,
    /// One a pool.
    meters: Vec<Meter>,
    /// By pool, the servers that it may have: those that it was told last and those that it confirmed last.
    told: Vec<HashSet<Server>>,
    /// Servers that were taken from it since the last look, which may still hold requests.
    taken: HashSet<Server>,
}

impl Sentry {
    fn is_living(&self, now: Nanos) -> bool {
        now.since(self.answered) < SILENT
    }

    fn is_serving(&self, now: Nanos) -> bool {
        self.is_living(now) && !self.draining
    }

    fn in_use(&self) -> impl Iterator<Item = &Server> {
        let pools = self.reading.iter().flat_map(|reading| &reading.pools);
        let listed = pools.flat_map(|pool| pool.servers.iter().chain(&pool.leaving));
        let serving = listed.filter(|server| server.in_flight != Some(0)).map(|server| &server.server);
        self.told.iter().flatten().chain(&self.taken).chain(serving)
    }
}

/// All of them.
pub struct Sentries {
    token: Option<Secret>,
    /// The names of the pools, in the order of the config.
    pools: Vec<String>,
    sentries: Vec<Sentry>,
    /// Servers that sentries used which are on their way out, and may use still.
    departed: HashSet<Server>,
    down_since: HashMap<Server, Nanos>,
    /// Values that were left out because they cannot be.
    pub nonsense: u64,
    /// Looks and orders that failed.
    pub failures: u64,
}

impl Sentries {
    /// Sentries that are shown this token, with these pools.
    pub fn new(token: Option<Secret>, pools: Vec<String>) -> Sentries {
        Sentries {
            token,
            pools,
            sentries: Vec::new(),
            departed: HashSet::new(),
            down_since: HashMap::new(),
            nonsense: 0,
            failures: 0,
        }
    }

    /// From now on it is these.
    pub fn follow(&mut self, addresses: &[SocketAddr], now: Nanos) {
        for gone in self.sentries.extract_if(.., |sentry| !addresses.contains(&sentry.address)) {
            self.departed.extend(gone.in_use().cloned());
        }
        for &address in addresses {
            if self.sentries.iter().all(|sentry| sentry.address != address) {
                self.sentries.push(Sentry {
                    address,
                    reading: None,
                    trouble: None,
                    answered: now,
                    draining: false,
                    meters: self.pools.iter().map(|_| Meter::default()).collect(),
                    told: vec![HashSet::new(); self.pools.len()],
                    taken: HashSet::new(),
                });
            }
        }
        self.sentries.sort_by_key(|sentry| addresses.iter().position(|&address| address == sentry.address));
    }

    /// Whoever is not among them any more has ended.
    pub fn forget_departed(&mut self) {
        self.departed.clear();
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Sentry> {
        self.sentries.iter()
    }

    /// How busy each of those is that answer and are not on their way out; a sentry that does not say is not.
    pub fn busy(&self) -> Vec<f64> {
        let readings = self.sentries.iter().filter_map(|sentry| sentry.reading.as_ref());
        readings.filter(|reading| !reading.draining).map(|reading| reading.busy.unwrap_or(0.0)).collect()
    }

    /// Looks at all of them. By pool, what each saw; nothing for a pool where one that lives did not say.
    pub async fn look(&mut self, now: Nanos) -> Vec<Option<Vec<Vec<Rates>>>> {
        let token = self.token.as_ref();
        let answers = join_all(self.sentries.iter().map(|sentry| read(sentry.address, token))).await;
        let mut rates: Vec<Option<Vec<Vec<Rates>>>> = vec![Some(Vec::new()); self.pools.len()];
        for (sentry, answer) in self.sentries.iter_mut().zip(answers) {
            sentry.trouble = answer.as_ref().err().cloned();
            sentry.reading = answer.ok();
            match (&sentry.reading, &sentry.trouble) {
                (Some(reading), _) => {
                    sentry.answered = now;
                    sentry.draining = reading.draining;
                    sentry.taken.clear();
                    self.nonsense += reading.nonsense;
                    if reading.nonsense > 0 {
                        log::warn!(sentry:% = sentry.address, values = reading.nonsense; "nonsense ignored");
                    }
                }
                (None, trouble) => {
                    self.failures += 1;
                    log::warn!(sentry:% = sentry.address, error = trouble.as_deref(); "sentry does not answer");
                }
            }
            let is_living = sentry.is_living(now);
            for ((name, rates), meter) in self.pools.iter().zip(&mut rates).zip(&mut sentry.meters) {
                let pool =
                    sentry.reading.iter().flat_map(|reading| &reading.pools).find(|pool| pool.name == *name);
                match (pool.and_then(|pool| meter.rates(now, pool)), rates.as_mut()) {
                    (Some(seen), Some(all)) => all.push(seen),
                    (None, _) if is_living => *rates = None,
                    _ => {}
                }
            }
        }
        self.notice_down(now);
        // Nobody at all is not the same as nothing that arrives.
        rates.into_iter().map(|rates| rates.filter(|all| !all.is_empty())).collect()
    }

    fn notice_down(&mut self, now: Nanos) {
        let mut seen: HashMap<&Server, bool> = HashMap::new();
        let readings = self.sentries.iter().filter_map(|sentry| sentry.reading.as_ref());
        for server in readings.flat_map(|reading| &reading.pools).flat_map(|pool| &pool.servers) {
            *seen.entry(&server.server).or_default() |= server.up;
        }
        let down: HashSet<Server> =
            seen.into_iter().filter(|(_, up)| !up).map(|(server, _)| server.clone()).collect();
        self.down_since.retain(|server, _| down.contains(server));
        down.into_iter().for_each(|server| {
            self.down_since.entry(server).or_insert(now);
        });
    }

    /// Servers that all have held to be down for a while.
    pub fn down(&self, now: Nanos) -> HashSet<Server> {
        let long = self.down_since.iter().filter(|(_, since)| now.since(**since) >= DOWN);
        long.map(|(server, _)| server.clone()).collect()
    }

    /// Servers where a request is, or might be sent, by a sentry that lives or is on its way out.
    pub fn in_use(&self, now: Nanos) -> HashSet<Server> {
        let living = self.sentries.iter().filter(|sentry| sentry.is_living(now));
        living.flat_map(Sentry::in_use).chain(&self.departed).cloned().collect()
    }

    /// Requests that one server of this pool works on at once, by all sentries together, where they say so.
    pub fn slots_each(&self, pool: usize) -> Option<u32> {
        let (mut slots, mut servers) = (0, HashSet::new());
        for sentry in &self.sentries {
            let pools = sentry.reading.iter().flat_map(|reading| &reading.pools);
            for reading in pools.filter(|reading| reading.name == self.pools[pool]) {
                slots += reading.slots.unwrap_or(0);
                servers.extend(reading.servers.iter().map(|server| &server.server));
            }
        }
        slots.checked_div(servers.len() as u32).filter(|&each| each > 0)
    }

    /// Servers that the sentries have in this pool now.
    pub fn servers(&self, pool: &str) -> u32 {
        let readings = self.sentries.iter().filter_map(|sentry| sentry.reading.as_ref());
        let pools = readings.flat_map(|reading| &reading.pools).filter(|p| p.name == pool);
        pools.map(|pool| pool.servers.len() as u32).max().unwrap_or(0)
    }

    /// Takes note of what is about to be told, so that nothing ends that a sentry is being told to use.
    pub fn about_to_tell(&mut self, lists: &[Option<Vec<Server>>]) {
        for sentry in &mut self.sentries {
            for (told, list) in sentry.told.iter_mut().zip(lists) {
                told.extend(list.iter().flatten().cloned());
            }
        }
    }

    /// Tells each sentry that serves which servers each pool has, and which share is its own. A pool without a list is left as it
    /// is, and one that missed a look keeps its share. Behind their shares there are those of so many `others`, whom nobody tells:
    /// the first of these, where all that serve know by now that it is not theirs.
    pub async fn tell(&mut self, lists: &[Option<Vec<Server>>], others: u32, now: Nanos) -> Option<Share> {
        self.about_to_tell(lists);
        let (token, pools) = (self.token.as_ref(), &self.pools);
        let serving: Vec<usize> =
            (0..self.sentries.len()).filter(|&i| self.sentries[i].is_serving(now)).collect();
        let of = serving.len() as u32 + others;
        let mut ignorant: HashSet<usize> = serving.iter().copied().collect();
        // One that is new has not been looked at yet.
        let hears = |sentry: &Sentry| sentry.reading.is_some() || sentry.trouble.is_none();
        let hearing = serving.iter().zip(0u32..).filter(|(i, _)| hears(&self.sentries[**i]));
        let orders = hearing.map(|(&i, part)| {
            let sentry = &self.sentries[i];
            async move {
                let share = sentry.reading.as_ref().and_then(|reading| reading.share);
                let mut result = Ok(());
                // A sentry that never heard of shares has all there is.
                if share.unwrap_or((0, 1)) != (part, of) {
                    result = put(sentry.address, "/share", token, &json!({ "part": part, "of": of })).await;
                }
                let (known, mut confirmed) = (result.is_ok().then_some((part, of)), Vec::new());
                for (pool, (name, list)) in pools.iter().zip(lists).enumerate() {
                    let (Some(list), Ok(())) = (list, &result) else { continue };
                    let servers: Vec<String> = list.iter().map(written).collect();
                    result = put(
                        sentry.address,
                        &format!("/pools/{name}/servers"),
                        token,
                        &json!({ "servers": servers }),
                    )
                    .await;
                    if result.is_ok() {
                        confirmed.push(pool);
                    }
                }
                (i, known, confirmed, result)
            }
        });
        for (i, known, confirmed, result) in join_all(orders).await {
            let sentry = &mut self.sentries[i];
            if known.is_some() {
                ignorant.remove(&i);
                // It may be told something else before the next look.
                sentry.reading.iter_mut().for_each(|reading| reading.share = known);
            }
            for pool in confirmed {
                let list: HashSet<Server> = lists[pool].iter().flatten().cloned().collect();
                let before = std::mem::replace(&mut sentry.told[pool], list);
                sentry.taken.extend(before.difference(&sentry.told[pool]).cloned());
            }
            if let Err(error) = result {
                self.failures += 1;
                log::warn!(sentry:% = sentry.address, error:%; "sentry cannot be told");
                sentry.trouble = Some(error);
            }
        }
        Share::new(serving.len() as u32, of).ok().filter(|_| ignorant.is_empty())
    }
}

/// As short as the config would have it.
fn written(server: &Server) -> String {
    let url = server.to_string();
    url.strip_prefix("http://").map(str::to_owned).unwrap_or(url)
}

/// What a sentry says of itself.
///
/// # Errors
/// Where it does not, or what it says cannot be read.
pub async fn read(address: SocketAddr, token: Option<&Secret>) -> Result<Reading, String> {
    match ask(address, Method::GET, "/pools", token, Vec::new(), PATIENCE).await? {
        (StatusCode::OK, body) => reading::parse(&body),
        (status, _) => Err(format!("GET /pools: {status}")),
    }
}

async fn put(
    address: SocketAddr,
    path: &str,
    token: Option<&Secret>,
    body: &serde_json::Value,
) -> Result<(), String> {
    let (status, answer) =
        ask(address, Method::PUT, path, token, body.to_string().into_bytes(), PATIENCE).await?;
    if status.is_success() {
        return Ok(());
    }
    let why: String = String::from_utf8_lossy(&answer).trim().chars().take(200).collect();
    Err(format!("PUT {path}: {status} {why}"))
}
