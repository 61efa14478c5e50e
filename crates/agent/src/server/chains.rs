//! Who waits because of whom, from one look at a server's locks: pure.
//!
//! A process waits for a lock because somebody *holds* it in a mode that conflicts (a hard blocker), or because somebody who came earlier
//! *waits* for it in a mode that conflicts (a soft one: an ALTER TABLE behind a long SELECT keeps out all who come later, though all
//! of them could share the table with the SELECT). Hard blockers are followed to the root: who is in between is a victim, too. A soft
//! blocker is to blame itself: without its request nobody behind it would wait, and it has not done any work yet. But not on a standby the
//! process that replays the primary's log: what it asks for it must get, so whoever keeps it from that is to blame for those behind it.
//!
//! PostgreSQL's `pg_blocking_pids` gives both kinds without saying which is which, and takes all locks of the lock table once for each
//! process that waits; here one copy of `pg_locks` answers for all of them. The order of the queue follows from `waitstart`.

use std::collections::{HashMap, HashSet};

use super::stamp::Stamp;

/// Longest chain that is followed.
const LONGEST: usize = 64;

/// Who holds and waits: PostgreSQL's process, that of its leader for a parallel worker, or less than 0 for a prepared transaction; MariaDB's
/// connection.
pub type Pid = i64;

/// How something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its number among those of its kind of lock, below 32.
    index: u8,
    /// With which of them it conflicts: bit `i` is mode `i`.
    conflicts: u32,
}

impl Mode {
    /// Excludes everybody, itself included, where there is one mode only.
    pub const EXCLUSIVE: Mode = Mode { index: 0, conflicts: 1 };

    /// Mode `index` of a kind of lock, which conflicts with those whose bits are set.
    pub const fn new(index: usize, conflicts: u32) -> Mode {
        Mode { index: (index & 31) as u8, conflicts }
    }

    /// Whether one who has this keeps out one who wants `other`.
    pub fn conflicts(self, other: Mode) -> bool {
        self.conflicts & 1 << other.index != 0
    }
}

/// A lock that somebody has or waits for.
#[derive(Clone, Debug)]
pub struct Lock {
    /// What is locked, in one word.
    pub tag: String,
    /// The same as a kind of thing.
    pub object: Object,
    /// Who.
    pub pid: Pid,
    /// How. Nothing for modes that keep nobody out.
    pub mode: Option<Mode>,
    /// Whether it has it or waits for it.
    pub granted: bool,
    /// Since when it waits; nothing if it has hardly begun to.
    pub since: Option<Stamp>,
}

/// What is locked, as people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A table or index, in a database.
    Relation(u32, u32),
    /// Rows of a table.
    Rows(u32, u32),
    /// The right to make a table longer.
    Extension(u32, u32),
    /// The end of a transaction, where the rows are not known.
    Transaction,
    /// An advisory lock, which the application has named: by two numbers.
    Advisory(u32, u32),
    /// The threads that serve clients, where those are fewer.
    Threads,
    /// What was deleted or changed and is kept, since somebody may still see it as it was.
    Undo,
    /// All of the server: a backup has it, or whoever wants all to stand still.
    Server,
    /// Anything else.
    Other,
}

/// Why a process waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Blame {
    /// Who waits.
    pub victim: Pid,
    /// Since when.
    pub since: Option<Stamp>,
    /// Who is to blame: the root, or whoever queues in between.
    pub culprit: Pid,
    /// What that one has, or queues for.
    pub object: Object,
    /// Whether it queues: since when.
    pub queues: Option<Option<Stamp>>,
    /// From the victim to the root, which is the culprit unless that one queues.
    pub chain: Vec<Pid>,
}

/// The processes that wait, with whom they wait for. `started` tells when a process's transaction began: of several that share a lock the
/// oldest is followed, since it is expected to last longest. `replays` is the process that replays a primary's log.
pub fn blame(locks: &[Lock], replays: Option<Pid>, started: impl Fn(Pid) -> Option<Stamp>) -> Vec<Blame> {
    let table = Table::new(locks, replays, &started);
    let mut blames: Vec<Blame> = table.waits.keys().filter_map(|&pid| table.follow(pid)).collect();
    blames.sort_by_key(|blame| blame.victim);
    blames
}

struct Table<'a> {
    /// By what is locked.
    rows: HashMap<&'a str, Vec<&'a Lock>>,
    /// What each process waits for; a process waits for one thing at a time.
    waits: HashMap<Pid, &'a Lock>,
    /// The table of whose rows a process is about to have one.
    rows_of: HashMap<Pid, Object>,
    replays: Option<Pid>,
    started: &'a dyn Fn(Pid) -> Option<Stamp>,
}

impl<'a> Table<'a> {
    fn new(locks: &'a [Lock], replays: Option<Pid>, started: &'a dyn Fn(Pid) -> Option<Stamp>) -> Table<'a> {
        let mut rows: HashMap<&str, Vec<&Lock>> = HashMap::new();
        let mut rows_of = HashMap::new();
        for lock in locks {
            rows.entry(&lock.tag).or_default().push(lock);
            if let (Object::Rows(..), true) = (lock.object, lock.granted) {
                rows_of.insert(lock.pid, lock.object);
            }
        }
        let waits = locks.iter().filter(|lock| !lock.granted).map(|lock| (lock.pid, lock)).collect();
        Table { rows, waits, rows_of, replays, started }
    }

    /// Those who hold what `wait` wants, the oldest first.
    fn hard(&self, wait: &Lock) -> Option<Pid> {
        let holders = self.others(wait).filter(|lock| lock.granted);
        let age = |pid| (self.started)(pid).unwrap_or(Stamp(i64::MAX));
        holders.map(|lock| lock.pid).min_by_key(|&pid| (age(pid), pid))
    }

    /// The first in the queue before `wait`, preferably one that waits for somebody who holds it.
    fn soft(&self, wait: &Lock) -> Option<&'a Lock> {
        let turn = |lock: &Lock| lock.since.unwrap_or(Stamp(i64::MAX));
        let ahead = self.others(wait).filter(|lock| !lock.granted && turn(lock) < turn(wait));
        ahead.min_by_key(|lock| (self.hard(lock).is_none(), turn(lock), lock.pid))
    }

    fn others(&self, wait: &Lock) -> impl Iterator<Item = &'a Lock> {
        let (pid, mode) = (wait.pid, wait.mode);
        let rows = self.rows.get(wait.tag.as_str()).map_or(&[][..], Vec::as_slice);
        rows.iter().copied().filter(move |lock| {
            lock.pid != pid && matches!((lock.mode, mode), (Some(a), Some(b)) if a.conflicts(b))
        })
    }

    /// What a process that waits for `wait` is waiting for, in words: the row behind a transaction, where that is known.
    fn object(&self, wait: &Lock) -> Object {
        match wait.object {
            Object::Transaction => self.rows_of.get(&wait.pid).copied().unwrap_or(Object::Transaction),
            object => object,
        }
    }

    fn follow(&self, victim: Pid) -> Option<Blame> {
        let first = *self.waits.get(&victim)?;
        let (mut chain, mut seen, mut wait) = (vec![victim], HashSet::from([victim]), first);
        let mut soft: Option<(&Lock, Object)> = None;
        loop {
            let object = self.object(wait);
            let next = match (self.hard(wait), self.soft(wait)) {
                (Some(pid), _) => pid,
                (None, Some(ahead)) => {
                    // Of several queues on the way the one nearest to the root: who waits in the others waits because of it.
                    if self.replays != Some(ahead.pid) {
                        soft = Some((ahead, object));
                    }
                    ahead.pid
                }
                // It has just got what it wanted.
                (None, None) => return None,
            };
            // A circle: PostgreSQL breaks it within `deadlock_timeout`.
            if !seen.insert(next) || chain.len() >= LONGEST {
                return None;
            }
            chain.push(next);
            match self.waits.get(&next) {
                Some(further) => wait = further,
                None => {
                    let (culprit, object, queues) = match soft {
                        Some((ahead, object)) => (ahead.pid, object, Some(ahead.since)),
                        None => (next, object, None),
                    };
                    return Some(Blame { victim, since: first.since, culprit, object, queues, chain });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
