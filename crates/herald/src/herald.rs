//! Reads when it is time, within its budget, and feeds the model.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Futures, Host, Settings, TaskId, TaskSample};

use crate::budget::Budget;
use crate::clock;
use crate::reader::{self, Reader, Source};
use crate::scene::{Described, Scene};
use crate::view::{Report, Task};

/// What the model's figures are about, where the herald reads often enough.
const WINDOW: Nanos = Nanos::from_millis(950);

/// How the herald reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// From one reading to the next, while that costs no more than the budget.
    pub period: Duration,
    /// CPU time that it may use, as a part of one CPU; above 0. It reads every half a minute even where that costs more, and says so.
    pub budget: f64,
    /// How it reads.
    pub reader: Reader,
}

impl Default for Options {
    /// Ten times a second, for 2 % of one CPU at most.
    fn default() -> Options {
        Options { period: Duration::from_millis(100), budget: 0.02, reader: Reader::Auto }
    }
}

/// What the herald costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// How it reads: `bpf` or `pread`.
    pub reader: &'static str,
    /// CPU time over the last ten seconds, as a part of one CPU, the model's included.
    pub cpu: f64,
    /// CPU time of the last reading.
    pub last: Duration,
    /// From the reading before to the last.
    pub period: Duration,
    /// Readings that were taken.
    pub readings: u64,
}

/// Reads the threads of this host.
pub struct Herald {
    options: Options,
    source: Source,
    /// Why it does not read by BPF,
    why_not_bpf: Option<String>,
    /// and what else is to be said of how it reads.
    note: Option<String>,
    scene: Scene,
    futures: Futures,
    budget: Budget,
    next_at: Nanos,
    /// When the readings of the last second or so were taken.
    read_at: VecDeque<Nanos>,
    cost: Cost,
}

impl Herald {
    /// Takes in all threads that there are; the budget does not count that.
    ///
    /// # Errors
    /// Where a thread of this host cannot be read, or the reader that was asked for cannot be had; in words for the operator.
    pub fn new(options: Options) -> Result<Herald, String> {
        if !(options.budget > 0.0 && options.budget <= 1.0) {
            return Err(format!("a budget of {} CPUs; give a part of one, as 0.02", options.budget));
        }
        if options.period < Duration::from_millis(1) {
            return Err(format!("a reading every {:?}; give 1ms at least, as 100ms", options.period));
        }
        let now = clock::now();
        let mut scene = Scene::new(now);
        let (source, note) = reader::open(options.reader, now, &mut scene)?;
        let reader = source.name();
        let now = clock::now();
        Ok(Herald {
            options,
            why_not_bpf: note.clone(),
            note,
            source,
            scene,
            futures: Futures::new(Settings::default()),
            budget: Budget::new(options.budget, now),
            next_at: now,
            read_at: VecDeque::new(),
            cost: Cost { reader, cpu: 0.0, last: Duration::ZERO, period: options.period, readings: 0 },
        })
    }

    /// Reads all threads, whether it is time or not, and feeds the model.
    pub fn sample(&mut self) {
        let (now, before) = (clock::now(), clock::own_cpu());
        let period = now.since(self.scene.now);
        if let Err(why) = self.source.read(now, &mut self.scene) {
            log::warn!(why:%; "the herald goes on without BPF");
            self.fall_back(why, now);
        }
        let Scene { host, tasks, news, .. } = &self.scene;
        if news.all {
            self.futures.sample(now, host, tasks);
        } else {
            self.futures.sample_news(now, host, &news.changed, &news.gone);
        }
        self.read_at.push_back(now);
        while self.read_at.get(1).is_some_and(|at| now.since(*at) >= WINDOW) {
            self.read_at.pop_front();
        }
        let cpu = clock::own_cpu().since(before);
        self.budget.spend(cpu, now);
        self.next_at = now + self.budget.wait(Nanos::from(self.options.period));
        self.cost = Cost {
            cpu: self.budget.spent_share(),
            last: cpu.into(),
            period: period.into(),
            readings: self.cost.readings + 1,
            ..self.cost
        };
        let overdrawn = self.budget.is_overdrawn().then(|| {
            format!(
                "a reading of {cpu:.1?} costs more than the budget, {} of a CPU, even at one in 30 s",
                self.options.budget,
                cpu = Duration::from(cpu),
            )
        });
        self.note = match (&self.why_not_bpf, overdrawn) {
            (Some(why), Some(overdrawn)) => Some(format!("{why}; {overdrawn}")),
            (why, overdrawn) => overdrawn.or_else(|| why.clone()),
        };
    }

    /// Reads by files from now on.
    fn fall_back(&mut self, why: String, now: Nanos) {
        if let Ok((source, _)) = reader::open(Reader::Pread, now, &mut self.scene) {
            self.source = source;
            self.cost.reader = self.source.name();
        }
        self.why_not_bpf = Some(why);
    }

    /// Why it does not read by BPF, though it might have; and whether it costs more than its budget.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Reads so often from now on, while that costs no more than the budget; the next reading may be due sooner, too.
    pub fn set_period(&mut self, period: Duration) {
        if period != self.options.period {
            self.options.period = period;
            self.next_at = self.scene.now + self.budget.wait(Nanos::from(period));
        }
    }

    /// How long it is until the next reading is due.
    pub fn next_in(&self) -> Duration {
        self.next_at.since(clock::now()).into()
    }

    /// Blocks the calling thread until then.
    pub fn wait(&self) {
        clock::sleep_until(self.next_at);
    }

    /// What is known of the threads.
    pub fn futures(&self) -> &Futures {
        &self.futures
    }

    /// The same, to say what becomes of a thread whose priority changes.
    pub fn futures_mut(&mut self) -> &mut Futures {
        &mut self.futures
    }

    /// All threads, as of the last reading: what the model was given.
    pub fn tasks(&self) -> &[TaskSample] {
        &self.scene.tasks
    }

    /// Who a thread is, if it lives.
    pub fn described(&self, id: &TaskId) -> Option<&Described> {
        self.scene.described.get(id)
    }

    /// All threads with who they are, in no order.
    pub fn threads(&self) -> impl Iterator<Item = (&TaskId, &Described)> {
        self.scene.described.iter()
    }

    /// When the last reading was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn now(&self) -> Nanos {
        self.scene.now
    }

    /// The threads that `wanted` wants, by process and thread, as programs are told of them.
    pub fn report(&self, mut wanted: impl FnMut(&TaskId, &Described) -> bool) -> Report {
        let mut tasks: Vec<Task> = self
            .futures
            .iter()
            .filter_map(|(id, found)| {
                let described = self.described(&id)?;
                wanted(&id, described).then(|| Task::new(id, &described.comm, &found))
            })
            .collect();
        tasks.sort_unstable_by_key(|task| (task.pid, task.tid));
        let interval = self.read_at.front().map_or(Nanos::ZERO, |&first| self.scene.now.since(first));
        Report { interval_s: interval.as_secs_f64(), tasks }
    }

    /// The CPUs, groups and sets of CPUs, as of the last reading.
    pub fn host(&self) -> &Host {
        &self.scene.host
    }

    /// What the herald costs.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}
