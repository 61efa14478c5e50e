//! What somebody has that others want.

use std::collections::{HashMap, HashSet};

use super::super::backend::Backend;
use super::super::backend::Waits;
use super::super::chains::{Blame, Pid};
use super::super::slots::Slots;
use super::super::stamp::Stamp;
use super::Look;

/// A lock, or a place in the queue for one.
pub(super) struct Held {
    /// Its number in scenes.
    pub resource: u32,
    /// Whether it is a place in the queue: since when.
    pub queues: Option<Option<Stamp>>,
    /// Who waits because of it.
    pub victims: Vec<Pid>,
    /// The longest chain of those who wait.
    pub chain: Vec<Pid>,
}

impl Held {
    /// For how long of its own will: a lock since its transaction began, at most, without the time for which it waited for a lock itself,
    /// which may have been this one; a place in a queue since it was taken.
    pub(super) fn since_ns(&self, look: &Look<'_>, backend: &Backend, waited_ns: u64) -> u64 {
        let held_ns = match self.queues {
            Some(since) => look.server.since_ns(since.unwrap_or(look.server)),
            None => {
                let since = backend.xact.unwrap_or_else(|| backend.since());
                look.server.since_ns(since).saturating_sub(waited_ns)
            }
        };
        held_ns.max(1)
    }
}

/// Who holds up whom, by process. What is held or waited for gets its number.
pub(super) fn by_culprit(look: &Look<'_>, slots: &mut Slots) -> HashMap<Pid, Vec<Held>> {
    let now: HashSet<_> = look.blames.iter().map(|b| (b.object, b.queues.is_some(), b.culprit)).collect();
    slots.begin(|object, queue, pid| now.contains(&(object, queue, pid)));
    let mut culprits: HashMap<Pid, Vec<Held>> = HashMap::new();
    // The longest wait first, so that numbers do not depend on the order of rows.
    let mut blames: Vec<&Blame> = look.blames.iter().collect();
    blames.sort_by_key(|blame| (blame.since.unwrap_or(look.server), blame.victim));
    for blame in blames {
        let resource = slots.lock(blame.object, blame.queues.is_some(), blame.culprit);
        let held = culprits.entry(blame.culprit).or_default();
        let at = held.iter().position(|held| held.resource == resource).unwrap_or_else(|| {
            held.push(Held { resource, queues: blame.queues, victims: Vec::new(), chain: Vec::new() });
            held.len() - 1
        });
        held[at].victims.push(blame.victim);
        if blame.chain.len() > held[at].chain.len() {
            held[at].chain.clone_from(&blame.chain);
        }
    }
    for backend in look.backends {
        if let Some(Waits::Latch(name)) = &backend.waits {
            slots.latch(name);
        }
    }
    culprits
}
