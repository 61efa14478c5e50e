//! Threads to which no signal is delivered: those are for the application's own.

use std::io;
use std::mem::MaybeUninit;

/// Starts one. Its name has at most 15 bytes.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A thread begins with the mask of who starts it.
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both are as large as the calls expect; the first is filled before it is read.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    // SAFETY: the call above has filled it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    thread.map(drop)
}
