//! The herald on real threads of this host. Nothing here depends on how fast anything is.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_cpufutures::TaskSample;
use plimsoll_herald::{Herald, Options, Reader};

use common::{Hogs, of};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Readings until something must have been seen: half a minute, on a host with nothing to spare.
const PATIENCE: usize = 600;

fn herald() -> Herald {
    let period = Duration::from_millis(50);
    Herald::new(Options { period, budget: 1.0, reader: Reader::Pread }).unwrap()
}

/// Reads until `seen` returns something.
fn until<T>(herald: &mut Herald, mut seen: impl FnMut(&Herald) -> Option<T>) -> T {
    for _ in 0..PATIENCE {
        herald.wait();
        herald.sample();
        if let Some(seen) = seen(herald) {
            return seen;
        }
    }
    panic!("not seen in {PATIENCE} readings");
}

#[test]
fn who_asks_for_readings_more_often_need_not_wait_for_the_next() {
    let options = Options { period: Duration::from_secs(3_600), budget: 1.0, reader: Reader::Pread };
    let mut herald = Herald::new(options).unwrap();
    herald.sample();
    assert!(herald.next_in() > Duration::from_secs(3_000));
    herald.set_period(Duration::from_millis(50));
    assert!(herald.next_in() <= Duration::from_secs(60), "{:?}", herald.next_in());
    herald.set_period(Duration::from_secs(3_600));
    assert!(herald.next_in() > Duration::from_secs(3_000));
}

#[test]
fn threads_come_run_wait_and_go() {
    let mut herald = herald();
    herald.sample();
    let hogs = Hogs::start(3);
    let first =
        until(&mut herald, |herald| hogs.tids.iter().map(|&tid| of(herald, tid)).collect::<Option<Vec<_>>>());
    for task in &first {
        assert_eq!(task.id.pid, std::process::id());
        assert!(task.id.started > 0);
    }
    // Threads of one CPU share it: what they ran and waited, all together, is what time has passed for each.
    let second = until(&mut herald, |herald| {
        let now: Vec<_> = hogs.tids.iter().map(|&tid| of(herald, tid).unwrap()).collect();
        let waited = now.iter().zip(&first).all(|(now, first)| now.wait_ns - first.wait_ns > 100_000_000);
        let ran = now.iter().zip(&first).all(|(now, first)| now.run_ns - first.run_ns > 10_000_000);
        (waited && ran).then_some(now)
    });
    // The scheduling is looked at within a second or so.
    until(&mut herald, |herald| {
        let task = of(herald, second[0].id.tid).unwrap();
        (task.nice == 19 && herald.host().sets[task.cpus as usize].len() == 1).then_some(())
    });
    assert!(herald.described(&second[0].id).is_some_and(|described| !described.comm.is_empty()));
    drop(hogs);
    until(&mut herald, |herald| second.iter().all(|task| of(herald, task.id.tid).is_none()).then_some(()));
    assert_eq!(herald.described(&second[0].id), None, "nobody remembers who is gone");
    let cost = herald.cost();
    assert!(cost.reader == "pread" && cost.readings > 3 && cost.cpu > 0.0 && cost.cpu < 1.0, "{cost:?}");
}

#[test]
fn counters_never_go_back() {
    let mut herald = herald();
    let _hogs = Hogs::start(4);
    let mut before: Vec<TaskSample> = Vec::new();
    for _ in 0..20 {
        herald.sample();
        for task in herald.tasks() {
            let Some(earlier) = before.iter().find(|earlier| earlier.id == task.id) else { continue };
            assert!(task.run_ns >= earlier.run_ns && task.wait_ns >= earlier.wait_ns, "{earlier:?} {task:?}");
        }
        before = herald.tasks().to_vec();
    }
}

#[test]
#[cfg(not(feature = "bpf"))]
fn a_build_without_bpf_reads_by_files_and_says_so() {
    let mut herald = Herald::new(Options::default()).unwrap();
    herald.sample();
    assert_eq!(herald.cost().reader, "pread");
    assert!(
        herald.note().is_some_and(|note| note.contains("without the feature `bpf`")),
        "{:?}",
        herald.note()
    );
    let refused = Herald::new(Options { reader: Reader::Bpf, ..Options::default() }).err().unwrap();
    assert!(refused.contains("without the feature `bpf`"), "{refused}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let wrong = |options| Herald::new(options).err().unwrap();
    assert!(wrong(Options { budget: 0.0, ..Options::default() }).contains("0.02"));
    assert!(wrong(Options { budget: f64::NAN, ..Options::default() }).contains("0.02"));
    assert!(wrong(Options { period: Duration::ZERO, ..Options::default() }).contains("100ms"));
}

/// A cgroup of version 1 of this host, and a program in it. Both end with this.
struct InCgroup {
    dir: std::path::PathBuf,
    child: std::process::Child,
}

impl InCgroup {
    /// Nothing where there is no such hierarchy, or nobody may make groups in it.
    fn start() -> Option<InCgroup> {
        let dir =
            std::path::PathBuf::from(format!("/sys/fs/cgroup/cpu/plimsoll-test-{}", std::process::id()));
        std::fs::create_dir(&dir).ok()?;
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let group = InCgroup { dir, child };
        let write = |file: &str, text: String| std::fs::write(group.dir.join(file), text).ok();
        write("cpu.shares", "512".to_owned())?;
        write("cpu.cfs_quota_us", "50000".to_owned())?;
        write("cgroup.procs", group.child.id().to_string())?;
        Some(group)
    }
}

impl Drop for InCgroup {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.dir);
    }
}

#[test]
fn a_thread_is_in_the_group_of_its_cgroup() {
    let Some(inside) = InCgroup::start() else {
        println!("not tried: no cgroup of version 1 can be made here");
        return;
    };
    let mut herald = herald();
    herald.sample();
    let task = of(&herald, inside.child.id()).unwrap();
    let group = herald.host().groups[task.group as usize];
    assert_eq!((group.parent, group.weight, group.quota_cpus), (0, 512, Some(0.5)));
    let name = inside.dir.file_name().unwrap().to_str().unwrap();
    assert_eq!(herald.described(&task.id).unwrap().cgroup, format!("/{name}"));
    std::fs::write(inside.dir.join("cpu.shares"), "2048").unwrap();
    until(&mut herald, |herald| (herald.host().groups[task.group as usize].weight == 2048).then_some(()));
}

#[test]
fn threads_that_vanish_while_they_are_read_take_nobody_with_them() {
    for reader in [Reader::Pread, Reader::Auto] {
        let mut herald =
            Herald::new(Options { period: Duration::from_millis(50), budget: 1.0, reader }).unwrap();
        let stays = Hogs::start(1);
        until(&mut herald, |herald| of(herald, stays.tids[0]));
        let stop = Arc::new(AtomicBool::new(false));
        let comers: Vec<_> = (0..2)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    let mut lived = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let brief: Vec<_> =
                            (0..8).map(|_| std::thread::spawn(std::thread::yield_now)).collect();
                        lived += brief.len();
                        brief.into_iter().for_each(|thread| thread.join().unwrap());
                    }
                    lived
                })
            })
            .collect();
        let mut before = 0;
        for _ in 0..100 {
            herald.sample();
            let task = of(&herald, stays.tids[0]).expect("it lives");
            assert!(task.run_ns >= before);
            before = task.run_ns;
        }
        stop.store(true, Ordering::Relaxed);
        let lived: usize = comers.into_iter().map(|comer| comer.join().unwrap()).sum();
        assert!(lived > 0);
        // Whoever was read and is gone is forgotten, with its name.
        herald.sample();
        herald.sample();
        let listed = |tid: u32| std::fs::exists(format!("/proc/self/task/{tid}")).unwrap();
        let own = |pid: u32| pid == std::process::id();
        // The others of this file's tests come and go meanwhile: a second look tells.
        until(&mut herald, |herald| {
            let gone = herald.tasks().iter().filter(|task| own(task.id.pid) && !listed(task.id.tid)).count();
            let named = herald.threads().filter(|(id, _)| own(id.pid) && !listed(id.tid)).count();
            (gone + named == 0).then_some(())
        });
    }
}

/// How many readings it takes, at fifty milliseconds, until `seen`.
fn readings(herald: &mut Herald, seen: impl Fn(&Herald) -> bool) -> usize {
    let mut count = 0;
    until(herald, |herald| {
        count += 1;
        seen(herald).then_some(())
    });
    count
}

#[test]
fn a_sleeper_is_seen_to_wake_up_and_to_end() {
    for reader in [Reader::Pread, Reader::Auto] {
        let mut herald =
            Herald::new(Options { period: Duration::from_millis(50), budget: 1.0, reader }).unwrap();
        let (wake, woken) = std::sync::mpsc::channel::<bool>();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            while woken.recv().unwrap() {
                let mut sum = 0_u64;
                for step in 0..20_000_000_u64 {
                    sum = std::hint::black_box(sum ^ step);
                }
                tell.send(sum as u32).unwrap();
            }
        });
        let tid = told.recv().unwrap();
        until(&mut herald, |herald| of(herald, tid));
        // Long enough for it to be left alone.
        for _ in 0..60 {
            herald.wait();
            herald.sample();
        }
        let before = of(&herald, tid).expect("it sleeps, and lives");
        wake.send(true).unwrap();
        told.recv().unwrap();
        let took = readings(&mut herald, |herald| of(herald, tid).unwrap().run_ns > before.run_ns);
        assert!(took <= 7, "{reader:?}: it had run, and {took} readings did not see it");
        assert!(herald.futures().of(&before.id).unwrap().actual_ms_per_s > 0.0, "{reader:?}");
        for _ in 0..60 {
            herald.wait();
            herald.sample();
        }
        wake.send(false).unwrap();
        sleeper.join().unwrap();
        // By BPF the count of all tells that somebody is missing, of which more is asked once a second.
        let took = readings(&mut herald, |herald| of(herald, tid).is_none());
        assert!(took <= 40, "{reader:?}: it had ended, and {took} readings did not see it");
        assert_eq!(herald.futures().of(&before.id), None, "{reader:?}");
    }
}

/// A process that sleeps, ended when this is dropped.
struct Sleeper(Pid);

impl Sleeper {
    /// One with this number, or an error where that may not be chosen or is taken.
    fn with_number(pid: u32) -> std::io::Result<Sleeper> {
        let numbers = [pid as libc::pid_t];
        let arguments = libc::clone_args {
            flags: 0,
            pidfd: 0,
            child_tid: 0,
            parent_tid: 0,
            exit_signal: libc::SIGCHLD as u64,
            stack: 0,
            stack_size: 0,
            tls: 0,
            set_tid: numbers.as_ptr() as u64,
            set_tid_size: 1,
            cgroup: 0,
        };
        // SAFETY: without a stack of its own it is a fork; the arguments outlive the call, and the child makes system calls alone.
        let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of_val(&arguments)) };
        match child {
            -1 => Err(std::io::Error::last_os_error()),
            0 => loop {
                // SAFETY: a system call without arguments that matter; whoever tests is to kill it, or takes it along.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            child => Ok(Sleeper(Pid::from_raw(child as i32).unwrap())),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

#[test]
fn a_number_that_is_given_to_another_process_is_another_process() {
    let mut herald = herald();
    let mut first = Command::new("sh")
        .args(["-c", "i=0; while test $i -lt 200000; do i=$((i+1)); done; exec sleep 600"])
        .spawn()
        .unwrap();
    let pid = first.id();
    let before = until(&mut herald, |herald| of(herald, pid).filter(|task| task.run_ns > 10_000_000));
    let described = herald.described(&before.id).unwrap().clone();
    first.kill().unwrap();
    first.wait().unwrap();
    // Two that start within a tick of the kernel's, 10 ms, cannot be told apart.
    until(&mut herald, |herald| of(herald, pid).is_none().then_some(()));
    let second = match Sleeper::with_number(pid) {
        Ok(second) => second,
        Err(why) => {
            println!("not tried: a process with number {pid} cannot be had: {why}");
            return;
        }
    };
    assert_eq!(second.0.as_raw_nonzero().get() as u32, pid);
    let after = until(&mut herald, |herald| of(herald, pid));
    assert!(after.id.started > before.id.started, "{before:?} {after:?}");
    assert!(after.run_ns < before.run_ns, "it has counters of its own: {before:?} {after:?}");
    assert_ne!(herald.described(&after.id).unwrap().comm, described.comm);
    assert_eq!(herald.described(&before.id), None);
    assert_eq!(herald.futures().of(&before.id), None);
}

#[test]
fn a_session_is_a_group_where_autogroups_are_on() {
    let on = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    if on.map(|text| text.trim() != "1").unwrap_or(true) {
        println!("not tried: autogroups are off, or not in this kernel");
        return;
    }
    let mut command = Command::new("sleep");
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.arg("600").pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
    let child = Ended(command.spawn().unwrap());
    let pid = child.0.id();
    std::fs::write(format!("/proc/{pid}/autogroup"), "19").unwrap();
    let mut herald = herald();
    herald.sample();
    let task = of(&herald, pid).unwrap();
    if !matches!(&*herald.described(&task.id).unwrap().cgroup, "" | "/") {
        println!("not tried: this is in a control group, where autogroups do not count");
        return;
    }
    let group = herald.host().groups[task.group as usize];
    assert_eq!((group.parent, group.weight, group.quota_cpus), (0, 15, None), "that of nice 19");
    let own = of(&herald, std::process::id()).unwrap();
    assert_ne!(own.group, task.group, "each session is one");
}

/// A child that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
