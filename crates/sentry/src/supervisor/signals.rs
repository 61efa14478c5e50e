//! The parent's signals, read from a descriptor. They stay blocked across an exec, so that one that arrives while
//! the parent becomes another binary waits instead of killing it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::lifecycle::Request;

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operator asks for something.
    Asked(Request),
    /// At least one child has ended.
    ChildEnded,
}

/// The signals of this process.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals that the parent understands and reads them from here on. Call it before any thread
    /// starts.
    ///
    /// # Errors
    /// Where the kernel has no descriptor to spare.
    pub fn block() -> io::Result<Signals> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR2, Signal::SIGCHLD] {
            mask.add(signal);
        }
        let read = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // An exec that fails leaves SIGPIPE at its deadly default; a parent must survive a closed stderr.
        mask.add(Signal::SIGPIPE);
        mask.thread_block()?;
        Ok(Signals(read))
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Event> {
        let info = self.0.read_signal().ok()??;
        Some(match Signal::try_from(info.ssi_signo as i32).ok()? {
            Signal::SIGHUP => Event::Asked(Request::Reload),
            Signal::SIGUSR2 => Event::Asked(Request::Upgrade),
            Signal::SIGCHLD => Event::ChildEnded,
            _ => Event::Asked(Request::Stop),
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets a child receive signals again: it inherits the parent's blocked ones.
///
/// # Errors
/// Never on Linux.
pub fn unblock() -> io::Result<()> {
    Ok(SigSet::all().thread_unblock()?)
}
