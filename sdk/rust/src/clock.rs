//! The exact time: nanoseconds of `CLOCK_MONOTONIC`, for the price of reading the processor's time stamp counter where that can be relied on.
//!
//! The counter is held against the system's clock at every heartbeat, once a second, which gives its rate and a point from which it
//! is reckoned on; the error stays far below a millisecond. While there is no rate yet, where the counter is not steady, and when
//! no heartbeat has come for three seconds (in a forked child, say), the system's clock is asked itself.
#![allow(clippy::disallowed_methods, reason = "somebody has to read the clock, and it is here")]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// How far the counter is reckoned on from where it was held against the clock, in nanoseconds.
const MOST_NS: u64 = 3_000_000_000;
/// The rate is not taken from less than this.
const LEAST_NS: u64 = 50_000_000;
/// Nor from more: it changes a little with temperature, and the system's clock is slewed.
const LONG_NS: u64 = 10_000_000_000;

/// The clock of this process.
static CLOCK: Clock = Clock::new();

/// The time now, exactly.
#[inline]
pub fn exact_ns() -> u64 {
    CLOCK.now_ns()
}

/// Holds the counter against the system's clock. One thread does, at each heartbeat.
pub fn calibrate() {
    CLOCK.calibrate();
}

/// The system's clock.
pub fn system_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

/// A point that is known, and the rate from there on: written by one, read by all. Readers that come in between ask the system.
struct Clock {
    /// Odd while the others are being written.
    version: AtomicU64,
    ticks: AtomicU64,
    ns: AtomicU64,
    /// Nanoseconds a tick, times 2^32; 0 while unknown.
    rate: AtomicU64,
    /// From where the rate is taken.
    first_ticks: AtomicU64,
    first_ns: AtomicU64,
}

impl Clock {
    const fn new() -> Clock {
        Clock {
            version: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            first_ticks: AtomicU64::new(0),
            first_ns: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        let ticks = self.ticks.load(Ordering::Relaxed);
        let ns = self.ns.load(Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let since = reckon(counter::read().wrapping_sub(ticks), rate);
        if rate == 0
            || since >= MOST_NS
            || version % 2 == 1
            || version != self.version.load(Ordering::Relaxed)
        {
            return system_ns();
        }
        ns + since
    }

    fn calibrate(&self) {
        if !counter::is_steady() {
            return;
        }
        let (ticks, ns) = together();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (first_ticks, first_ns) = (get(&self.first_ticks), get(&self.first_ns));
        let passed = ns.saturating_sub(first_ns);
        let rate = match ticks.checked_sub(first_ticks) {
            Some(counted) if first_ns != 0 && passed >= LEAST_NS && counted > 0 => {
                ((u128::from(passed) << 32) / u128::from(counted)) as u64
            }
            _ => get(&self.rate),
        };
        // One writer: heartbeats come from one thread, and a second ledger of the process has the same clock.
        let version = get(&self.version);
        if version % 2 == 1
            || self
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        fence(Ordering::Release);
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        if first_ns == 0 || passed > LONG_NS {
            set(&self.first_ticks, ticks);
            set(&self.first_ns, ns);
        }
        set(&self.ticks, ticks);
        set(&self.ns, ns);
        set(&self.rate, rate);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// So many ticks in nanoseconds; more than `MOST_NS` where they are too many, or below zero.
#[inline]
fn reckon(ticks: u64, rate: u64) -> u64 {
    let ns = (u128::from(ticks) * u128::from(rate)) >> 32;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Both clocks at once, as nearly as possible: of a few tries the one that took the least.
fn together() -> (u64, u64) {
    let tries = (0..5).map(|_| {
        let before = counter::read();
        let ns = system_ns();
        let took = counter::read().wrapping_sub(before);
        (took, before.wrapping_add(took / 2), ns)
    });
    let (_, ticks, ns) = tries.min().unwrap_or_default();
    (ticks, ns)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    //! The processor's time stamp counter.

    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::sync::OnceLock;

    #[inline]
    pub fn read() -> u64 {
        // SAFETY: reads a counter. It could be forbidden to programs; where it is, no program of these days runs.
        unsafe { _rdtsc() }
    }

    /// Whether it runs at one rate, whatever the processor does, and the kernel relies on it or on what a hypervisor makes of it.
    pub fn is_steady() -> bool {
        static STEADY: OnceLock<bool> = OnceLock::new();
        *STEADY.get_or_init(|| {
            const INVARIANT: u32 = 1 << 8;
            let invariant =
                __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0;
            let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let source = std::fs::read_to_string(source).unwrap_or_default();
            invariant && ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source.trim())
        })
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    //! None: the system's clock is asked.

    pub fn read() -> u64 {
        0
    }

    pub fn is_steady() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_with_the_systems_clock() {
        let clock = Clock::new();
        clock.calibrate();
        let began = system_ns();
        let mut worst = 0;
        while system_ns() - began < 4 * LEAST_NS {
            let (before, ours, after) = (system_ns(), clock.now_ns(), system_ns());
            worst = worst.max(before.saturating_sub(ours)).max(ours.saturating_sub(after));
            if ours % 64 == 0 {
                clock.calibrate();
            }
        }
        assert!(!counter::is_steady() || clock.rate.load(Ordering::Relaxed) > 0);
        assert!(worst < 1_000_000, "{worst} ns away");
    }

    #[test]
    fn what_cannot_be_is_too_much() {
        assert_eq!(reckon(3, 1 << 32), 3);
        assert_eq!(reckon(10, 1 << 31), 5);
        assert!(reckon(0_u64.wrapping_sub(5), 1 << 31) > MOST_NS);
    }
}
