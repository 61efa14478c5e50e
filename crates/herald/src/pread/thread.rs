//! A thread, as it was last read.

use std::io;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{TaskId, TaskSample};
use rustix::fd::OwnedFd;

use crate::describe::Scheduling;
use crate::parse::Times;
use crate::proc::Proc;

/// From one glance to the next.
const BETWEEN_GLANCES: Nanos = Nanos::from_secs(1);
/// From one description to the next.
const BETWEEN_DESCRIPTIONS: Nanos = Nanos::from_secs(30);
/// Who has done nothing for so long is read once in so many readings, as long as nobody seems to have woken up, and whenever it was not for
/// so long: what it does meanwhile is in its counters.
const SELDOM: [(Nanos, u32, Nanos); 2] =
    [(Nanos::from_secs(10), 10, Nanos::from_millis(950)), (Nanos::from_secs(2), 3, Nanos::from_millis(250))];
/// The part of the time for which a thread must have run or waited to count as one that wants to run all the time.
const HUNGRY: f64 = 0.8;
/// That is looked back on for so long at least, and for twice that at most: of one that has a slice now and then most of its wait is told only by
/// the next slice.
const LOOK_BACK: Nanos = Nanos::from_secs(1);
/// From one time that a thread is asked how often it sleeps to the next.
const BETWEEN_ASKING: Nanos = Nanos::from_millis(500);
/// One that computes gives up its CPU by itself less often than once in so many turns.
const MOSTLY: u64 = 10;
/// A wait that is worth the cost of finding out about it: more than the ticks that one who runs may be behind, and little of what one has of a
/// CPU that it shares with many.
const LONG: Nanos = Nanos::from_millis(8);

/// What is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// How it is scheduled.
    Glance,
    /// All.
    Description,
}

/// What a thread had run and waited, together.
#[derive(Clone, Copy)]
struct Mark {
    at: Nanos,
    wanted_ns: u64,
}

impl Mark {
    /// The part of the time from then to `now` for which it wanted to run.
    fn busy(self, now: Mark) -> f64 {
        let over = now.at.since(self.at).0.max(1);
        (now.wanted_ns.saturating_sub(self.wanted_ns) as f64 / over as f64).min(1.0)
    }
}

/// One that lives.
pub struct Thread {
    /// Who.
    pub id: TaskId,
    /// It was found that another thread has its number now.
    pub is_another: bool,
    /// When it was last seen to have made progress.
    pub moved_at: Nanos,
    /// Since when it has been ready to run without progress.
    pub waits_since: Option<Nanos>,
    /// Whether it is as it was when its sample was taken last.
    is_told: bool,
    /// When its counters were read last.
    pub read_at: Nanos,
    /// When the last glance was.
    glanced_at: Nanos,
    glance_at: Nanos,
    describe_at: Nanos,
    /// It has been described but once. Who is new often changes its name at once, so the second time comes soon.
    is_new: bool,
    /// What it did. Most threads do nothing most of the time: apart from the rest, so that this is not in the way where all are looked at.
    pub did: Box<Did>,
}

/// What a thread did.
pub struct Did {
    /// Its counters, where they are kept open. Such a file never shows another thread that was given the same number.
    pub file: Option<OwnedFd>,
    born: Option<Nanos>,
    times: Times,
    /// What was counted before the counters began anew: a thread that replaces its process takes the number of the first one.
    before: Times,
    wait_ns: u64,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// The part of the time for which it wanted to run, when it was last seen to have made progress.
    pub busy: f64,
    /// What it had run and waited at two moments before that.
    marks: [Mark; 2],
    /// Since when the counters do not say what it does: it sleeps, or has been waiting since.
    untold_since: Nanos,
    /// When it was last asked how often it slept, how often it had by then, and how many times it had been given a CPU.
    asked: Option<Asked>,
    /// Whether it gives up its CPU by itself now and then.
    sleeps: bool,
}

/// What a thread was found to have done by then.
#[derive(Clone, Copy)]
struct Asked {
    at: Nanos,
    slept: u64,
    turns: u64,
}

impl Did {
    /// What it has run and waited by its counters, together.
    fn wanted_ns(&self) -> u64 {
        self.before.run_ns + self.times.run_ns + self.before.delay_ns + self.times.delay_ns
    }
}

impl Thread {
    /// A new one.
    pub fn new(id: TaskId, scheduling: Scheduling, file: Option<OwnedFd>, now: Nanos) -> Thread {
        Thread {
            id,
            is_another: false,
            moved_at: now,
            waits_since: None,
            is_told: false,
            read_at: now,
            glanced_at: now,
            glance_at: now + apart(id, BETWEEN_GLANCES),
            describe_at: now + BETWEEN_GLANCES + apart(id, BETWEEN_GLANCES),
            is_new: true,
            did: Box::new(Did {
                file,
                born: None,
                times: Times::default(),
                before: Times::default(),
                wait_ns: 0,
                scheduling,
                busy: 0.0,
                marks: [Mark { at: now, wanted_ns: 0 }; 2],
                untold_since: now,
                asked: None,
                sleeps: false,
            }),
        }
    }

    /// Reads its counters.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn read(&mut self, now: Nanos, proc: &mut Proc) -> io::Result<()> {
        if self.is_another {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut buffer = [0_u8; 96];
        let times = match &self.did.file {
            Some(file) => {
                let read = rustix::io::pread(file, &mut buffer, 0)?;
                Times::parse(&buffer[..read])
            }
            None => {
                let TaskId { pid, tid, .. } = self.id;
                Times::parse(proc.text(format_args!("{pid}/task/{tid}/schedstat"))?)
            }
        };
        self.note(times.ok_or(io::ErrorKind::InvalidData)?, now);
        Ok(())
    }

    /// It was born between these times, and was found ready to run or not when it was first read.
    pub fn was_born(&mut self, [from, to]: [Nanos; 2], ready: bool) {
        // What it did is all of its life where it has not slept since. Then a life that is told too short does no harm, and one that is told
        // too long shows as time in which it did not want to run.
        let never_slept = ready && self.is_hungry();
        self.did.born = Some(if never_slept { to } else { Nanos(from.0.midpoint(to.0)) });
    }

    /// Whether its counters are to be read in this turn of all.
    pub fn is_in_turn(&self, turn: u32, now: Nanos) -> bool {
        let still = if self.waits_since.is_some() { Nanos::ZERO } else { now.since(self.moved_at) };
        SELDOM.iter().find(|(least, ..)| still >= *least).is_none_or(|&(_, turns, longest)| {
            self.id.tid.wrapping_add(turn).is_multiple_of(turns) || now.since(self.read_at) >= longest
        })
    }

    /// Whether it has made progress, and may have begun to wait long before the reading.
    pub fn may_wait(&self) -> bool {
        self.is_hungry() && self.moved_at.since(self.did.untold_since) >= LONG
    }

    /// Whether it wanted to run all the time when it was last seen to have made progress.
    pub fn is_hungry(&self) -> bool {
        self.did.busy >= HUNGRY && !self.did.sleeps
    }

    /// Whether it is to be asked how often it sleeps: one that waits for most of the time may do so for a slice, or for one after the other. The
    /// counters do not tell.
    pub fn may_sleep(&self, now: Nanos) -> bool {
        self.did.busy >= HUNGRY && self.did.asked.is_none_or(|asked| now.since(asked.at) >= BETWEEN_ASKING)
    }

    /// So many times it has given up its CPU by itself.
    pub fn slept(&mut self, slept: u64, now: Nanos) {
        let did = &mut *self.did;
        let Asked { slept: slept_before, turns: turns_before, .. } =
            did.asked.unwrap_or(Asked { at: now, slept: 0, turns: 0 });
        let turns = did.times.turns.saturating_sub(turns_before);
        // Whoever computes may have to wait for a page or a lock, too.
        did.sleeps = MOSTLY * slept.saturating_sub(slept_before) > turns;
        did.asked = Some(Asked { at: now, slept, turns: did.times.turns });
    }

    fn note(&mut self, times: Times, now: Nanos) {
        let did = &mut *self.did;
        let last = Mark { at: std::mem::replace(&mut self.read_at, now), wanted_ns: did.wanted_ns() };
        if times == did.times {
            return;
        }
        if times.run_ns < did.times.run_ns || times.delay_ns < did.times.delay_ns {
            did.before.run_ns += did.times.run_ns;
            did.before.delay_ns += did.times.delay_ns;
        }
        did.times = times;
        did.wait_ns = did.wait_ns.max(did.before.delay_ns + times.delay_ns);
        let mark = Mark { at: now, wanted_ns: did.wanted_ns() };
        did.busy = last.busy(mark).max(did.marks[0].busy(mark));
        // Its last turn ended since the reading before.
        let told = Nanos(mark.wanted_ns.saturating_sub(last.wanted_ns));
        did.untold_since = (did.untold_since + told).clamp(last.at, now);
        if last.at == now {
            // What it did before it was known says nothing of when.
            did.marks = [mark; 2];
        } else if now.since(did.marks[1].at) >= LOOK_BACK {
            did.marks = [did.marks[1], mark];
        }
        self.is_told = false;
        self.moved_at = now;
        self.waits_since = None;
    }

    /// It was found ready to run, or not, and has made no progress since the last reading, or may have begun to wait before.
    pub fn found(&mut self, ready: bool, now: Nanos) {
        if !ready {
            self.waits_since = None;
            self.did.untold_since = now;
            return;
        }
        // One that wanted to run all the time has waited since it last ran. Another one may have slept meanwhile; what that has waited
        // before now is told when it runs again.
        let since =
            *self.waits_since.get_or_insert(if self.is_hungry() { self.did.untold_since } else { now });
        self.did.wait_ns =
            self.did.wait_ns.max(self.did.before.delay_ns + self.did.times.delay_ns + now.since(since).0);
        self.is_told = false;
    }

    /// It is scheduled like this.
    pub fn reschedule(&mut self, scheduling: Scheduling) {
        self.is_told &= scheduling == self.did.scheduling;
        self.did.scheduling = scheduling;
    }

    /// Its sample, if that is another than the last.
    pub fn news(&mut self) -> Option<TaskSample> {
        let is_told = std::mem::replace(&mut self.is_told, true);
        (!is_told).then(|| self.sample())
    }

    /// As the model wants it.
    pub fn sample(&self) -> TaskSample {
        let Scheduling { policy, nice, group, cpus } = self.did.scheduling;
        let run_ns = self.did.before.run_ns + self.did.times.run_ns;
        let Did { wait_ns, born, .. } = *self.did;
        TaskSample { id: self.id, run_ns, wait_ns, born, policy, nice, group, cpus }
    }

    /// What is to be looked at now; that is not due again before its time has passed.
    pub fn due(&mut self, now: Nanos) -> Due {
        if now >= self.describe_at {
            let first = if self.is_new { apart(self.id, BETWEEN_DESCRIPTIONS) } else { Nanos::ZERO };
            self.is_new = false;
            self.describe_at = now + BETWEEN_DESCRIPTIONS + first;
            (self.glanced_at, self.glance_at) = (now, now + BETWEEN_GLANCES);
            return Due::Description;
        }
        // Whoever has not run since competes with nobody, however it is scheduled by now.
        if now >= self.glance_at && self.moved_at > self.glanced_at {
            (self.glanced_at, self.glance_at) = (now, now + BETWEEN_GLANCES);
            return Due::Glance;
        }
        Due::Nothing
    }
}

/// Spreads what is due, so that not all of those that began together are looked at together.
fn apart(id: TaskId, period: Nanos) -> Nanos {
    Nanos(period.0 / 64 * u64::from(id.tid % 64))
}

#[cfg(test)]
mod tests {
    use plimsoll_cpufutures::Policy;

    use super::*;

    fn thread() -> Thread {
        let scheduling = Scheduling { policy: Policy::Normal, nice: 0, group: 0, cpus: 0 };
        Thread::new(TaskId { pid: 1, tid: 1, started: 1 }, scheduling, None, Nanos::ZERO)
    }

    fn times(run_ms: u64, delay_ms: u64) -> Times {
        Times { run_ns: run_ms * 1_000_000, delay_ns: delay_ms * 1_000_000, turns: run_ms + delay_ms }
    }

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn the_wait_that_goes_on_is_counted_and_never_twice() {
        let mut thread = thread();
        thread.note(times(100, 0), ms(100));
        // It had run all the time, so it waits since then.
        thread.note(times(100, 0), ms(200));
        thread.found(true, ms(200));
        assert_eq!(thread.sample().wait_ns, ms(100).0);
        thread.note(times(100, 0), ms(300));
        thread.found(true, ms(300));
        assert_eq!(thread.sample().wait_ns, ms(200).0);
        // It ran again after 250 ms: the counter has it all.
        thread.note(times(150, 250), ms(400));
        assert_eq!((thread.sample().wait_ns, thread.sample().run_ns), (ms(250).0, ms(150).0));
        assert_eq!(thread.waits_since, None);
    }

    /// Before, it was told to want half of what it does.
    #[test]
    fn one_that_has_a_slice_now_and_then_has_waited_since_the_last() {
        let mut thread = thread();
        for turn in 0..20_u64 {
            // Slices of four milliseconds begin 90 and 106 ms after the turn has, and the next turn does after 300.
            let began = 300 * turn;
            let of_before = 292 * turn + 90;
            thread.note(times(8 * turn + 4, of_before), ms(began + 100));
            thread.note(times(8 * turn + 8, of_before + 12), ms(began + 200));
            assert!(turn == 0 || thread.may_wait(), "turn {turn}");
            thread.found(true, ms(began + 200));
            assert!(turn == 0 || thread.sample().wait_ns == ms(of_before + 12 + 90).0, "turn {turn}");
            thread.note(times(8 * turn + 8, of_before + 12), ms(began + 300));
            thread.found(true, ms(began + 300));
            assert!(turn == 0 || thread.sample().wait_ns == ms(of_before + 12 + 190).0, "turn {turn}");
        }
    }

    /// One that has a CPU for 3 ms in 70, and sleeps for 7 of those, wants to run for most of the time, too.
    #[test]
    fn nor_has_one_that_sleeps_between_two_slices_waited_since_the_last() {
        let mut thread = thread();
        for turn in 1..=20_u64 {
            thread.note(Times { turns: turn, ..times(3 * turn, 60 * turn) }, ms(70 * turn));
            if thread.may_sleep(ms(70 * turn)) {
                thread.slept(turn, ms(70 * turn));
            }
        }
        assert!(!thread.is_hungry());
        thread.found(true, ms(1_440));
        assert_eq!(thread.sample().wait_ns, ms(1_200).0, "it waits from now on");
        // As soon as it only computes, it is hungry again.
        for turn in 21..=40_u64 {
            thread.note(Times { turns: turn, ..times(3 * turn, 67 * turn) }, ms(70 * turn));
            if thread.may_sleep(ms(70 * turn)) {
                thread.slept(20, ms(70 * turn));
            }
        }
        assert!(thread.is_hungry());
    }

    #[test]
    fn one_that_has_done_nothing_but_compute_is_not_said_to_be_older_than_it_may_be() {
        let tick = [ms(90), ms(100)];
        let born = |slept: u64, ready: bool| {
            let mut thread = thread();
            thread.note(Times { turns: 20, ..times(10, 40) }, Nanos::ZERO);
            thread.slept(slept, Nanos::ZERO);
            thread.was_born(tick, ready);
            thread.sample().born
        };
        assert_eq!(born(0, true), Some(ms(100)));
        assert_eq!(born(5, true), Some(ms(95)));
        assert_eq!(born(0, false), Some(ms(95)));
    }

    #[test]
    fn who_may_have_slept_waits_from_now_on() {
        let mut thread = thread();
        thread.note(times(10, 0), ms(100));
        thread.note(times(10, 0), ms(200));
        thread.found(true, ms(200));
        assert_eq!(thread.sample().wait_ns, 0);
        thread.found(true, ms(300));
        assert_eq!(thread.sample().wait_ns, ms(100).0);
        // It was stopped or moved away before it ran: what was told stays told.
        thread.found(false, ms(400));
        assert_eq!(thread.sample().wait_ns, ms(100).0);
    }

    #[test]
    fn counters_that_begin_anew_go_on() {
        let mut thread = thread();
        thread.note(times(100, 50), ms(200));
        thread.note(times(3, 1), ms(300));
        thread.note(times(5, 2), ms(400));
        assert_eq!((thread.sample().run_ns, thread.sample().wait_ns), (ms(105).0, ms(52).0));
    }

    #[test]
    fn the_longer_it_has_slept_the_more_seldom_it_is_read() {
        let mut thread = thread();
        let mut readings = Vec::new();
        for turn in 1..=300 {
            let now = ms(100 * u64::from(turn));
            if thread.is_in_turn(turn, now) {
                thread.note(Times::default(), now);
                readings.push(turn);
            }
        }
        let between = |from, to| readings.iter().filter(|turn| (from..to).contains(*turn)).count();
        assert_eq!(between(1, 20), 19);
        assert!((26..=28).contains(&between(20, 100)), "{readings:?}");
        assert!((20..=21).contains(&between(100, 301)), "{readings:?}");
        // Whoever reads seldom reads all.
        assert!((31..=60).all(|second| {
            let wanted = thread.is_in_turn(second, ms(1_000 * u64::from(second)));
            thread.note(Times::default(), ms(1_000 * u64::from(second)));
            wanted
        }));
        // And it is at once as often as any other that it does something, or waits.
        thread.found(true, ms(60_000));
        assert!((0..10).all(|turn| thread.is_in_turn(turn, ms(60_100))));
    }

    fn looked_at(runs: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<u64>) {
        let mut thread = thread();
        let mut seen = (Vec::new(), Vec::new());
        for tenth in 1..=400 {
            if runs(tenth) {
                thread.note(times(tenth, 0), ms(100 * tenth));
            }
            match thread.due(ms(100 * tenth)) {
                Due::Glance => seen.0.push(tenth),
                Due::Description => seen.1.push(tenth),
                Due::Nothing => {}
            }
        }
        seen
    }

    #[test]
    fn a_thread_is_looked_at_in_its_turn() {
        let (glances, descriptions) = looked_at(|_| true);
        assert_eq!(
            (glances.len(), descriptions.len()),
            (39, 2),
            "once a second, or in thirty but for the first"
        );
    }

    #[test]
    fn one_that_stands_still_is_glanced_at_as_soon_as_it_runs() {
        let (glances, descriptions) = looked_at(|tenth| tenth == 95);
        assert_eq!((glances, descriptions.len()), (vec![95], 2));
    }
}
