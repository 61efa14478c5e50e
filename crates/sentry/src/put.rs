//! What was put through the admin address, and so stands in no file: the servers of pools, and what of them is this
//! sentry's.
//!
//! It takes effect at once, and lasts: the parent keeps it as a [text](KeptText), so that a reload, the next worker and the next
//! binary go on with it. A config whose own list of servers changes is newer, and wins. Nothing of it ends by
//! itself: if nobody ever puts anything again, the sentry keeps what it has.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::Nanos;
use plimsoll_core::config::{self, Config};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config_file::Unusable;
use crate::pool::Pool;
use crate::pool::sheepdog::Workers;
use crate::share::Share;
use crate::state::{Routing, Shared};
use crate::supervisor::kept_text::KeptText;

/// Most servers of a pool, as in the config.
pub const MOST_SERVERS: usize = 1024;

/// All that was put.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Put {
    share: Share,
    pools: BTreeMap<String, PutServers>,
}

/// The servers of one pool, as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PutServers {
    servers: Vec<String>,
    /// What the config said at the time.
    instead_of: Vec<String>,
}

impl Put {
    /// Nothing but the share.
    pub fn of_share(share: Share) -> Put {
        Put { share, pools: BTreeMap::new() }
    }

    /// As the parent keeps it.
    pub fn to_text(&self) -> String {
        // Maps with text for keys, text and numbers: nothing that JSON cannot say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The sentry's share.
    pub fn share(&self) -> Share {
        self.share
    }

    /// The servers of a pool with this config: those that were put, unless the config has changed them since.
    pub fn servers(&self, pool: &config::Pool) -> Vec<config::Server> {
        let put = self.pools.get(&pool.name).filter(|put| put.instead_of == texts(&pool.servers));
        let put = put.and_then(|put| put.servers.iter().map(|text| text.parse().ok()).collect());
        put.unwrap_or_else(|| pool.servers.clone())
    }

    /// Forgets what this config is newer than.
    pub fn forget_replaced(&mut self, config: &Config) {
        self.pools.retain(|name, put| {
            config.pools.iter().any(|pool| pool.name == *name && texts(&pool.servers) == put.instead_of)
        });
    }
}

impl Default for Put {
    fn default() -> Put {
        Put::of_share(Share::ALL)
    }
}

fn texts(servers: &[config::Server]) -> Vec<String> {
    servers.iter().map(ToString::to_string).collect()
}

/// What was put, and where it is kept.
#[derive(Debug, Default)]
pub struct Keeper {
    /// What was put.
    pub put: Put,
    memory: Option<KeptText>,
    /// The text that was last read or written.
    seen: String,
}

impl Keeper {
    /// Keeps what was put by now.
    pub fn store(&mut self) {
        let text = self.put.to_text();
        if let Some(memory) = &self.memory
            && text != self.seen
            && let Err(error) = memory.store(&text)
        {
            log::warn!(error:%; "what was put is not kept for a worker that restarts");
        }
        self.seen = text;
    }

    /// Whether another worker has put something since.
    fn has_news(&mut self) -> bool {
        let Some(text) = self.memory.as_ref().and_then(KeptText::load) else { return false };
        if text == self.seen {
            return false;
        }
        let read = serde_json::from_str(&text);
        self.seen = text;
        match read {
            Ok(put) => {
                let news = self.put != put;
                self.put = put;
                news
            }
            Err(error) => {
                log::error!(error:%; "what was put before cannot be read");
                false
            }
        }
    }
}

/// Why servers were not put.
#[derive(Debug, PartialEq, Eq)]
pub enum PutError {
    /// There is no such pool; there are these.
    UnknownPool(Vec<String>),
    /// These are not servers that a pool can have.
    Wrong(String),
}

impl Routing {
    fn pool_named(&self, name: &str) -> Result<&Pool, PutError> {
        let names = || self.pools.iter().map(|pool| pool.config.name.clone()).collect();
        let found = self.pools.iter().find(|pool| pool.config.name == name);
        found.map(AsRef::as_ref).ok_or_else(|| PutError::UnknownPool(names()))
    }
}

impl From<Unusable> for PutError {
    fn from(error: Unusable) -> PutError {
        PutError::Wrong(error.into())
    }
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::UnknownPool(pools) => write!(f, "there is no such pool; there is {}", pools.join(", ")),
            PutError::Wrong(why) => f.write_str(why),
        }
    }
}

/// The servers that these texts name.
fn servers(texts: &[String]) -> Result<Vec<config::Server>, PutError> {
    let wrong = |why: String| Err(PutError::Wrong(why));
    if texts.len() > MOST_SERVERS {
        return wrong(format!("{} servers are too many; put at most {MOST_SERVERS}", texts.len()));
    }
    let mut seen = std::collections::HashSet::new();
    let mut servers = Vec::with_capacity(texts.len());
    for text in texts {
        let server: config::Server = text.parse().map_err(PutError::Wrong)?;
        if !seen.insert(server.clone()) {
            return wrong(format!("server {server} is there twice; put it once"));
        }
        servers.push(server);
    }
    Ok(servers)
}

impl Shared {
    /// From now on what is put is kept in this memory, beginning with what is there already.
    pub fn keep_put(&self, memory: KeptText) {
        let mut keeper = self.keeper().lock();
        keeper.memory = Some(memory);
        if keeper.has_news() {
            self.apply(&keeper.put, Pool::begin_with_share);
        }
    }

    /// Does what was put at another worker of this sentry, as may happen while one takes over from the other.
    pub fn follow_put(&self) {
        let mut keeper = self.keeper().lock();
        if keeper.has_news() {
            self.apply(&keeper.put, Pool::set_share);
        }
    }

    /// Gives a pool other servers. New requests see them at once, none is lost.
    ///
    /// # Errors
    /// Where there is no such pool or it cannot have these servers; then nothing has changed.
    pub fn put_servers(&self, pool: &str, texts: &[String]) -> Result<(), PutError> {
        let servers = servers(texts)?;
        self.follow_put();
        let mut keeper = self.keeper().lock();
        let routing = self.routing().load();
        let pool = routing.pool_named(pool)?;
        pool.set_servers(&servers)?;
        log::info!(pool = &*pool.config.name, servers = servers.len(); "servers put");
        let put =
            PutServers { servers: self::texts(&servers), instead_of: self::texts(&pool.config.servers) };
        keeper.put.pools.insert(pool.config.name.clone(), put);
        keeper.store();
        Ok(())
    }

    /// The servers of a pool are late, and nobody in particular is to blame: fewer requests at once from now on, for so long unless it is
    /// said again. Returns the share of the slots that is in use. Nothing of it is kept: it is over before anybody could need it.
    ///
    /// # Errors
    /// Where there is no such pool.
    pub fn put_overload(&self, pool: &str, late_for: Nanos) -> Result<f64, PutError> {
        let routing = self.routing().load();
        let pool = routing.pool_named(pool)?;
        pool.ease.tell(late_for, clock::now());
        Ok(pool.ease.share())
    }

    /// How the workers of a pool's servers fare, by the servers' names; it holds for so long unless it is said again. Returns how many slots
    /// there are. Nothing of it is kept either.
    ///
    /// # Errors
    /// Where there is no such pool.
    pub fn put_slowdown(
        &self,
        pool: &str,
        servers: BTreeMap<String, Workers>,
        holds: Nanos,
    ) -> Result<u32, PutError> {
        let routing = self.routing().load();
        let pool = routing.pool_named(pool)?;
        pool.flock.tell(servers, holds, clock::now());
        Ok(pool.slots.size())
    }

    /// Gives this sentry another share of the servers of all pools.
    pub fn put_share(&self, share: Share) {
        self.follow_put();
        let mut keeper = self.keeper().lock();
        if share != keeper.put.share {
            log::info!(share:%; "share put");
        }
        if share.of() > keeper.put.share.of() {
            self.others_join(clock::now());
        }
        keeper.put.share = share;
        for pool in &self.routing().load().pools {
            pool.set_share(share);
        }
        keeper.store();
    }

    /// What of the servers is this sentry's.
    pub fn share(&self) -> Share {
        self.keeper().lock().put.share
    }

    fn apply(&self, put: &Put, set_share: fn(&Pool, Share)) {
        for pool in &self.routing().load().pools {
            set_share(pool, put.share);
            if let Err(error) = pool.set_servers(&put.servers(&pool.config)) {
                log::error!(pool = &*pool.config.name, error:%; "servers that were put cannot be used");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(servers: &str, more: &str) -> Config {
        let text = format!("[pool.shop]\nservers = [{servers}]\nworkers = 2\n{more}");
        config::parse(&text, "test").unwrap().0
    }

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    fn addresses(shared: &Shared) -> Vec<String> {
        let servers = shared.routing().load().pools[0].servers.all();
        servers.iter().map(|server| server.origin.to_string()).collect()
    }

    const ONE: &str = "\"a:1\"";

    #[test]
    fn what_was_put_outlives_reloads_and_workers_until_the_config_says_otherwise() {
        let memory = KeptText::create().unwrap();
        let worker = |config: Config| {
            let shared = Shared::new(config, 1, None).unwrap();
            shared.keep_put(KeptText::new(memory.try_clone().unwrap()));
            shared
        };
        let first = worker(config(ONE, ""));
        assert_eq!(first.put_servers("shop", &strings(&["b:2", "https://c"])), Ok(()));
        first.put_share(Share::new(1, 2).unwrap());
        let put = ["http://b:2", "https://c:443"];
        assert_eq!(addresses(&first), put);
        assert!(first.routing().load().pools[0].tls().is_some());

        first.reload(config(ONE, "max_queue = 7")).unwrap();
        assert_eq!((addresses(&first), first.share()), (strings(&put), Share::new(1, 2).unwrap()));
        let slots = || first.routing().load().pools[0].slots.size();
        assert_eq!(slots(), 2, "half of two servers of two workers");

        let second = worker(config(ONE, ""));
        assert_eq!((addresses(&second), second.share()), (strings(&put), Share::new(1, 2).unwrap()));
        assert_eq!(second.routing().load().pools[0].slots.size(), 2);

        // Put at the one, while the other takes over.
        first.put_servers("shop", &[]).unwrap();
        assert_eq!(slots(), 0);
        second.follow_put();
        assert!(addresses(&second).is_empty());

        second.reload(config("\"d:4\"", "")).unwrap();
        assert_eq!(addresses(&second), ["http://d:4"], "the config is newer");
        second.reload(config(ONE, "")).unwrap();
        assert_eq!(addresses(&second), ["http://a:1"], "what it has replaced does not come back");
    }

    #[test]
    fn nonsense_changes_nothing_and_says_why() {
        let shared = Shared::new(config(ONE, ""), 1, None).unwrap();
        let many: Vec<String> = (0..=MOST_SERVERS).map(|i| format!("h{i}:1")).collect();
        for (pool, servers, why) in [
            ("shop", strings(&["b:2", "b:2"]), "twice"),
            ("shop", strings(&["b:2", "http://b:2"]), "twice"),
            ("shop", strings(&["b"]), "lacks the port"),
            ("shop", strings(&[""]), "is not a server"),
            ("shop", many, "1025 servers are too many"),
            ("shoop", strings(&["b:2"]), "there is no such pool; there is shop"),
        ] {
            let error = shared.put_servers(pool, &servers).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(addresses(&shared), ["http://a:1"]);
        }
        let most: Vec<String> = (0..MOST_SERVERS).map(|i| format!("h{i}:1")).collect();
        assert_eq!(shared.put_servers("shop", &most), Ok(()));
        assert_eq!(shared.routing().load().pools[0].slots.size(), 2 * MOST_SERVERS as u32);
    }
}
