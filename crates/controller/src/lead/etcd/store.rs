//! What is asked of an etcd, and how.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, Identity, PutOptions, TlsOptions, Txn,
    TxnOp,
};
use plimsoll_core::Nanos;
use plimsoll_core::config::{Etcd, Scheme};
use plimsoll_sentry::clock;
use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::lead::election::{Answer, Ask};
use crate::lead::{Estate, Limits, revision_after, sound};

/// A limit that is off by less than this part of it is good enough to begin with: every change is a write, and etcd keeps all of them for a
/// while.
const CLOSE: f64 = 0.1;
/// Longest value that is read, in bytes.
const LONGEST: usize = 256 << 10;

/// What is kept with the key.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    name: String,
    #[serde(default)]
    limits: Limits,
}

/// The etcd, by one of its members at a time: another one is tried, over a new connection, after every failure. So nobody waits for a
/// connection whose other end is gone.
pub struct Store {
    endpoints: Vec<String>,
    at: usize,
    client: Option<Client>,
    options: ConnectOptions,
    leader_key: String,
    revision_key: String,
    /// What this controller is called.
    pub name: String,
    /// How long its lease lasts, in seconds.
    pub ttl_s: i64,
    /// Who was seen to lead last,
    pub leader: Option<String>,
    /// and what that one allowed to enter.
    pub seen: Option<Estate>,
    /// What is written of our own.
    written: Limits,
    /// The revision that we lead with.
    revision: u64,
}

impl Store {
    /// What the config says; it connects when it is asked.
    ///
    /// # Errors
    /// Where files are missing, in words for the operator.
    pub fn new(settings: &Etcd) -> Result<Store, String> {
        let read = |path: &std::path::Path| {
            fs::read(path).map_err(|error| format!("[controller.etcd]: {}: {error}", path.display()))
        };
        let mut options = ConnectOptions::new().with_auto_token_refresh(true);
        if let (Some(user), Some(file)) = (&settings.user, &settings.password_file) {
            let password = String::from_utf8(read(file)?).unwrap_or_default();
            let password = password.trim_end_matches(['\r', '\n']);
            if password.is_empty() || password.contains(char::is_control) {
                let file = file.display();
                return Err(format!("[controller.etcd]: {file} is to have one line, the password of {user}"));
            }
            options = options.with_user(user, password);
        }
        if settings.endpoints.iter().any(|endpoint| endpoint.scheme == Scheme::Https) {
            let mut tls = match &settings.ca {
                Some(file) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(file)?)),
                None => TlsOptions::new().with_enabled_roots(),
            };
            if let Some(own) = &settings.tls {
                tls = tls.identity(Identity::from_pem(read(&own.cert)?, read(&own.key)?));
            }
            options = options.with_tls(tls);
        }
        let ours = || format!("{}:{}", hostname(), std::process::id());
        Ok(Store {
            endpoints: settings.endpoints.iter().map(ToString::to_string).collect(),
            at: 0,
            client: None,
            options,
            leader_key: format!("{}/leader", settings.prefix),
            revision_key: format!("{}/revision", settings.prefix),
            name: settings.name.clone().unwrap_or_else(ours),
            ttl_s: settings.lease.as_secs_f64().ceil() as i64,
            leader: None,
            seen: None,
            written: Limits::new(),
            revision: 0,
        })
    }

    /// Which member is asked.
    pub fn endpoint(&self) -> &str {
        &self.endpoints[self.at]
    }

    /// The next one is asked from now on.
    pub fn pass_on(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.endpoints.len();
    }

    /// Asks, and writes what this controller lets enter if it leads.
    ///
    /// # Errors
    /// Where etcd does not answer, or does not let us in.
    pub async fn ask(&mut self, ask: Ask, limits: &Limits) -> Result<Answer, Error> {
        if self.client.is_none() {
            let client = Client::connect([self.endpoint()], Some(self.options.clone())).await?;
            self.client = Some(client);
        }
        match ask {
            Ask::Look => self.look().await,
            Ask::Claim => self.claim().await,
            Ask::Renew { lease } => self.renew(lease, limits).await,
        }
    }

    fn client(&mut self) -> Result<&mut Client, Error> {
        self.client.as_mut().ok_or_else(|| Error::Internal("there is no connection".to_owned()))
    }

    async fn look(&mut self) -> Result<Answer, Error> {
        let key = self.leader_key.clone();
        let found = self.client()?.get(key, None).await?;
        let Some(found) = found.kvs().first() else {
            self.leader = None;
            return Ok(Answer::Nobody);
        };
        let note: Note = match found.value() {
            value if value.len() <= LONGEST => serde_json::from_slice(value).unwrap_or_default(),
            _ => Note::default(),
        };
        self.seen = Some(Estate { limits: sound(note.limits), seen: clock::now() });
        self.leader = Some(note.name);
        Ok(Answer::Somebody)
    }

    async fn claim(&mut self) -> Result<Answer, Error> {
        let (leader_key, revision_key, ttl_s) =
            (self.leader_key.clone(), self.revision_key.clone(), self.ttl_s);
        let limits = self.seen.as_ref().map(|estate| estate.limits.clone()).unwrap_or_default();
        let note = self.note(&limits);
        let client = self.client()?;
        let granted = client.lease_grant(ttl_s, None).await?;
        let last = client.get(revision_key.clone(), None).await?;
        let last = last.kvs().first();
        let before = last.and_then(|last| last.value_str().ok()?.parse().ok());
        let revision = revision_after(before, clock::wall().0 / 1_000_000_000);
        let nobody_has_led_since = [
            Compare::create_revision(leader_key.clone(), CompareOp::Equal, 0),
            Compare::mod_revision(
                revision_key.clone(),
                CompareOp::Equal,
                last.map_or(0, |last| last.mod_revision()),
            ),
        ];
        let lease = granted.id();
        let write = [
            TxnOp::put(leader_key, note, Some(PutOptions::new().with_lease(lease))),
            TxnOp::put(revision_key, revision.to_string(), None),
        ];
        if !client.txn(Txn::new().when(nobody_has_led_since).and_then(write)).await?.succeeded() {
            // It would end by itself, too.
            let _ = client.lease_revoke(lease).await;
            return Ok(Answer::Somebody);
        }
        (self.written, self.revision) = (limits, revision);
        let ttl = Nanos::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        Ok(Answer::Ours { lease, revision, ttl })
    }

    /// That the lease lasts on is the word of one member. That the key is still with it is asked of all, as a transaction is.
    async fn renew(&mut self, lease: i64, limits: &Limits) -> Result<Answer, Error> {
        let key = self.leader_key.clone();
        let is_news = differ(&self.written, limits);
        let note = self.note(limits);
        let client = self.client()?;
        match client.lease_keep_alive(lease).await {
            Ok(_) => {}
            // It has run out.
            Err(Error::LeaseKeepAliveError(_)) => return self.look().await,
            Err(error) => return Err(error),
        }
        let ours = [Compare::lease(key.clone(), CompareOp::Equal, lease)];
        let write = match is_news {
            true => TxnOp::put(key, note, Some(PutOptions::new().with_lease(lease))),
            false => TxnOp::get(key, None),
        };
        if !client.txn(Txn::new().when(ours).and_then([write])).await?.succeeded() {
            return self.look().await;
        }
        if is_news {
            self.written = limits.clone();
        }
        Ok(Answer::Ours { lease, revision: self.revision, ttl: Nanos::from_secs(self.ttl_s as u64) })
    }

    /// Gives a lease back.
    ///
    /// # Errors
    /// As [`Store::ask`].
    pub async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        self.client()?.lease_revoke(lease).await.map(|_| ())
    }

    fn note(&self, limits: &Limits) -> Vec<u8> {
        let note = Note { name: self.name.clone(), limits: limits.clone() };
        serde_json::to_vec(&note).unwrap_or_default()
    }
}

/// What is wrong, and whether it is that we are not let in.
pub fn words(error: &Error) -> (bool, String) {
    let Error::GRpcStatus(status) = error else { return (false, error.to_string()) };
    let refusals =
        [Code::Unauthenticated, Code::PermissionDenied, Code::InvalidArgument, Code::FailedPrecondition];
    let words = status.source().map_or_else(|| status.message().to_owned(), root);
    (refusals.contains(&status.code()), words)
}

/// What is at the bottom of an error, which its own words do not say.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

/// Whether a successor would begin with something else.
fn differ(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> bool {
    let is_close = |(a, b): (f64, f64)| (a - b).abs() <= CLOSE * a.max(b);
    a.len() != b.len() || a.iter().zip(b).any(|((name, a), (other, b))| name != other || !is_close((*a, *b)))
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_the_same_is_not_written_again() {
        let limits =
            |pairs: &[(&str, f64)]| pairs.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        let before: Limits = limits(&[("cart", 100.0), ("shop", 10.0)]);
        assert!(!differ(&before, &before) && !differ(&before, &limits(&[("cart", 105.0), ("shop", 9.5)])));
        for other in
            [&[("cart", 120.0), ("shop", 10.0)][..], &[("cart", 100.0)], &[("cart", 100.0), ("a", 10.0)]]
        {
            assert!(differ(&before, &limits(other)), "{other:?}");
        }
        assert!(!differ(&Limits::new(), &Limits::new()));
    }
}
