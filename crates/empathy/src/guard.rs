//! The guard: a small process that puts back what was changed when `yield` has ended, however it ended: nothing else can after
//! `kill -9`. It is told beforehand what will be changed, through a pipe whose end it waits for. It also lets a paused job go on
//! when it has not been told for some time that the pause is still meant: then `yield` hangs or was stopped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid};
use serde::{Deserialize, Serialize};

use crate::process::Process;
use crate::undo::{Undo, Undos};

/// After so long without a word about a pause it is over.
pub const PATIENCE_MS: u16 = 3_000;

/// What the guard is told, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// This will be changed.
    Will(Undo),
    /// These will be stopped.
    Stopping(Vec<Process>),
    /// These are the job.
    Job(Vec<Process>),
    /// The job is paused, and is meant to be.
    Paused,
    /// The job runs.
    Running,
}

/// The guard, as `yield` sees it.
#[derive(Debug)]
pub struct Guard {
    pid: Pid,
    line: Option<File>,
    /// The same as the guard knows, for the case that it is gone itself.
    spare: Undos,
}

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// Where there are no processes to be had.
    ///
    /// # Safety
    /// This process must have no second thread.
    pub unsafe fn start() -> io::Result<Guard> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the caller says that there is one thread only, so that no lock is left held in the child.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                Ok(Guard { pid: child, line: Some(File::from(write)), spare: Undos::default() })
            }
            ForkResult::Child => {
                drop(write);
                let _ = detach();
                watch(read);
                // No destructor of the parent's is to run here.
                // SAFETY: ends the process, nothing else.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// To be called before something is changed.
    pub fn will(&mut self, undo: Undo) {
        self.spare.push(undo.clone());
        self.tell(&Word::Will(undo));
    }

    /// To be called before processes are stopped.
    pub fn stopping(&mut self, processes: Vec<Process>) {
        self.spare.stopping(processes.clone());
        self.tell(&Word::Stopping(processes));
    }

    /// To be called before the end: these are the job.
    pub fn is_job(&mut self, processes: Vec<Process>) {
        self.spare.is_job(processes.clone());
        self.tell(&Word::Job(processes));
    }

    /// To be called before the job is paused, and once a second while it is.
    pub fn paused(&mut self) {
        self.tell(&Word::Paused);
    }

    /// Lets everybody go on who is frozen or was stopped.
    pub fn resume(&mut self) {
        self.spare.resume();
        self.tell(&Word::Running);
    }

    /// Whether it is still there.
    pub fn lives(&self) -> bool {
        self.line.is_some()
    }

    /// To be called when the kernel says that this child has ended.
    pub fn ended(&mut self) {
        self.line = None;
    }

    /// Has everything put back, and waits until it is.
    pub fn finish(mut self) {
        if self.line.take().is_some() {
            let _ = waitpid(self.pid, None);
        } else {
            self.spare.put_back();
        }
    }

    fn tell(&mut self, word: &Word) {
        let Some(line) = &mut self.line else { return };
        let Ok(mut text) = serde_json::to_vec(word) else { return };
        text.push(b'\n');
        if line.write_all(&text).is_err() {
            self.line = None;
        }
    }
}

/// In the guard: away from the terminal's signals, from the files of the caller, and from `killall plimsoll`.
fn detach() -> nix::Result<()> {
    setsid()?;
    let nothing =
        File::options().read(true).write(true).open("/dev/null").map_err(|_| nix::errno::Errno::EIO)?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    nix::sys::prctl::set_name(c"plimsoll-guard")
}

/// In the guard: listens until the other end is closed, and puts back.
fn watch(read: OwnedFd) {
    let mut line = BufReader::new(File::from(read));
    let mut undos = Undos::default();
    let mut paused = false;
    let mut text = String::new();
    loop {
        if paused && line.buffer().is_empty() {
            let mut ready = [PollFd::new(line.get_ref().as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, PollTimeout::from(PATIENCE_MS)) == Ok(0) {
                undos.resume();
                paused = false;
            }
        }
        text.clear();
        if line.read_line(&mut text).is_ok_and(|read| read > 0) {
            match serde_json::from_str(&text) {
                Ok(Word::Will(undo)) => undos.push(undo),
                Ok(Word::Stopping(processes)) => {
                    undos.stopping(processes);
                    paused = true;
                }
                Ok(Word::Job(processes)) => undos.is_job(processes),
                Ok(Word::Paused) => paused = true,
                Ok(Word::Running) => {
                    undos.running();
                    paused = false;
                }
                // Half a line: the writer was killed while it wrote, and did not do what it was about to.
                Err(_) => {}
            }
        } else {
            undos.put_back();
            return;
        }
    }
}
