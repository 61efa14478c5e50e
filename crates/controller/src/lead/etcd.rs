//! The seat of several hosts: a key in an etcd. [`Election`] says what to ask and what follows; this asks.
//!
//! | key | |
//! | --- | --- |
//! | `PREFIX/leader` | with the lease of whoever leads: its name, and what it allows to enter, for its successor to begin with |
//! | `PREFIX/revision` | the last leader's revision |
//!
//! A leader's revision is counted here rather than taken from etcd, whose own begins anew with an empty etcd: it would be below what sentries
//! have heard. It is written in the same transaction as the key, which fails if anybody has led since it was read.
//!
//! It runs on the thread that does everything else, too: where that hangs, the lease runs out.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, Identity, PutOptions, TlsOptions, Txn,
    TxnOp,
};
use plimsoll_core::Nanos;
use plimsoll_core::config::{Etcd, Scheme};
use plimsoll_rlqs::Tenure;
use plimsoll_sentry::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};
use tonic::Code;

use super::election::{Answer, Ask, Election};
use super::{Estate, Limits, Term, revision_after};
use crate::status::Leadership;

/// A limit that is off by less than this part of it is good enough to begin with: every change is a write, and etcd keeps all of them for a
/// while.
const CLOSE: f64 = 0.1;
/// How long it may take to leave.
const LEAVING: Duration = Duration::from_millis(500);
/// Troubles that are said before something goes well.
const MOST_SAID: usize = 16;
/// Longest value that is read, in bytes.
const LONGEST: usize = 256 << 10;

/// What is kept with the key.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    name: String,
    #[serde(default)]
    limits: Limits,
}

/// How it stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// While it leads.
    term: Option<Term>,
    /// Whether etcd has answered so far,
    answers: bool,
    /// and that it does not let us in.
    refused: Option<String>,
}

/// One controller's side of it.
pub struct Seat {
    standing: watch::Receiver<Standing>,
    leadership: watch::Receiver<Leadership>,
    leave: Arc<Notify>,
    task: JoinHandle<()>,
    /// Whether it was said that it waits.
    is_standby: bool,
}

impl Seat {
    /// Takes part from here on.
    ///
    /// # Errors
    /// Where files are missing, in words for the operator.
    pub fn new(settings: &Etcd) -> Result<Seat, String> {
        let store = Store::new(settings)?;
        let (standing, known) = watch::channel(Standing::default());
        let (leads, leadership) = watch::channel(Leadership { by: "etcd", ..Leadership::default() });
        let leave = Arc::<Notify>::default();
        let (leaves, left) = watch::channel(Limits::new());
        let ttl = Nanos::from_secs(store.ttl_s as u64);
        let member =
            Member { store, election: Election::new(ttl), standing, leads, leaves, left, said: Vec::new() };
        let task = tokio::spawn(member.run(Arc::clone(&leave)));
        Ok(Seat { standing: known, leadership, leave, task, is_standby: false })
    }

    /// See [`super::Seat::take`].
    pub async fn take(&mut self) -> Result<Term, String> {
        loop {
            {
                let standing = self.standing.borrow_and_update();
                if let Some(term) = &standing.term
                    && term.tenure.lasts(clock::now())
                {
                    self.is_standby = false;
                    return Ok(term.clone());
                }
                // Later it is trouble like any other: somebody is changing passwords.
                if let (Some(refused), false) = (&standing.refused, standing.answers) {
                    return Err(format!("[controller.etcd]: {refused}"));
                }
                if standing.answers && !self.is_standby {
                    let leader = self.leadership.borrow().leader.clone();
                    if let Some(leader) = leader {
                        self.is_standby = true;
                        log::info!(leader:%; "standing by: another controller leads");
                    }
                }
            }
            if self.standing.changed().await.is_err() {
                return Err("the election has ended".to_owned());
            }
        }
    }

    /// See [`super::Seat::lost`].
    pub async fn lost(&mut self, term: &Term) {
        while term.tenure.lasts(clock::now()) {
            tokio::select! {
                () = sleep_until(clock::timer(term.tenure.end())) => {}
                changed = self.standing.changed() => if changed.is_err() {
                    // Only for a defect; it is not renewed any more, and ends by itself.
                    sleep_until(clock::timer(term.tenure.end())).await;
                }
            }
        }
    }

    /// See [`super::Seat::leave`].
    pub async fn leave(mut self) {
        self.leave.notify_one();
        if timeout(LEAVING * 2, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }

    /// See [`super::Seat::leadership`].
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }
}

/// Who takes part.
struct Member {
    store: Store,
    election: Election,
    standing: watch::Sender<Standing>,
    leads: watch::Sender<Leadership>,
    leaves: watch::Sender<Limits>,
    left: watch::Receiver<Limits>,
    /// What was said to be wrong.
    said: Vec<String>,
}

impl Member {
    async fn run(mut self, leave: Arc<Notify>) {
        loop {
            let (at, ask) = self.election.next(clock::now());
            if !matches!(ask, Ask::Renew { .. }) && self.standing.borrow().term.is_some() {
                self.over("the lease was not renewed in time");
            }
            tokio::select! {
                biased;
                () = leave.notified() => break,
                () = sleep_until(clock::timer(at)) => {}
            }
            // Whoever was stopped meanwhile has something else to ask.
            if self.election.next(clock::now()) != (at, ask) {
                continue;
            }
            let asked = clock::now();
            let patience = self.election.patience(ask, asked);
            let limits = self.left.borrow_and_update().clone();
            let answer = match timeout(patience.into(), self.store.ask(ask, &limits)).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(words(&error)),
                Err(_) => Err((false, "it does not answer in time".to_owned())),
            };
            self.election.heard(asked, answer.as_ref().ok().copied(), clock::now());
            self.note(answer);
        }
        if let Some(hold) = self.election.leads(clock::now()) {
            let _ = timeout(LEAVING, self.store.revoke(hold.lease)).await;
        }
    }

    /// Says what has become of it.
    fn note(&mut self, answer: Result<Answer, (bool, String)>) {
        let failed = answer.as_ref().err().map(|(_, words)| format!("{}: {words}", self.store.endpoint()));
        self.trouble(failed.clone());
        if let Err((true, _)) = &answer {
            self.standing.send_modify(|standing| standing.refused = failed);
        }
        if answer.is_err() {
            // A leader goes on until its time is over, which ends by itself.
            self.store.pass_on();
        } else {
            self.standing.send_if_modified(|standing| !std::mem::replace(&mut standing.answers, true));
        }
        let led = self.standing.borrow().term.clone();
        match (led, self.election.leads(clock::now())) {
            (Some(term), Some(hold)) if term.revision == hold.revision => term.tenure.renew(hold.until),
            (led, Some(hold)) => {
                if led.is_some() {
                    self.over("the lease was not renewed in time");
                }
                let (revision, tenure) = (hold.revision, Tenure::until(hold.until));
                log::info!(revision, etcd:% = self.store.endpoint(); "this controller leads");
                let estate = self.store.seen.take();
                let leaves = self.leaves.clone();
                leaves.send_replace(estate.as_ref().map(|estate| estate.limits.clone()).unwrap_or_default());
                self.standing.send_modify(|standing| {
                    standing.term = Some(Term { revision, tenure, estate, leaves });
                });
            }
            (Some(_), None) => self.over(match answer {
                Ok(Answer::Somebody | Answer::Nobody) => "the key is gone, or another's",
                _ => "the lease was not renewed in time",
            }),
            (None, None) => {}
        }
        let term = self.standing.borrow().term.clone();
        let leader = if term.is_some() { Some(self.store.name.clone()) } else { self.store.leader.clone() };
        let revision = term.map(|term| term.revision);
        self.leads.send_if_modified(|now| {
            let before = (now.leads, now.revision, now.leader.clone());
            (now.leads, now.revision, now.leader) = (revision.is_some(), revision, leader);
            before != (now.leads, now.revision, now.leader.clone())
        });
        if self.standing.borrow().term.is_none() {
            // Who stands by may have something new to say.
            self.standing.send_modify(|_| {});
        }
    }

    /// What goes wrong is said once, until something goes well.
    fn trouble(&mut self, now: Option<String>) {
        match &now {
            None if self.said.is_empty() => return,
            None => {
                self.said.clear();
                log::info!(etcd:% = self.store.endpoint(); "etcd answers again");
            }
            // Of several endpoints each has something to say.
            Some(trouble) if self.said.len() < MOST_SAID && !self.said.contains(trouble) => {
                log::warn!(trouble:%; "etcd");
                self.said.push(trouble.clone());
            }
            Some(_) => {}
        }
        self.leads.send_modify(|leads| {
            leads.failures += u64::from(now.is_some());
            leads.trouble = now;
        });
    }

    fn over(&mut self, why: &str) {
        self.standing.send_modify(|standing| {
            if let Some(term) = standing.term.take() {
                term.tenure.renew(Nanos::ZERO);
                log::warn!(revision = term.revision, why; "this controller leads no more");
            }
        });
        self.leads.send_modify(|leads| (leads.leads, leads.revision) = (false, None));
    }
}

/// What is wrong, and whether it is that we are not let in.
fn words(error: &Error) -> (bool, String) {
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

/// The etcd, by one of its members at a time: another one is tried, over a new connection, after every failure. So nobody waits for a
/// connection whose other end is gone.
struct Store {
    endpoints: Vec<String>,
    at: usize,
    client: Option<Client>,
    options: ConnectOptions,
    leader_key: String,
    revision_key: String,
    name: String,
    ttl_s: i64,
    /// Who was seen to lead last,
    leader: Option<String>,
    /// and what that one allowed to enter.
    seen: Option<Estate>,
    /// What is written of our own.
    written: Limits,
    /// The revision that we lead with.
    revision: u64,
}

impl Store {
    fn new(settings: &Etcd) -> Result<Store, String> {
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

    fn endpoint(&self) -> &str {
        &self.endpoints[self.at]
    }

    /// The next one is asked from now on.
    fn pass_on(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.endpoints.len();
    }

    async fn ask(&mut self, ask: Ask, limits: &Limits) -> Result<Answer, Error> {
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
        let limits =
            note.limits.into_iter().filter(|(_, per_s)| per_s.is_finite() && *per_s >= 0.0).collect();
        self.seen = Some(Estate { limits, seen: clock::now() });
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

    async fn revoke(&mut self, lease: i64) -> Result<(), Error> {
        self.client()?.lease_revoke(lease).await.map(|_| ())
    }

    fn note(&self, limits: &Limits) -> Vec<u8> {
        let note = Note { name: self.name.clone(), limits: limits.clone() };
        serde_json::to_vec(&note).unwrap_or_default()
    }
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
