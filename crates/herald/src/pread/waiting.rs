//! Who waits for a CPU now. The counter of waits stands still while a thread waits, so one that waits looks like one that sleeps: only
//! its state, in `stat`, tells, which costs ten times what the counters do. How many threads there are to be found is known, though:
//! `loadavg` tells how many are ready to run.

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Group, TaskId};

use super::thread::Thread;
use crate::parse::{Stat, status};
use crate::proc::Proc;

/// States that are read at one reading: at least, as who is hungry may sleep for once, and at most, besides those who are known to wait.
const CHECKED: (usize, usize) = (2, 256);
/// Whoever made progress since then is looked at before those who have slept for longer.
const RECENT: Nanos = Nanos::from_secs(2);

/// How many are ready to run by what was read now: those who waited before, and of those who made progress as many as are at a moment.
pub fn explained(threads: &[Thread], now: Nanos) -> f64 {
    let ready = |thread: &Thread| match thread.waits_since {
        Some(_) => 1.0,
        None if thread.moved_at == now => thread.did.busy,
        None => 0.0,
    };
    threads.iter().map(ready).sum()
}

/// Finds those who have made no progress since the last reading though they are ready to run. `runnable` are, this thread among them;
/// `next` is where the search goes on.
pub fn find(
    threads: &mut [Thread],
    next: &mut usize,
    runnable: u64,
    groups: &[Group],
    now: Nanos,
    proc: &mut Proc,
) {
    let stood_still = |thread: &Thread| thread.moved_at < now;
    let mut explained = 0;
    let mut throttled = 0;
    for thread in threads.iter_mut() {
        if thread.waits_since.is_some() || (!stood_still(thread) && thread.may_wait()) {
            explained += u64::from(check(thread, now, proc));
        } else if !stood_still(thread) {
            // This thread itself is one of them.
            explained += u64::from(thread.is_hungry());
        } else if is_recent(thread, now) && has_quota(groups, thread.did.scheduling.group) {
            throttled += 1;
        }
    }
    // Whoever is kept from running by a quota is not among the runnable.
    let unexplained = usize::try_from(runnable.saturating_sub(1 + explained)).unwrap_or(usize::MAX);
    let mut left = (4_usize.saturating_mul(unexplained) + throttled).clamp(CHECKED.0, CHECKED.1);
    let start = *next;
    // Who has slept for long is looked at where somebody is missing.
    let whom: &[bool] = if unexplained > 0 { &[true, false] } else { &[true] };
    for &recent in whom {
        for step in 0..threads.len() {
            let at = (start + step) % threads.len();
            let thread = &mut threads[at];
            if !stood_still(thread) || thread.waits_since.is_some() || is_recent(thread, now) != recent {
                continue;
            }
            check(thread, now, proc);
            *next = at + 1;
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

fn is_recent(thread: &Thread, now: Nanos) -> bool {
    now.since(thread.moved_at) < RECENT
}

/// Whether a group, or one that it is in, has a quota.
fn has_quota(groups: &[Group], mut at: u32) -> bool {
    loop {
        let Some(group) = groups.get(at as usize) else { return false };
        if group.quota_cpus.is_some() || at == 0 {
            return group.quota_cpus.is_some();
        }
        at = group.parent;
    }
}

/// Reads the state of a thread that made no progress, or is new; returns whether it is ready to run.
pub fn check(thread: &mut Thread, now: Nanos, proc: &mut Proc) -> bool {
    let TaskId { pid, tid, started } = thread.id;
    let stat = proc.text(format_args!("{pid}/task/{tid}/stat")).ok().and_then(Stat::parse);
    let ready = stat.is_some_and(|(_, stat)| stat.state == b'R' && stat.started == started);
    if ready && thread.may_sleep(now) {
        let text = proc.text(format_args!("{pid}/task/{tid}/status"));
        let slept = text.ok().and_then(|text| status(text, "voluntary_ctxt_switches")?.parse().ok());
        slept.into_iter().for_each(|slept| thread.slept(slept, now));
    }
    thread.found(ready, now);
    ready
}
