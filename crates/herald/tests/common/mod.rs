//! What the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use plimsoll_cpufutures::TaskSample;
use plimsoll_herald::Herald;
use rustix::thread::gettid;

/// Threads of this process that run all the time, on one CPU and at the lowest priority, until it is dropped.
pub struct Hogs {
    pub tids: Vec<u32>,
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Hogs {
    pub fn start(count: usize) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let cpu = rustix::thread::sched_getcpu();
        let handles = (0..count)
            .map(|_| {
                let (stop, sender) = (Arc::clone(&stop), sender.clone());
                std::thread::spawn(move || {
                    rustix::process::setpriority_process(Some(gettid()), 19).unwrap();
                    let mut one = rustix::thread::CpuSet::new();
                    one.set(cpu);
                    rustix::thread::sched_setaffinity(None, &one).unwrap();
                    sender.send(gettid().as_raw_nonzero().get() as u32).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let tids = (0..count).map(|_| receiver.recv().unwrap()).collect();
        Hogs { tids, stop, handles }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            handle.join().unwrap();
        }
    }
}

/// A thread, as it was last read.
pub fn of(herald: &Herald, tid: u32) -> Option<TaskSample> {
    herald.tasks().iter().find(|task| task.id.tid == tid).copied()
}
