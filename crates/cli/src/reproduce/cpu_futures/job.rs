//! The job of little importance: an xz for each CPU, over text that was made up. As the paper's video conversion it computes on all CPUs and
//! reads little. (One xz with several threads waits for its slowest one at the end of every file: what it wants would not be the same
//! all the time, and by that everything is judged.)
//!
//! With the default preset: what -9 has in addition is memory, and no share of a CPU changes who gets the caches.

use std::cell::RefCell;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_core::rng;
use plimsoll_testbed::control_group::family;
use rand::RngExt;
use tempfile::TempDir;

use crate::processes::{Process, directory, plimsoll};
use crate::reproduce::machine::{ran_s, waited_s};

/// The program, and its name among a process's children.
const PROGRAM: &str = "xz";
/// As many of them as there are CPUs, and the end of the last one. Whoever ends it ends them, too.
const EACH: &str = "trap 'kill $all; exit 143' TERM; i=0; all=; while [ $i -lt $CPUS ]; do \
    xz --threads=1 --stdout --keep \"$@\" & all=\"$all $!\"; i=$((i + 1)); done; wait";
/// Text that is made up, in bytes.
const TEXT: usize = 8 << 20;
/// Of everything random here.
const STREAM: u64 = 71;

/// How the job is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Held {
    /// Not at all, and nobody else runs.
    Alone,
    /// By nice 19, which is all that most people do.
    Nice,
    /// `plimsoll yield --idle-only`.
    IdleOnly,
    /// `plimsoll yield --max-slowdown`.
    MaxSlowdown(f64),
}

/// What the job works on.
pub struct Text {
    directory: TempDir,
}

impl Text {
    /// Makes it up.
    pub fn new(seed: u64) -> Result<Text, String> {
        let directory = directory()?;
        let mut rng = rng::seeded(seed, STREAM);
        let mut text = String::with_capacity(TEXT + 64);
        while text.len() < TEXT {
            // A few thousand words, the first of them often, so that there is something to find.
            let rank = rng.random_range(4..13_u32);
            let word: u32 = rng.random_range(0..1 << rank);
            let _ = write!(text, "{:x} ", word.wrapping_mul(0x9e37_79b9));
        }
        let text_file = Text { directory };
        std::fs::write(text_file.path(), text).map_err(|e| format!("cannot write the job's text: {e}"))?;
        Ok(text_file)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("text")
    }

    /// Where `plimsoll yield` is to leave its report.
    pub fn report(&self) -> PathBuf {
        self.directory.path().join("report.json")
    }
}

/// The job, while it runs. Dropping it ends it.
pub struct Job {
    process: Process,
    /// Those that compute, once they are known: children of this process, or theirs.
    pids: RefCell<Vec<u32>>,
}

impl Job {
    /// Whether this machine has the program.
    pub fn is_here() -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|path| path.join(PROGRAM).exists())
    }

    /// Compresses the text so many times over.
    pub fn start(held: Held, text: &Text, times: usize) -> Result<Job, String> {
        let mut command = match held {
            Held::Alone => Command::new("env"),
            Held::Nice => Command::new("nice"),
            Held::IdleOnly | Held::MaxSlowdown(_) => plimsoll()?,
        };
        match held {
            Held::Alone => {}
            Held::Nice => _ = command.args(["-n", "19"]),
            Held::IdleOnly => _ = command.args(["yield", "--idle-only"]),
            Held::MaxSlowdown(limit) => _ = command.args(["yield", "--max-slowdown", &limit.to_string()]),
        }
        if matches!(held, Held::IdleOnly | Held::MaxSlowdown(_)) {
            command.args(["--quiet", "--report"]).arg(text.report()).arg("--");
        }
        command.args(["sh", "-c", EACH, "sh"]).args(std::iter::repeat_n(text.path(), times));
        command.env("CPUS", cpus().to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Job { process: Process::start(command)?, pids: RefCell::default() })
    }

    /// CPU seconds that the job has used, without those of `plimsoll yield`; none while not all of it is there.
    pub fn cpu_s(&self) -> f64 {
        let mut pids = self.pids.borrow_mut();
        if pids.len() < cpus() {
            *pids = self.find();
        }
        let used: Option<f64> = pids.iter().map(|pid| ran_s(*pid)).sum();
        used.filter(|_| pids.len() == cpus()).unwrap_or(0.0)
    }

    /// CPU seconds that the job would have used if nobody else had wanted any: those, and the time that it waited for a CPU.
    pub fn wanted_s(&self) -> f64 {
        let used_s = self.cpu_s();
        used_s + waited_s(self.pids.borrow().iter().copied())
    }

    fn find(&self) -> Vec<u32> {
        let computes = |pid: &u32| {
            let name = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
            name.is_ok_and(|name| name.trim_end() == PROGRAM)
        };
        // Beside `plimsoll yield` the shell is its child, and they are the shell's.
        let mut pids: Vec<u32> =
            family(self.process.id()).into_iter().flat_map(family).filter(computes).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Whether it has done all.
    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_compute_are_known_and_end_with_it() {
        if !Job::is_here() {
            println!("not tried: there is no {PROGRAM}");
            return;
        }
        let text = Text::new(1).unwrap();
        // As `plimsoll yield` does: the shell is a child's child.
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c \"$0\" sh \"$@\" & it=$!; trap 'kill $it; exit' TERM; wait", EACH]);
        command.args(std::iter::repeat_n(text.path(), 1_000));
        command.env("CPUS", cpus().to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let job = Job { process: Process::start(command).unwrap(), pids: RefCell::default() };
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            for _ in 0..600 {
                if is_so() {
                    return;
                }
                // Real processes are waited for.
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            panic!("not within half a minute: {what}");
        };
        until("all compute", &|| job.cpu_s() > 0.0);
        let pids = job.pids.borrow().clone();
        assert_eq!(pids.len(), cpus());
        drop(job);
        let lives = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim_end() == PROGRAM)
        };
        until("they end", &|| !pids.iter().any(lives));
    }
}
