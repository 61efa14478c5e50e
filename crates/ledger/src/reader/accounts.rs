//! Accounts: what each said at the look before, what it can have done since, and whose that is.

use super::file::{CHUNK_BYTES, Ledger};
use crate::layout::ACCOUNT_BYTES;
use crate::look::{Activity, Look, Use};
use crate::records::{AccountRecord, u64_at};
use crate::refusal::Refusal;

/// A wait that was measured elsewhere is told when it is over. So much of it may have been before the last look.
pub const TOLD_LATE_NS: u64 = 1_000_000_000;

/// All accounts, as they were, and what is needed to look at them.
#[derive(Default)]
pub struct Accounts {
    /// By account.
    seen: Vec<Seen>,
    /// Whether there was a look before.
    looked: bool,
    /// By record of a task: its place among the tasks that live, plus 1; 0 if it does not live.
    places: Vec<u32>,
    /// By record of a resource: its place in the look, plus 1.
    resources: Vec<u32>,
    /// What each account shows of a living task.
    found: Vec<Use>,
    /// The places in `found`, by task.
    by_task: Vec<u32>,
    /// Where those of each task end in `by_task`.
    ends: Vec<u32>,
    /// The same accounts once more.
    again: Vec<u8>,
}

/// What an account said.
#[derive(Clone, Copy)]
struct Seen {
    /// Who had it: the task's record plus 1 and its full turn.
    task: u32,
    turn: u64,
    /// Its counters, as they were.
    counters: Activity,
    /// The times with what went on then: the most that they ever added up to.
    until: Times,
    /// What its owner has done with it.
    total: Activity,
    /// For how long before the last look it was not told to wait, up to [`TOLD_LATE_NS`]: it may still be.
    unwaited_ns: u64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            task: 0,
            turn: 0,
            counters: Activity::default(),
            until: Times::default(),
            total: Activity::default(),
            unwaited_ns: TOLD_LATE_NS,
        }
    }
}

/// Time waited and held, what goes on included.
#[derive(Clone, Copy, Default)]
struct Times {
    wait_ns: u64,
    hold_ns: u64,
}

impl Accounts {
    pub fn look(
        &mut self,
        ledger: &Ledger,
        used: usize,
        look: &mut Look,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let shape = ledger.shape();
        index(&mut self.places, shape.tasks as usize, look.tasks.iter().map(|task| task.index as usize));
        let resources = look.resources.iter().map(|resource| usize::from(resource.index));
        index(&mut self.resources, shape.resources as usize, resources);
        if self.seen.len() < used {
            self.seen.resize(used, Seen::default());
        }
        self.found.clear();
        let end = ACCOUNT_BYTES * used;
        for from in (0..end).step_by(CHUNK_BYTES) {
            let (at, bytes_at_once) = (shape.accounts_at() + from, CHUNK_BYTES.min(end - from));
            let first = ledger.read(bytes, at, bytes_at_once)?;
            let again = ledger.read(&mut self.again, at, bytes_at_once)?;
            let records = first.chunks_exact(ACCOUNT_BYTES).zip(again.chunks_exact(ACCOUNT_BYTES));
            for ((first, again), seen) in records.zip(&mut self.seen[from / ACCOUNT_BYTES..]) {
                let account = AccountRecord::read(first);
                // One that changed hands meanwhile is read at the next look.
                if account.owner == u64_at(again, 0) {
                    let place =
                        |places: &[u32], at: usize| places.get(at).and_then(|place| place.checked_sub(1));
                    let resource = place(&self.resources, usize::from(account.owner().resource));
                    let task = account.owner().task.and_then(|task| place(&self.places, task as usize));
                    if let Some(resource) = resource {
                        self.found.extend(read(&account, seen, self.looked, look, resource as usize, task));
                    }
                }
            }
        }
        self.looked = true;
        self.gather(look);
        Ok(())
    }

    /// Puts together what belongs to the same task and resource. Sorting by counting: one pass to count, one to place.
    fn gather(&mut self, look: &mut Look) {
        look.uses.clear();
        self.ends.clear();
        self.ends.resize(look.tasks.len(), 0);
        for one in &self.found {
            self.ends[one.task as usize] += 1;
        }
        let mut end = 0;
        for count in &mut self.ends {
            // Where they begin, until each that is placed moves that on, to where they end.
            end += std::mem::replace(count, end);
        }
        self.by_task.clear();
        self.by_task.resize(self.found.len(), 0);
        for (place, one) in (0..).zip(&self.found) {
            let to = &mut self.ends[one.task as usize];
            self.by_task[*to as usize] = place;
            *to += 1;
        }
        let mut from = 0;
        for (task, &end) in look.tasks.iter_mut().zip(&self.ends) {
            let places = &mut self.by_task[from as usize..end as usize];
            places.sort_unstable_by_key(|&place| self.found[place as usize].resource);
            let first = look.uses.len();
            for &place in &*places {
                let one = &self.found[place as usize];
                match look.uses[first..].last_mut() {
                    Some(last) if last.resource == one.resource => last.add(one),
                    _ => look.uses.push(*one),
                }
            }
            task.uses = first as u32..look.uses.len() as u32;
            from = end;
        }
    }
}

/// Fills `places` with where each record is found, plus 1.
fn index(places: &mut Vec<u32>, records: usize, found: impl Iterator<Item = usize>) {
    places.clear();
    places.resize(records, 0);
    for (place, record) in (1..).zip(found) {
        places[record] = place;
    }
}

/// What an account did since it was `seen`, which is added to its resource; and, if it is a living task's, to whom it belongs.
fn read(
    account: &AccountRecord,
    seen: &mut Seen,
    looked: bool,
    look: &mut Look,
    resource: usize,
    task: Option<u32>,
) -> Option<Use> {
    let (now_ns, since_ns) = (look.now_ns, look.since_ns);
    let owner = account.owner();
    // A task that lives, and in the same turn.
    let task = task.and_then(|place| Some((place, look.tasks.get(place as usize)?)));
    let task = task.filter(|(_, task)| task.turn as u16 == owner.turn);
    let (who, turn, lives_ns) = match task {
        Some((_, task)) => (task.index + 1, task.turn, now_ns.saturating_sub(task.started_ns)),
        None => (0, 0, u64::MAX),
    };
    let is_new = (seen.task, seen.turn) != (who, turn);
    if is_new {
        (seen.task, seen.turn, seen.total) = (who, turn, Activity::default());
    }

    let held = account.gets.saturating_sub(account.frees);
    // Who is not there neither waits nor holds.
    let since = |time: u64, is: bool| if is && task.is_some() { time.min(now_ns) } else { 0 };
    let waiting_since_ns = since(account.waiting_since_ns, true);
    let holding_since_ns = since(account.holding_since_ns, held > 0);
    let counters = Activity {
        gets: account.gets,
        frees: account.frees,
        slows: account.slows,
        wait_ns: account.wait_ns,
        hold_ns: account.hold_ns,
    };
    let then = std::mem::replace(&mut seen.counters, counters);
    let wait_ns = grown(&mut seen.until.wait_ns, then.wait_ns, counters.wait_ns, waiting_since_ns, now_ns);
    let hold_ns = grown(&mut seen.until.hold_ns, then.hold_ns, counters.hold_ns, holding_since_ns, now_ns);
    // One account is one waiter: at no time it waits twice.
    let may_ns = since_ns.saturating_add(seen.unwaited_ns);
    let wait_ns = wait_ns.min(may_ns);
    seen.unwaited_ns = (may_ns - wait_ns).min(TOLD_LATE_NS);
    let window = match looked {
        true => Activity {
            gets: counters.gets.saturating_sub(then.gets),
            frees: counters.frees.saturating_sub(then.frees),
            slows: counters.slows.saturating_sub(then.slows),
            wait_ns,
            hold_ns: hold_ns.min(since_ns),
        },
        false => Activity::default(),
    };
    let at = look.resources.get_mut(resource)?;
    at.window.add(&window);
    let (place, _) = task?;
    let held = if holding_since_ns == 0 { 0 } else { held };
    let waiting = u32::from(waiting_since_ns != 0);
    // Of what the account's owners before it did since the look before, a task is charged for no more than fits into its own life.
    let (wait_ns, hold_ns) = (window.wait_ns.min(lives_ns), window.hold_ns.min(lives_ns));
    let mut window = Activity { wait_ns, hold_ns, ..window };
    // Nobody had an account that was never used.
    if is_new && then != Activity::default() {
        window.keep_part(lives_ns, since_ns, held, u64::from(waiting));
    }
    seen.total.add(&window);
    at.held = at.held.saturating_add(held);
    at.waiting += waiting;
    Some(Use {
        task: place,
        resource: owner.resource,
        held,
        holding_since_ns,
        waiting,
        waiting_since_ns,
        window,
        total: seen.total,
    })
}

/// By how much a time has grown, with what goes on `since` then. `until` is the most that it ever was: a reader that comes between two
/// stores sees less than happened, and would count the same time twice when it sees the rest. Only a counter that itself is
/// smaller than it was begins anew.
fn grown(until: &mut u64, then: u64, counter: u64, since: u64, now_ns: u64) -> u64 {
    let sum = if since == 0 { counter } else { counter.saturating_add(now_ns - since) };
    if counter < then {
        *until = sum;
        return 0;
    }
    let more = sum.saturating_sub(*until);
    *until = sum.max(*until);
    more
}
