//! `--record`: the history of a host as lines of JSON, of which `docs/top.md` tells every field.
//!
//! What belongs to one period is written at once, so that a kill leaves a file that ends with a whole period or, at worst, in the middle
//! of a line, which whoever reads it leaves out. Once the file has reached its limit, nothing more is written.

mod format;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Taker, TaskId};

use self::format::{FORMAT, append};
pub use self::format::{Head, Line, OTHERS, Took, read, rounded};
use crate::row::is_chosen;
use crate::scene::{Scene, Takers, Task};
use crate::takers::MAX_ASKED;

/// So many takers a line has; the others are one.
const MAX_TAKERS: usize = 8;

/// A recording that is being written.
pub struct Recorder {
    file: File,
    started: Nanos,
    last: Nanos,
    counters: HashMap<TaskId, (u64, u64)>,
    pids: Vec<u32>,
    limit: u64,
    written: u64,
    block: Vec<u8>,
    full: bool,
}

impl Recorder {
    /// Begins a recording in a new file, of `limit` bytes at most, of these processes, or of all where
    /// there are none. What threads did before `now` is left out of it.
    ///
    /// # Errors
    /// Where the file cannot be made, or is there already.
    pub fn create(
        path: &Path,
        pids: Vec<u32>,
        limit: u64,
        now: Nanos,
        wall_s: f64,
        scene: &Scene,
    ) -> Result<Recorder, String> {
        let name = path.display();
        let file = File::create_new(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{name} is there already; name another file, or remove it")
            }
            _ => format!("cannot write {name}: {error}"),
        })?;
        let head = Head { format: FORMAT.to_owned(), wall_s, cpus: scene.cpus };
        let mut block = Vec::new();
        append(&mut block, &head);
        let counters = HashMap::new();
        let mut recorder =
            Recorder { file, started: now, last: now, counters, pids, limit, written: 0, block, full: false };
        recorder.flush().map_err(|error| format!("cannot write {name}: {error}"))?;
        recorder.remember(scene);
        Ok(recorder)
    }

    /// How many bytes have been written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many bytes may be written.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether the limit is reached: nothing more will be written.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds the period that ends now. One that nobody ran or waited in leaves no line.
    ///
    /// # Errors
    /// Where the file cannot be written to, as on a full disk: nothing more will be written.
    pub fn add(&mut self, now: Nanos, scene: &Scene, ask: Takers) -> Result<(), String> {
        if self.full {
            return Ok(());
        }
        let names: HashMap<TaskId, &str> =
            scene.tasks.iter().map(|task| (task.id, task.process.as_str())).collect();
        let span = now.since(self.last);
        let span_s = span.as_secs_f64();
        let asked = self.longest_waits(scene, span);
        for task in scene.tasks.iter().filter(|task| is_chosen(&self.pids, task.id.pid)) {
            let (ran, waited) = self.since_last(task, span);
            if ran == 0 && waited == 0 {
                continue;
            }
            let waited_ms = waited as f64 / 1e6;
            append(
                &mut self.block,
                &Line {
                    t_s: rounded(now.since(self.started).as_secs_f64()),
                    span_s: rounded(span_s),
                    pid: task.id.pid,
                    tid: task.id.tid,
                    comm: task.comm.clone(),
                    process: task.process.clone(),
                    cgroup: task.cgroup.clone(),
                    run_ms: rounded(ran as f64 / 1e6),
                    waited_ms: rounded(waited_ms),
                    // Never less than it got: the last second may be another one than this period.
                    desired_ms: rounded((task.of.desired_ms_per_s * span_s).max(ran as f64 / 1e6)),
                    predicted_ms_per_s: rounded(task.of.predicted_ms_per_s),
                    takers: match asked.contains(&task.id) {
                        true => by_process(&ask(&task.id), &names, waited_ms, task.of.waited_ms_per_s),
                        false => Vec::new(),
                    },
                },
            );
        }
        self.last = now;
        self.remember(scene);
        self.flush().map_err(|error| {
            self.full = true;
            format!("the recording ends here: {error}")
        })
    }

    /// For how many nanoseconds it ran and waited in the period. Who was not there before has started since; or was overlooked so far,
    /// and has done no more than there was time for.
    fn since_last(&self, task: &Task, span: Nanos) -> (u64, u64) {
        match self.counters.get(&task.id) {
            Some((run_ns, wait_ns)) => {
                (task.run_ns.saturating_sub(*run_ns), task.wait_ns.saturating_sub(*wait_ns))
            }
            None => (task.run_ns.min(span.0), task.wait_ns.min(span.0)),
        }
    }

    /// Those who waited the longest in the period.
    fn longest_waits(&self, scene: &Scene, span: Nanos) -> HashSet<TaskId> {
        let chosen = scene.tasks.iter().filter(|task| is_chosen(&self.pids, task.id.pid));
        let waits = chosen.map(|task| (self.since_last(task, span).1, task.id));
        let mut waits: Vec<(u64, TaskId)> = waits.filter(|(waited, _)| *waited > 0).collect();
        waits.sort_unstable_by(|a, b| b.cmp(a));
        waits.into_iter().take(MAX_ASKED).map(|(_, id)| id).collect()
    }

    fn remember(&mut self, scene: &Scene) {
        self.counters.clear();
        self.counters.extend(scene.tasks.iter().map(|task| (task.id, (task.run_ns, task.wait_ns))));
    }

    /// Writes the block with one call, or not at all.
    fn flush(&mut self) -> std::io::Result<()> {
        let length = self.block.len() as u64;
        self.full |= self.written + length > self.limit;
        if !self.full {
            self.file.write_all(&self.block)?;
            self.written += length;
        }
        self.block.clear();
        Ok(())
    }
}

/// Takers by process. What they took of the last second, in which the thread waited for `waited_ms_per_s`, stands for the period, in which
/// it waited for `waited_ms`: together they did no more than that.
fn by_process(
    takers: &[Taker],
    names: &HashMap<TaskId, &str>,
    waited_ms: f64,
    waited_ms_per_s: f64,
) -> Vec<Took> {
    let total = takers.iter().map(|taker| taker.ms_per_s).sum::<f64>().max(waited_ms_per_s);
    let mut sums: HashMap<u32, Took> = HashMap::new();
    for Taker { id, ms_per_s } in takers {
        let new =
            || Took { pid: id.pid, process: names.get(id).copied().unwrap_or_default().to_owned(), ms: 0.0 };
        sums.entry(id.pid).or_insert_with(new).ms += ms_per_s / total * waited_ms;
    }
    let mut took: Vec<Took> = sums.into_values().collect();
    took.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.pid.cmp(&b.pid)));
    if took.len() > MAX_TAKERS {
        let ms = took.drain(MAX_TAKERS - 1..).map(|taker| taker.ms).sum();
        took.push(Took { pid: OTHERS.0, process: OTHERS.1.to_owned(), ms });
    }
    took.iter_mut().for_each(|taker| taker.ms = rounded(taker.ms));
    took.retain(|taker| taker.ms > 0.0);
    took
}

#[cfg(test)]
mod tests {
    use super::format::MAX_LINE;
    use super::*;
    use crate::row::tests::task;

    /// Two threads that have run and waited for so many milliseconds since they started.
    fn scene(counters: [(u64, u64); 2]) -> Scene {
        let mut tasks = vec![task(1, 1, "victim", "/a", 800.0, 400.0), task(2, 2, "hog", "/b", 900.0, 600.0)];
        for (task, (run_ms, wait_ms)) in tasks.iter_mut().zip(counters) {
            (task.run_ns, task.wait_ns) = (run_ms * 1_000_000, wait_ms * 1_000_000);
        }
        Scene { cpus: 2, tasks, ..Scene::default() }
    }

    /// Each waits because of the other, and of one that has gone.
    fn ask(of: &TaskId) -> Vec<Taker> {
        let taken = |(n, ms_per_s)| Taker { id: TaskId { pid: n, tid: n, started: 1 }, ms_per_s };
        [(3 - of.pid, 300.0), (9, 50.0)].map(taken).to_vec()
    }

    fn lines(path: &Path) -> Vec<Line> {
        let mut lines = Vec::new();
        read(path, |line| lines.push(line)).unwrap();
        lines
    }

    #[test]
    fn a_period_is_what_has_happened_since_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let s = Nanos::from_secs;
        let mut recorder =
            Recorder::create(&path, Vec::new(), 1 << 20, s(100), 1e9, &scene([(500, 50), (70, 0)])).unwrap();
        recorder.add(s(102), &scene([(900, 450), (70, 0)]), &ask).unwrap();
        recorder.add(s(103), &scene([(900, 450), (170, 0)]), &ask).unwrap();
        recorder.add(s(104), &scene([(900, 450), (170, 0)]), &ask).unwrap();
        let lines = lines(&path);
        assert_eq!(lines.len(), 2, "who neither ran nor waited is left out: {lines:?}");
        let first = &lines[0];
        assert_eq!(
            (first.t_s, first.span_s, first.comm.as_str(), first.cgroup.as_str()),
            (2.0, 2.0, "victim", "/a")
        );
        assert_eq!((first.run_ms, first.waited_ms, first.desired_ms), (400.0, 400.0, 1600.0));
        let took: Vec<_> = first.takers.iter().map(|t| (t.pid, t.process.as_str(), t.ms)).collect();
        assert_eq!(
            took,
            [(2, "proc-2", 300.0), (9, "", 50.0)],
            "of its wait of 400 ms in the last second, and of 400 ms here"
        );
        assert_eq!((lines[1].t_s, lines[1].tid, lines[1].run_ms), (3.0, 2, 100.0));
        assert_eq!(lines[1].takers, [], "did not wait");
        // One that appears has done it all since the last period, but no more than that was long.
        let mut more = scene([(900, 450), (170, 0)]);
        for (pid, run_ms) in [(3, 40), (4, 99_000)] {
            let mut new = task(pid, pid, "new", "/", 1.0, 1.0);
            new.run_ns = run_ms * 1_000_000;
            more.tasks.push(new);
        }
        recorder.add(s(106), &more, &ask).unwrap();
        let new: Vec<_> = self::lines(&path)[2..].iter().map(|line| (line.pid, line.run_ms)).collect();
        assert_eq!(new, [(3, 40.0), (4, 2000.0)]);
        assert_eq!(recorder.written(), std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn only_the_processes_that_were_asked_for_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let begin = scene([(0, 0); 2]);
        let mut recorder = Recorder::create(&path, vec![2], 1 << 20, Nanos(0), 0.0, &begin).unwrap();
        recorder.add(Nanos::from_secs(1), &scene([(10, 10); 2]), &ask).unwrap();
        let lines = lines(&path);
        assert_eq!(lines.iter().map(|line| line.pid).collect::<Vec<_>>(), [2]);
        assert_eq!(
            (lines[0].takers[0].pid, lines[0].takers[0].process.as_str()),
            (1, "proc-1"),
            "whoever takes"
        );
    }

    #[test]
    fn takers_that_are_too_many_are_one() {
        let id = |pid| TaskId { pid, tid: pid, started: 1 };
        let many: Vec<Taker> = (1..=20).map(|pid| Taker { id: id(pid), ms_per_s: f64::from(pid) }).collect();
        let took = by_process(&many, &HashMap::new(), 420.0, 210.0);
        assert_eq!(took.len(), MAX_TAKERS);
        assert_eq!((took[0].pid, took[0].ms), (20, 40.0));
        assert_eq!((took[7].pid, took[7].process.as_str()), OTHERS);
        assert!((took.iter().map(|taker| taker.ms).sum::<f64>() - 420.0).abs() < 1e-6, "{took:?}");
    }

    #[test]
    fn a_recording_ends_at_its_limit_with_a_whole_period() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut recorder =
            Recorder::create(&path, Vec::new(), 1000, Nanos(0), 0.0, &scene([(0, 0); 2])).unwrap();
        for second in 1..20 {
            recorder.add(Nanos::from_secs(second), &scene([(second * 10, second); 2]), &ask).unwrap();
        }
        assert!(recorder.is_full());
        assert!(std::fs::metadata(&path).unwrap().len() <= 1000);
        let lines = lines(&path);
        assert!(!lines.is_empty() && lines.len().is_multiple_of(2), "{lines:?}");
    }

    #[test]
    fn a_file_that_is_there_is_not_written_over() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error =
            Recorder::create(file.path(), Vec::new(), 1000, Nanos(0), 0.0, &Scene::default()).err().unwrap();
        assert!(error.contains("is there already; name another file"), "{error}");
    }

    #[test]
    fn a_killed_recording_is_read_up_to_its_last_whole_line_and_a_wrong_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut recorder =
            Recorder::create(&path, Vec::new(), 1 << 20, Nanos(0), 0.0, &scene([(0, 0); 2])).unwrap();
        recorder.add(Nanos::from_secs(1), &scene([(10, 1); 2]), &ask).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let line_ends: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] == b'\n').collect();
        for length in line_ends[0] + 1..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let expected = line_ends.iter().filter(|&&end| end < length).count() - 1;
            assert_eq!(lines(&path).len(), expected, "{length} bytes");
        }
        let refused = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            read(&path, |_| {}).unwrap_err()
        };
        assert!(refused(b"").contains("is empty"));
        assert!(refused(b"hello\n").contains(":1: this is no recording"));
        let other = br#"{"format":"plimsoll-top/2","wall_s":1,"cpus":1}"#;
        assert!(refused(&[&other[..], b"\n"].concat()).contains("this program reads `plimsoll-top/1`"));
        assert!(refused(&[&whole[..=line_ends[0]], b"{\"t_s\":1}\n"].concat()).contains(":2: missing field"));
        assert!(refused(&vec![b' '; MAX_LINE as usize + 1]).contains("longer than"));
    }
}
