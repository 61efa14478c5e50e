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

mod store;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::Etcd;
use plimsoll_rlqs::Tenure;
use plimsoll_sentry::clock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use self::store::{Store, words};
use super::election::{Answer, Ask, Election};
use super::{Limits, Term};
use crate::status::Leadership;

/// How long it may take to leave.
const LEAVING: Duration = Duration::from_millis(500);
/// Troubles that are said before something goes well.
const MOST_SAID: usize = 16;

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
