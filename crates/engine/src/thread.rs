//! Threads to which no signal is delivered: those are for the application's own.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts one. Its name has at most 15 bytes.
///
/// # Errors
/// Where there cannot be another.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of who starts it.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    thread
}
