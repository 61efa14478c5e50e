//! The engine for C: what `plimsoll_engine.h` declares. Everything else is [`plimsoll_engine`]'s.

mod sheepdog;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use plimsoll_engine::{Engine, Running};

/// `plimsoll_engine`.
pub struct Handle {
    running: Running,
    problem: OnceLock<CString>,
}

/// `plimsoll_engine_options`.
#[repr(C)]
pub struct Options {
    config: *const c_char,
    event: Option<extern "C" fn(line: *const c_char, context: *mut c_void)>,
    event_context: *mut c_void,
}

/// What an event's callback is given besides the line.
struct Context(*mut c_void);

// SAFETY: the header says that the callback is called on another thread; what it is given is for that.
unsafe impl Send for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// A text of C's; nothing for NULL.
///
/// # Safety
/// It is NULL, or ends with a zero and stays as it is for as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, String> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| "a text is not UTF-8".to_owned())
}

/// # Safety
/// As for [`plimsoll_engine_start`].
unsafe fn start(
    name: *const c_char,
    options: *const Options,
    file: *const c_char,
    control: Option<OwnedFd>,
) -> Result<Handle, String> {
    // SAFETY: as the caller promised.
    let (name, file, options) = unsafe { (text(name)?, text(file)?, options.as_ref()) };
    let options = options.ok_or("there are no options, and so no config")?;
    // SAFETY: as the caller promised.
    let config = unsafe { text(options.config)? }.ok_or("there is no config")?;
    let file = file.filter(|file| !file.is_empty()).ok_or("there is no ledger")?;
    let control = control.ok_or("there is no socket")?;
    let mut engine = Engine::of_config(config, name.unwrap_or_default())?;
    if let Some(event) = options.event {
        let context = Context(options.event_context);
        engine = engine.on_event(move |line| {
            // Events have no zeros within: JSON writes them otherwise.
            let line = CString::new(line).unwrap_or_default();
            event(line.as_ptr(), context.get());
        });
    }
    let running = engine.start(Path::new(file), control.into());
    match running.problem() {
        Some(why) => Err(why.to_owned()),
        None => Ok(Handle { running, problem: OnceLock::new() }),
    }
}

/// Says why something failed, as far as there is room.
///
/// # Safety
/// At `to` there is room for `size` bytes.
unsafe fn say(why: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let length = why.floor_char_boundary(size - 1);
    // SAFETY: `length` and a zero are at most `size`.
    unsafe {
        std::ptr::copy_nonoverlapping(why.as_ptr().cast(), to, length);
        *to.add(length) = 0;
    }
}

/// Watches the ledger of an application that this process has open. See `plimsoll_engine.h`.
///
/// # Safety
/// Texts end with a zero or are NULL; `fd` is nobody else's from now on; `error` has room for `size` bytes; `options`, if not NULL, is as the
/// header says, and what its callback is given may be given to it on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_engine_start(
    name: *const c_char,
    options: *const Options,
    file: *const c_char,
    fd: c_int,
    error: *mut c_char,
    size: usize,
) -> *mut Handle {
    // SAFETY: as the caller promised.
    let control = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: as the caller promised.
    let started = catch_unwind(AssertUnwindSafe(|| unsafe { start(name, options, file, control) }));
    match started.unwrap_or_else(|_| Err("it panicked".to_owned())) {
        Ok(handle) => Box::into_raw(Box::new(handle)),
        Err(why) => {
            // SAFETY: as the caller promised.
            unsafe { say(&why, error, size) };
            std::ptr::null_mut()
        }
    }
}

/// Why nobody watches any more; NULL while somebody does. Lives as long as the engine.
///
/// # Safety
/// It is NULL, or what `plimsoll_engine_start` gave and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_engine_problem(engine: *const Handle) -> *const c_char {
    // SAFETY: as the caller promised.
    let Some(Handle { running, problem }) = (unsafe { engine.as_ref() }) else {
        return c"it was not opened".as_ptr();
    };
    match running.problem() {
        None => std::ptr::null(),
        Some(why) => problem.get_or_init(|| CString::new(why).unwrap_or_default()).as_ptr(),
    }
}

/// Ends the watch.
///
/// # Safety
/// It is NULL, or what `plimsoll_engine_start` gave and was not closed; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_engine_close(engine: *mut Handle) {
    if engine.is_null() {
        return;
    }
    // SAFETY: it came from a box, and nobody else has it.
    let engine = unsafe { Box::from_raw(engine) };
    // What panics while it ends has ended.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
}
