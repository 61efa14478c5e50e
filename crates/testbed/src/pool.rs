//! Threads behind one FIFO queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crossbeam_channel::{Sender, TrySendError};

/// A fixed number of worker threads that take jobs from one queue in the order of arrival.
pub struct Pool<J> {
    queue: Sender<J>,
    closed: Arc<AtomicBool>,
}

impl<J: Send + 'static> Pool<J> {
    /// Starts `threads` workers, each with its own closure from `worker`; at most `queue` jobs wait, or any
    /// number where it is `None`.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn start<W>(
        name: &str,
        threads: usize,
        queue: Option<usize>,
        mut worker: impl FnMut() -> W,
    ) -> io::Result<Pool<J>>
    where
        W: FnMut(J) + Send + 'static,
    {
        let (sender, receiver) = match queue {
            Some(limit) => crossbeam_channel::bounded::<J>(limit),
            None => crossbeam_channel::unbounded(),
        };
        let closed = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let (receiver, closed, mut work) = (receiver.clone(), closed.clone(), worker());
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                crate::clock::sleep_precisely();
                for job in receiver {
                    if closed.load(Relaxed) {
                        break;
                    }
                    work(job);
                }
            })?;
        }
        Ok(Pool { queue: sender, closed })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// Gives the job back where the queue is full.
    pub fn push(&self, job: J) -> Result<(), J> {
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// Workers end after the job they are at. Nobody waits for them: a stopping server must not hang on its
/// backlog.
impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.closed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_worker_keeps_the_order() {
        let (done, results) = mpsc::channel();
        let pool = Pool::start("test", 1, None, || {
            let done = done.clone();
            move |n: u32| done.send(n).unwrap()
        })
        .unwrap();
        for n in 0..100 {
            pool.push(n).unwrap();
        }
        let seen: Vec<u32> = results.iter().take(100).collect();
        assert!(seen.is_sorted() && seen.len() == 100, "{seen:?}");
    }

    #[test]
    fn a_full_queue_gives_the_job_back() {
        let (started, is_started) = mpsc::channel();
        let (_hold, gate) = crossbeam_channel::bounded::<()>(0);
        let pool = Pool::start("test", 1, Some(2), || {
            let (started, gate) = (started.clone(), gate.clone());
            move |_: u32| {
                let _ = started.send(());
                let _ = gate.recv();
            }
        })
        .unwrap();
        pool.push(0).unwrap();
        is_started.recv().unwrap();
        assert_eq!((pool.push(1), pool.push(2), pool.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(pool.waiting(), 2);
    }
}
