//! Who has what of a node, from look to look: pure.
//!
//! - **Threads.** A pool has so many and takes tasks in the order in which they come: the oldest have one each, the others wait.
//! - **Processors.** OpenSearch says what each task has used of them. While they are all busy, what a task that has a thread has not used of the
//!   time it has waited for one. Elasticsearch says nothing, so that all who have a thread count alike.
//! - **Heap.** What a task allocates has to be collected sooner or later, and collecting stops everybody. Once the heap is full, all of it is
//!   gone through again and again, nobody gets on, and nobody allocates much: then those take most of the collector's work who hold most.
//!   No node says who that is. So what is in use, but for the least that ever was, is taken to be held by who still runs, in the proportion in
//!   which they have allocated; also while only their results are left of them, which their parts' tasks have handed over.

use std::collections::{HashMap, HashSet};

use plimsoll_cancellation::Kind;
use plimsoll_cancellation::scene::{Resource, Use};

use crate::server::chains::Pid;
use crate::server::measured::Measured;

use super::figures::{Change, Did};
use super::tasks::{Part, Pool, Took};

/// The processors count as all busy from this part on.
const BUSY: f64 = 0.8;

/// What a task and all that it began took since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    search_ns: u64,
    write_ns: u64,
    cpu_ns: u64,
    bytes: u64,
    /// What of those bytes is still held, as far as is known.
    held: f64,
}

/// What a root and all that work for it do now.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    search: Use,
    write: Use,
    /// Since the last look.
    recent: Total,
    /// Threads that it has.
    threads: u64,
    /// What is held of the heap at most.
    bytes: u64,
}

/// Remembers who took what.
#[derive(Debug, Default)]
pub struct Takings {
    parts: HashMap<Pid, Took>,
    /// For how long each part has had its thread, in ns, and of which pools somebody waited for one; nothing before the first look.
    had: Option<HashMap<Pid, u64>>,
    queued: Vec<Pool>,
    totals: HashMap<Pid, Total>,
    /// The least that ever was in use of the heap, in bytes.
    least: Option<u64>,
}

impl Takings {
    /// Takes in a look: at who is there, who works for them, and what the node did. `processors` is how many there are.
    pub fn look(
        &mut self,
        roots: &HashSet<Pid>,
        parts: &[Part],
        change: &Change,
        processors: u64,
    ) -> Vec<Measured> {
        let elapsed_ns = change.elapsed_ns;
        let mut now: HashMap<Pid, Now> = HashMap::new();
        let (working, waiting) = in_turn(parts, Pool::Search, change.search.threads);
        let search = pool("search threads", elapsed_ns, &change.search, working.len(), waiting.len());
        let (writing, queueing) = in_turn(parts, Pool::Write, change.write.threads);
        let write = pool("write threads", elapsed_ns, &change.write, writing.len(), queueing.len());
        for part in waiting.iter().chain(&queueing) {
            let used = now.entry(part.root).or_default().of(part.pool);
            used.waiting_ns = used.waiting_ns.max(part.age_ns.max(1));
        }
        let at_work: Vec<&Part> = working.iter().chain(&writing).copied().collect();
        let share_ns = (change.processors * elapsed_ns as f64 / at_work.len().max(1) as f64) as u64;
        let had = self.had_threads(&at_work, elapsed_ns);
        let mut used_ns = 0;
        for part in &at_work {
            let took = self.since(part, elapsed_ns, share_ns);
            used_ns = u64::saturating_add(used_ns, took.cpu_ns);
            let had_ns = had[&part.id];
            now.entry(part.root).or_default().works(part, elapsed_ns, had_ns, took);
        }
        self.had = Some(had);
        self.queued = waiting.iter().chain(&queueing).map(|part| part.pool).collect();
        self.queued.dedup();
        self.parts = parts.iter().filter_map(|part| Some((part.id, part.took?))).collect();
        let before = std::mem::take(&mut self.totals);
        self.totals.extend(roots.iter().map(|&root| {
            let recent = now.get(&root).map_or(Total::default(), |now| now.recent);
            (root, before.get(&root).copied().unwrap_or_default().plus(recent))
        }));
        let all_ns = (change.processors * elapsed_ns as f64) as u64;
        let cpu = self.processors(&now, used_ns.max(all_ns), elapsed_ns, processors);
        if let Some(in_use) = change.in_use {
            self.hold(in_use);
        }
        let heap = self.heap(&now, change);
        let uses = |of: fn(&Now, &Total) -> Use| self.uses(&now, of);
        vec![
            Measured { uses: uses(|now, total| Use { used: total.search_ns, ..now.search }), ..search },
            Measured { uses: uses(|now, total| Use { used: total.write_ns, ..now.write }), ..write },
            cpu,
            heap,
        ]
    }

    /// For how long each of those at work has had its thread. What it is told of is when they came, and under overload most of the time since then they
    /// have waited. Who came while others waited has just got one, as far as is known, or has had one for at least what it used of processors; who was
    /// there at the first look may have had one all the time.
    fn had_threads(&self, at_work: &[&Part], elapsed_ns: u64) -> HashMap<Pid, u64> {
        let had_ns = |part: &Part| {
            let seen_ns = match self.had.as_ref().map(|had| had.get(&part.id)) {
                Some(Some(before)) => before.saturating_add(elapsed_ns),
                Some(None) if part.age_ns > elapsed_ns || self.queued.contains(&part.pool) => 0,
                Some(None) | None => part.age_ns,
            };
            seen_ns.max(part.took.map_or(0, |took| took.cpu_ns)).min(part.age_ns)
        };
        at_work.iter().map(|part| (part.id, had_ns(part))).collect()
    }

    /// What a part took since the last look.
    fn since(&self, part: &Part, elapsed_ns: u64, share_ns: u64) -> Took {
        let there_ns = elapsed_ns.min(part.age_ns);
        match (part.took, self.parts.get(&part.id)) {
            (Some(took), before) => {
                let before = before.copied().unwrap_or_default();
                Took {
                    cpu_ns: took.cpu_ns.saturating_sub(before.cpu_ns),
                    bytes: took.bytes.saturating_sub(before.bytes),
                }
            }
            (None, _) => Took { cpu_ns: share_ns.min(there_ns), bytes: 0 },
        }
    }

    fn uses(&self, now: &HashMap<Pid, Now>, of: impl Fn(&Now, &Total) -> Use) -> Vec<(Pid, Use)> {
        let none = Now::default();
        let uses =
            self.totals.iter().map(|(&root, total)| (root, of(now.get(&root).unwrap_or(&none), total)));
        uses.filter(|(_, used)| used.recent > 0 || used.held > 0 || used.waiting_ns > 0).collect()
    }

    fn processors(
        &self,
        now: &HashMap<Pid, Now>,
        used_ns: u64,
        elapsed_ns: u64,
        processors: u64,
    ) -> Measured {
        let there_ns = elapsed_ns.saturating_mul(processors);
        let busy = there_ns > 0 && used_ns as f64 >= BUSY * there_ns as f64;
        // Of the time for which it had threads, what it did not use.
        let lost_ns = |now: &Now| now.threads.saturating_mul(elapsed_ns).saturating_sub(now.recent.cpu_ns);
        let delay_ns = if busy { sum(now.values().map(lost_ns)) } else { 0 };
        let quiet = Resource::quiet(Kind::Cpu, processors);
        Measured {
            name: "processors",
            resource: Resource { gets: used_ns, use_ns: used_ns, delay_ns, ..quiet },
            uses: self.uses(now, |now, total| Use {
                recent: now.recent.cpu_ns,
                used: total.cpu_ns,
                ..Use::default()
            }),
        }
    }

    /// What is in use of the heap is held by who still runs.
    fn hold(&mut self, in_use: u64) {
        let least = self.least.map_or(in_use, |least| least.min(in_use));
        self.least = Some(least);
        let all: f64 = self.totals.values().map(|total| total.held).sum();
        let part = ((in_use - least) as f64 / all.max(1.0)).min(1.0);
        self.totals.values_mut().for_each(|total| total.held *= part);
    }

    fn heap(&self, now: &HashMap<Pid, Now>, change: &Change) -> Measured {
        let recent = sum(now.values().map(|now| now.recent.bytes));
        // Nobody allocates while it stands still.
        let grown = change.allocated_per_s * (1.0 - change.paused.part) * change.elapsed_ns as f64 / 1e9;
        let gets = recent.max(grown as u64);
        // It stops all of them.
        let delay_ns = change.paused.part * change.elapsed_ns as f64 * self.totals.len() as f64;
        let full = change.full_per_s * change.elapsed_ns as f64 / 1e9;
        let quiet = Resource::quiet(Kind::Memory, change.heap);
        let uses = self.uses(now, |now, total| Use {
            held: now.bytes.max(total.held as u64),
            recent: now.recent.bytes.saturating_add((full * total.held) as u64),
            used: total.bytes,
            ..Use::default()
        });
        Measured {
            name: "heap",
            resource: Resource { gets, slows: gets, delay_ns: delay_ns as u64, ..quiet },
            uses,
        }
    }
}

impl Total {
    fn plus(self, other: Total) -> Total {
        Total {
            search_ns: self.search_ns.saturating_add(other.search_ns),
            write_ns: self.write_ns.saturating_add(other.write_ns),
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            bytes: self.bytes.saturating_add(other.bytes),
            held: self.held + other.bytes as f64,
        }
    }
}

impl Now {
    fn of(&mut self, pool: Pool) -> &mut Use {
        match pool {
            Pool::Search => &mut self.search,
            Pool::Write => &mut self.write,
        }
    }

    /// Takes in one that has a thread, and has had it for so long.
    fn works(&mut self, part: &Part, elapsed_ns: u64, held_ns: u64, took: Took) {
        let had_ns = elapsed_ns.min(held_ns);
        let used = self.of(part.pool);
        used.held += 1;
        used.held_ns = used.held_ns.max(held_ns.max(1));
        used.recent = used.recent.saturating_add(had_ns);
        // Who has one waits no more, whoever else works for it.
        used.waiting_ns = 0;
        let (search_ns, write_ns) = match part.pool {
            Pool::Search => (had_ns, 0),
            Pool::Write => (0, had_ns),
        };
        let Took { cpu_ns, bytes } = took;
        self.recent = self.recent.plus(Total { search_ns, write_ns, cpu_ns, bytes, held: 0.0 });
        self.threads += 1;
        self.bytes = self.bytes.saturating_add(part.took.map_or(0, |took| took.bytes));
    }
}

/// Whatever a node says, no sum of it is less than its parts.
fn sum(of: impl Iterator<Item = u64>) -> u64 {
    of.fold(0, u64::saturating_add)
}

/// Those that have a thread of a pool, and those that wait for one.
fn in_turn(parts: &[Part], pool: Pool, threads: u64) -> (Vec<&Part>, Vec<&Part>) {
    let mut all: Vec<&Part> = parts.iter().filter(|part| part.pool == pool).collect();
    // Of those that came at the same time the first has the lower number.
    all.sort_by_key(|part| (std::cmp::Reverse(part.age_ns), part.id));
    let waiting = all.split_off(all.len().min(threads.max(1) as usize));
    (all, waiting)
}

/// A look is a sample: who is seen to wait, or to have a thread, stands for all who did in the time since the last.
fn pool(name: &'static str, elapsed_ns: u64, did: &Did, working: usize, waiting: usize) -> Measured {
    let resource = Resource {
        gets: did.ended,
        slows: waiting as u64,
        delay_ns: elapsed_ns.saturating_mul(waiting as u64),
        use_ns: elapsed_ns.saturating_mul(working as u64),
        ended: did.ended,
        ended_ns: did.ended_ns,
        ..Resource::quiet(Kind::Queue, did.threads)
    };
    Measured { name, resource, uses: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::latency::Pauses;

    const MS: u64 = 1_000_000;

    fn part(id: Pid, age_ms: u64, cpu_ms: u64) -> Part {
        let took = Some(Took { cpu_ns: cpu_ms * MS, bytes: 1_000 * cpu_ms });
        Part { id, root: 100 + id, pool: Pool::Search, age_ns: age_ms * MS, took }
    }

    fn change() -> Change {
        let pool = |threads| Did { threads, ended: 10, ended_ns: 40 * MS };
        Change { elapsed_ns: 100 * MS, search: pool(2), write: pool(1), heap: 1 << 30, ..Change::default() }
    }

    impl Takings {
        fn sees(&mut self, parts: &[Part], change: &Change, processors: u64) -> Vec<Measured> {
            self.look(&parts.iter().map(|part| part.root).collect(), parts, change, processors)
        }
    }

    fn of(measured: &[Measured], name: &str) -> (Resource, HashMap<Pid, Use>) {
        let found = measured.iter().find(|measured| measured.name == name).unwrap();
        (found.resource, found.uses.iter().copied().collect())
    }

    #[test]
    fn the_oldest_have_the_threads_and_the_others_wait() {
        let mut takings = Takings::default();
        let parts = [part(3, 5, 0), part(1, 900, 800), part(2, 60, 30), part(4, 5, 0)];
        let (threads, uses) = of(&takings.sees(&parts, &change(), 2), "search threads");
        assert_eq!((threads.kind, threads.capacity), (Kind::Queue, 2));
        assert_eq!((threads.delay_ns, threads.use_ns), (200 * MS, 200 * MS));
        assert_eq!((threads.ended, threads.ended_ns), (10, 40 * MS));
        let [first, second, third] = [101, 102, 103].map(|root| uses[&root]);
        assert_eq!((first.held, first.held_ns, first.recent), (1, 900 * MS, 100 * MS));
        assert_eq!((second.held, second.held_ns, second.recent), (1, 60 * MS, 60 * MS));
        assert_eq!((third.held, third.waiting_ns), (0, 5 * MS));
        let (_, uses) = of(&takings.sees(&parts, &change(), 2), "search threads");
        assert_eq!(uses[&101].used, 200 * MS, "of both looks together");
    }

    #[test]
    fn who_has_waited_for_a_thread_has_it_since_then() {
        let mut takings = Takings::default();
        let came = [part(1, 20, 0), part(2, 20, 0), part(3, 10, 0)];
        takings.sees(&came, &change(), 2);
        let look = |takings: &mut Takings, parts: &[Part]| {
            of(&takings.sees(parts, &change(), 2), "search threads").1
        };
        let uses = look(&mut takings, &[part(1, 520, 0), part(2, 520, 0), part(3, 510, 0)]);
        assert_eq!((uses[&101].held_ns, uses[&103].waiting_ns), (120 * MS, 510 * MS), "as far as was seen");
        // The first is gone, and the third has its thread, though it came long ago.
        let uses = look(&mut takings, &[part(2, 620, 0), part(3, 610, 0), part(4, 40, 0)]);
        assert_eq!((uses[&103].held, uses[&103].held_ns, uses[&103].recent), (1, 1, 0), "just now");
        let uses = look(&mut takings, &[part(3, 710, 0), part(5, 60, 0), part(4, 140, 20)]);
        assert_eq!((uses[&103].held_ns, uses[&103].recent), (100 * MS, 100 * MS));
        assert_eq!((uses[&104].held_ns, uses[&105].waiting_ns), (20 * MS, 60 * MS), "it has computed");
    }

    #[test]
    fn what_is_not_used_of_busy_processors_was_waited_for() {
        let mut takings = Takings::default();
        takings.sees(&[part(1, 900, 700), part(2, 900, 700)], &change(), 1);
        let (cpu, uses) =
            of(&takings.sees(&[part(1, 1_000, 760), part(2, 1_000, 730)], &change(), 1), "processors");
        assert_eq!((cpu.use_ns, cpu.delay_ns), (90 * MS, 110 * MS));
        assert_eq!((uses[&101].recent, uses[&102].recent), (60 * MS, 30 * MS));
        let (idle, _) =
            of(&takings.sees(&[part(1, 1_100, 800), part(2, 1_100, 740)], &change(), 1), "processors");
        assert_eq!((idle.use_ns, idle.delay_ns), (50 * MS, 0), "they waited for something else");
    }

    #[test]
    fn who_says_nothing_of_processors_is_taken_to_share_them() {
        let mut takings = Takings::default();
        let part = |id, age_ms| Part { took: None, ..part(id, age_ms, 0) };
        let change = Change { processors: 1.0, ..change() };
        let (cpu, uses) =
            of(&takings.sees(&[part(1, 900), part(2, 900), part(3, 900)], &change, 1), "processors");
        assert_eq!((cpu.use_ns, cpu.delay_ns), (100 * MS, 100 * MS), "two have a thread");
        assert_eq!((uses[&101].recent, uses.get(&103)), (50 * MS, None));
    }

    #[test]
    fn what_is_allocated_is_collected_and_stops_all() {
        let mut takings = Takings::default();
        let change = Change { paused: Pauses::of(1, 1, 2), ..change() };
        takings.sees(&[part(1, 900, 700), part(2, 900, 1)], &change, 2);
        let (heap, uses) = of(&takings.sees(&[part(1, 1_000, 800), part(2, 1_000, 2)], &change, 2), "heap");
        assert_eq!((heap.gets, heap.slows, heap.delay_ns), (101_000, 101_000, 100 * MS));
        assert_eq!((uses[&101].held, uses[&101].recent), (800_000, 100_000));
        assert_eq!((uses[&102].held, uses[&102].recent), (2_000, 1_000));
    }

    #[test]
    fn while_a_full_heap_is_gone_through_again_and_again_those_who_hold_it_take_most() {
        let mut takings = Takings::default();
        let roots = HashSet::from([101, 102, 103]);
        let change = |in_use, full_per_s| {
            let paused = Pauses { part: 0.8, each_ns: 200 * MS };
            Change { in_use, full_per_s, paused, ..change() }
        };
        takings.look(&roots, &[], &change(Some(1_000), 0.0), 2);
        // One allocates 800 kB and keeps it, one 100; there are 451 in use then, half of what they have allocated.
        let parts = [part(1, 900, 800), part(2, 900, 100)];
        takings.look(&roots, &parts, &change(Some(451_000), 0.0), 2);
        // What is left of them are results that nobody works on, and one that has hardly begun. All is gone through half a time a look.
        let measured = takings.look(&roots, &[part(3, 1, 1)], &change(None, 5.0), 2);
        let (heap, uses) = of(&measured, "heap");
        assert_eq!((heap.gets, heap.delay_ns), (1_000, 240 * MS), "it stops all three");
        assert_eq!((uses[&101].held, uses[&101].recent, uses[&101].used), (400_000, 200_000, 800_000));
        assert_eq!((uses[&102].held, uses[&102].recent), (50_000, 25_000));
        assert_eq!((uses[&103].held, uses[&103].recent), (1_000, 1_500));
        // The first is gone, and what it held is collected.
        takings.look(&HashSet::from([102, 103]), &[], &change(Some(26_500), 5.0), 2);
        let held = |root| takings.totals[&root].held;
        assert_eq!((takings.totals.contains_key(&101), held(102), held(103)), (false, 25_000.0, 500.0));
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut takings = Takings::default();
        takings.sees(&[part(1, 900, 700)], &change(), 2);
        takings.look(&HashSet::from([101]), &[], &change(), 2);
        let (_, uses) = of(&takings.sees(&[part(2, 1, 1), part(1, 5, 5)], &change(), 2), "processors");
        assert_eq!(
            (uses[&101].recent, uses[&101].used),
            (5 * MS, 705 * MS),
            "it does one thing after the other"
        );
        takings.sees(&[], &change(), 2);
        assert!(takings.parts.is_empty() && takings.totals.is_empty());
    }
}
