//! A host with 20,000 threads, and a process that has run out of descriptors. By itself: whatever else ran beside this would read them all.

use std::collections::HashSet;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_herald::{Herald, Options, Reader, clock};
use rustix::process::{Resource, Rlimit, setrlimit};

const MANY: usize = 20_000;
/// Numbers that are left to the rest of the host, which may start something meanwhile.
const SPARED: usize = 6_000;
/// Fewer tell nothing.
const FEW: usize = 2_000;
/// Descriptors of this process: so few that most threads' files cannot be kept open.
const DESCRIPTORS: u64 = 1_500;
const PERIOD: Duration = Duration::from_millis(100);
const BUDGET: f64 = 0.01;

/// As many as may be on this host, up to [`MANY`].
fn room() -> usize {
    let number = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok();
    let most = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let most = most.into_iter().filter_map(number).min().unwrap_or(0);
    let loadavg = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let now = loadavg.split(['/', ' ']).nth(4).and_then(|now| now.parse::<usize>().ok()).unwrap_or(most);
    most.saturating_sub(now + SPARED).min(MANY)
}

/// Threads that sleep until they are dropped. Not of the standard library: those have four mappings each, and a process may have 65,530.
struct Sleepers {
    threads: Vec<libc::pthread_t>,
    /// What they all wait for is that this is closed.
    gate: Option<OwnedFd>,
    _waited_for: OwnedFd,
}

impl Sleepers {
    /// So many, or as many as there may be.
    fn start(count: usize) -> Sleepers {
        let (waited_for, gate) = rustix::pipe::pipe().unwrap();
        // SAFETY: the attributes are initialised before they are used, and each thread is given a descriptor that outlives it.
        let threads = unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
            assert_eq!(libc::pthread_attr_setstacksize(&mut attributes, 64 * 1024), 0);
            assert_eq!(libc::pthread_attr_setguardsize(&mut attributes, 0), 0);
            let start = || {
                let mut thread = 0;
                let fd = waited_for.as_raw_fd() as usize as *mut c_void;
                (libc::pthread_create(&mut thread, &attributes, sleep, fd) == 0).then_some(thread)
            };
            (0..count).map_while(|_| start()).collect()
        };
        Sleepers { threads, gate: Some(gate), _waited_for: waited_for }
    }
}

extern "C" fn sleep(fd: *mut c_void) -> *mut c_void {
    let mut byte = 0_u8;
    // SAFETY: one byte of this stack, from a descriptor that is open until this thread has been joined.
    unsafe { libc::read(fd as i32, (&raw mut byte).cast(), 1) };
    std::ptr::null_mut()
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        drop(self.gate.take());
        for thread in self.threads.drain(..) {
            // SAFETY: it was started and has not been joined yet.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }
    }
}

fn own_threads(herald: &Herald) -> HashSet<u32> {
    let own = std::process::id();
    herald.tasks().iter().filter(|task| task.id.pid == own).map(|task| task.id.tid).collect()
}

/// As many as there is room for; nobody where that is for few.
fn sleepers() -> Option<Sleepers> {
    let sleepers = Sleepers::start(room());
    let many = sleepers.threads.len();
    if many < FEW {
        println!("not tried: this host has room for {many} threads more");
        return None;
    }
    Some(sleepers)
}

/// Reads them twice, and returns whom it found.
fn read_within_the_budget(herald: &mut Herald, many: usize) -> HashSet<u32> {
    let began = clock::now();
    herald.sample();
    let all = own_threads(herald);
    assert!(all.len() > many, "{} of {many} and two", all.len());

    // It is not time for a reading yet when one has cost so much; whoever reads nevertheless makes it worse.
    let before = herald.cost().last;
    herald.sample();
    let cpu = before + herald.cost().last;
    let next_in = herald.next_in();
    // What was earned meanwhile is taken off, and what may have been saved before. Half a minute is the most.
    let passed = clock::now().since(began).as_secs_f64();
    let least = (cpu.as_secs_f64() / BUDGET - 1.0).min(30.0) - passed;
    assert!(next_in.as_secs_f64() >= least, "{next_in:?} after {cpu:?} in {passed} s");
    assert!(next_in > PERIOD, "{many} threads cost {cpu:?}");
    all
}

/// Reads so many times, so far apart, after which nobody is known who is gone.
fn are_forgotten(herald: &mut Herald, times: usize, apart: Nanos) {
    for _ in 0..times {
        herald.sample();
        clock::sleep_until(clock::now() + apart);
    }
    // This one, and that of the test harness.
    assert!(own_threads(herald).len() <= 2, "{}", own_threads(herald).len());
}

#[test]
fn twenty_thousand_threads_are_read_within_the_budget_and_without_descriptors() {
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let Some(sleepers) = sleepers() else { return };
    let mut herald = Herald::new(Options { period: PERIOD, budget: BUDGET, reader: Reader::Pread }).unwrap();
    let all = read_within_the_budget(&mut herald, sleepers.threads.len());

    // Most files are opened at each reading. There are descriptors for somebody else, too.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    assert!(open > DESCRIPTORS / 2 && open + 200 < DESCRIPTORS, "{open} descriptors of {DESCRIPTORS}");
    // Until there are none at all. Nobody is taken to be gone for that.
    let others: Vec<File> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
    assert!(File::open("/dev/null").is_err(), "{} were to be had", others.len());
    herald.sample();
    assert_eq!(own_threads(&herald), all);
    drop(others);
    herald.sample();
    assert_eq!(own_threads(&herald), all);

    drop(sleepers);
    // Of those who have slept for long not all are read each time.
    are_forgotten(&mut herald, 3, Nanos::ZERO);
}

/// With this feature tests run one at a time.
#[cfg(feature = "bpf")]
#[test]
fn twenty_thousand_threads_are_read_by_bpf_within_the_budget() {
    let mut herald = match Herald::new(Options { period: PERIOD, budget: BUDGET, reader: Reader::Bpf }) {
        Ok(herald) => herald,
        Err(why) => {
            println!("not tried: {why}");
            return;
        }
    };
    let Some(sleepers) = sleepers() else { return };
    read_within_the_budget(&mut herald, sleepers.threads.len());
    drop(sleepers);
    // The first time they are missed, and a second later all are read.
    are_forgotten(&mut herald, 2, Nanos::from_millis(1_100));
}
