//! Signals, read from a descriptor, and which of them the job must be given.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What is passed on.
const PASSED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// One that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At least one child has changed.
    Child,
    /// Somebody wants something of the job.
    ForJob {
        /// What.
        signal: Signal,
        /// Who sent it, 0 from outside of this pid namespace; none if the kernel did, on behalf of a terminal, to all in the foreground.
        sender: Option<i32>,
    },
}

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    read: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Blocks those that are passed on, and reads them from here on. Call it before any thread starts. What this process was told to
    /// ignore, by `nohup` or by a shell that runs it in the background, it and the job go on to ignore.
    ///
    /// # Errors
    /// Where the kernel has no descriptor to spare.
    pub fn block() -> io::Result<Signals> {
        let mut mask: SigSet = PASSED.into_iter().filter(|signal| !is_ignored(*signal)).collect();
        mask.add(Signal::SIGCHLD);
        // Of children that are ignored nobody is told how they ended.
        // SAFETY: the default needs no handler.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl)? };
        let read = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut before))?;
        Ok(Signals { read, before })
    }

    /// What was blocked before, which is what the job starts with.
    pub fn before(&self) -> SigSet {
        self.before
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Arrived> {
        let info = self.read.read_signal().ok()??;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        if signal == Signal::SIGCHLD {
            return Some(Arrived::Child);
        }
        // Whoever is outside of this pid namespace has no number in it, and is somebody all the same.
        let by_kernel = info.ssi_code == libc::SI_KERNEL;
        Some(Arrived::ForJob { signal, sender: (!by_kernel).then_some(info.ssi_pid as i32) })
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only writes to `now`, which is there; all zeroes are a value, too.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}
