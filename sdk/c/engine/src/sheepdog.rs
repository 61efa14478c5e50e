//! A pool's threads within a slowdown, for C. All of it is [`plimsoll_engine::SheepDog`]'s and [`plimsoll_engine::Herd`]'s.

use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_engine::{Herd, SheepDog};

/// Keeps a pool's threads within a slowdown. See `plimsoll_engine.h`.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_sheepdog_start(least: u32, most: u32, max_slowdown: f64) -> *mut SheepDog {
    let started = catch_unwind(|| Box::new(SheepDog::start(least..=most, max_slowdown)));
    started.map_or(std::ptr::null_mut(), Box::into_raw)
}

/// How many may work at once, as of now.
///
/// # Safety
/// It is NULL, or what `plimsoll_sheepdog_start` gave and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_sheepdog_workers(dog: *const SheepDog) -> u32 {
    // SAFETY: as the caller promised.
    unsafe { dog.as_ref() }.map_or(u32::MAX, SheepDog::workers)
}

/// The calling thread is about to work; waits while enough others do.
///
/// # Safety
/// As for [`plimsoll_sheepdog_workers`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_sheepdog_enter(dog: *const SheepDog) {
    // SAFETY: as the caller promised.
    let Some(dog) = (unsafe { dog.as_ref() }) else { return };
    // It leaves by the call below.
    let _ = catch_unwind(AssertUnwindSafe(|| std::mem::forget(dog.enter())));
}

/// The calling thread no longer works.
///
/// # Safety
/// As for [`plimsoll_sheepdog_workers`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_sheepdog_leave(dog: *const SheepDog) {
    // SAFETY: as the caller promised.
    let Some(dog) = (unsafe { dog.as_ref() }) else { return };
    let _ = catch_unwind(AssertUnwindSafe(|| dog.leave()));
}

/// Ends it.
///
/// # Safety
/// It is NULL, or what `plimsoll_sheepdog_start` gave and was not closed; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_sheepdog_close(dog: *mut SheepDog) {
    if dog.is_null() {
        return;
    }
    // SAFETY: it came from a box, and nobody else has it.
    let dog = unsafe { Box::from_raw(dog) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(dog)));
}

/// A worker of a pool. See `plimsoll_engine.h`.
#[repr(C)]
pub struct Worker {
    tid: i32,
    working: i32,
}

/// Sizes a pool of other processes' threads. See `plimsoll_engine.h`.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_herd_new(least: u32, most: u32, max_slowdown: f64) -> *mut Herd {
    let new = catch_unwind(|| Box::new(Herd::new(least..=most, max_slowdown)));
    new.map_or(std::ptr::null_mut(), Box::into_raw)
}

/// How many may work at once from now on.
///
/// # Safety
/// `herd` is NULL, or what `plimsoll_herd_new` gave and was not closed, and nobody else uses it now; there are `count` workers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_herd_look(
    herd: *mut Herd,
    workers: *const Worker,
    count: usize,
    held_back: i32,
    done: u64,
) -> u32 {
    // SAFETY: as the caller promised.
    let Some(herd) = (unsafe { herd.as_mut() }) else { return u32::MAX };
    // SAFETY: as the caller promised.
    let workers = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(workers, count) } };
    let workers = workers.iter().map(|worker| (worker.tid, worker.working != 0));
    catch_unwind(AssertUnwindSafe(|| herd.look(workers, held_back != 0, done))).unwrap_or(u32::MAX)
}

/// Ends it.
///
/// # Safety
/// It is NULL, or what `plimsoll_herd_new` gave and was not closed; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_herd_close(herd: *mut Herd) {
    if herd.is_null() {
        return;
    }
    // SAFETY: it came from a box, and nobody else has it.
    let herd = unsafe { Box::from_raw(herd) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(herd)));
}
