//! A machine on virtual time: CPUs, tasks that compute and sleep in turn, and a scheduler that says who runs where.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::Policy;

/// A task, by number. Numbers are given in order and never again.
pub type Task = usize;

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It needs so much CPU time.
    Compute(Nanos),
    /// It sleeps for so long.
    Sleep(Nanos, Sleep),
    /// It sleeps until somebody wakes it ([`Wakes`]).
    Wait,
    /// It is over.
    End,
}

/// What a task sleeps for. Schedulers may think the better of one than of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// A socket, a timer, a person.
    Interruptible,
    /// A disk.
    Disk,
}

/// How a task is to be scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// -20 to 19.
    pub nice: i8,
    /// [`Policy::RealTime`] is not simulated: it runs as [`Policy::Normal`].
    pub policy: Policy,
    /// The group that it shares CPUs in, where the scheduler knows groups.
    pub group: u32,
}

/// The tasks that are to be woken.
pub type Wakes = Vec<Task>;

/// What the tasks of a machine do.
pub trait Workload {
    /// What `task` does from `now` on: it is new, its last step is done, or it was woken. Tasks that wait and are put into `wakes` are woken;
    /// for others that does nothing.
    fn next(&mut self, task: Task, now: Nanos, wakes: &mut Wakes) -> Step;
}

/// Why a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Somebody else may be better; it is still ready.
    Ready,
    /// It sleeps.
    Sleeps,
    /// It is over.
    Ended,
}

/// Who runs where. Every task is in one of three states for a scheduler: away, ready or running; its CPUs are numbered from zero.
pub trait Scheduler {
    /// How many CPUs it has.
    fn cpus(&self) -> usize;
    /// A task, away as yet. `parent` is who made it, if that is a task.
    fn add(&mut self, task: Task, attributes: Attributes, parent: Option<Task>, now: Nanos);
    /// `task` is ready, after such a sleep. The CPU that should choose again because of that, if any.
    fn wake(&mut self, task: Task, after: Sleep, now: Nanos) -> Option<usize>;
    /// Chooses who runs on `cpu`, which runs nobody.
    fn pick(&mut self, cpu: usize, now: Nanos) -> Option<Task>;
    /// Who ran on `cpu` leaves it.
    fn put(&mut self, cpu: usize, left: Left, now: Nanos);
    /// When it wants to look at `cpu` next.
    fn next_look(&self, cpu: usize) -> Nanos;
    /// It looks at `cpu`. Whether that should choose again.
    fn look(&mut self, cpu: usize, now: Nanos) -> bool;
    /// Another nice value for `task`. The CPU that should choose again because of that, if any.
    fn renice(&mut self, task: Task, nice: i8, now: Nanos) -> Option<usize>;
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// How it is scheduled.
    pub attributes: Attributes,
    /// For how long it has run.
    pub ran: Nanos,
    /// For how long it has been ready without running, the wait included that is going on.
    pub waited: Nanos,
    /// When it began.
    pub began: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running(usize),
    Ready,
    Asleep,
    Waiting,
    Ended,
}

#[derive(Clone, Debug)]
struct Thread {
    account: Account,
    /// Whether it never computes here, and the scheduler knows nothing of it.
    remote: bool,
    state: State,
    /// Since when it is in that state, or its run was last counted.
    since: Nanos,
    /// What is left of its computing.
    left: Nanos,
    slept: Sleep,
}

/// Steps that take no time which a task may make one after another. More are a workload that never lets time pass.
const MOST_IDLE_STEPS: u32 = 100_000;

/// CPUs, tasks and a scheduler.
pub struct Machine<S, W> {
    /// Who says who runs.
    pub scheduler: S,
    /// What tasks do.
    pub workload: W,
    now: Nanos,
    running: Vec<Option<Task>>,
    threads: Vec<Thread>,
    alarms: BinaryHeap<Reverse<(Nanos, Task)>>,
    wakes: Wakes,
}

impl<S: Scheduler, W: Workload> Machine<S, W> {
    /// Without a task, at time zero.
    pub fn new(scheduler: S, workload: W) -> Machine<S, W> {
        let running = vec![None; scheduler.cpus()];
        let (threads, alarms, wakes) = (Vec::new(), BinaryHeap::new(), Vec::new());
        Machine { scheduler, workload, now: Nanos::ZERO, running, threads, alarms, wakes }
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The number that the next task will have.
    pub fn next_task(&self) -> Task {
        self.threads.len()
    }

    /// A new task, which begins at once. `parent` is who made it, if that is a task.
    pub fn spawn(&mut self, attributes: Attributes, parent: Option<Task>) -> Task {
        let task = self.begin(attributes, false);
        self.scheduler.add(task, attributes, parent, self.now);
        self.proceed(task);
        task
    }

    /// A task on another machine, such as a client: it sleeps and waits, but must not compute, and has no account.
    pub fn spawn_remote(&mut self) -> Task {
        let task = self.begin(Attributes::default(), true);
        self.proceed(task);
        task
    }

    fn begin(&mut self, attributes: Attributes, remote: bool) -> Task {
        let account = Account { attributes, ran: Nanos::ZERO, waited: Nanos::ZERO, began: self.now };
        self.threads.push(Thread {
            account,
            remote,
            state: State::Waiting,
            since: self.now,
            left: Nanos::ZERO,
            slept: Sleep::Interruptible,
        });
        self.threads.len() - 1
    }

    /// Wakes a task from without. That does nothing unless it waits.
    pub fn wake(&mut self, task: Task) {
        self.wakes.push(task);
        self.wake_all();
    }

    /// Another nice value.
    pub fn renice(&mut self, task: Task, nice: i8) {
        self.threads[task].account.attributes.nice = nice;
        let cpu = self.scheduler.renice(task, nice, self.now);
        self.choose_again(cpu);
    }

    /// The accounts of all tasks that have begun here and not ended, as of now.
    pub fn accounts(&self) -> impl Iterator<Item = (Task, Account)> + '_ {
        let here = |thread: &Thread| !thread.remote && thread.state != State::Ended;
        self.threads.iter().enumerate().filter(move |(_, thread)| here(thread)).map(|(task, thread)| {
            let going_on = self.now.since(thread.since);
            let mut account = thread.account;
            match thread.state {
                State::Running(_) => account.ran += going_on,
                State::Ready => account.waited += going_on,
                State::Asleep | State::Waiting | State::Ended => {}
            }
            (task, account)
        })
    }

    /// How many CPUs run somebody.
    pub fn busy(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// How many tasks are ready without running.
    pub fn ready(&self) -> usize {
        self.threads.iter().filter(|thread| thread.state == State::Ready).count()
    }

    /// Lets time pass until `until`; what is due then has happened.
    pub fn advance(&mut self, until: Nanos) {
        while self.step(until) {}
        self.now = self.now.max(until);
    }

    /// Whether anything happened, which is then at `now`, and not after `until`.
    pub fn step(&mut self, until: Nanos) -> bool {
        let (mut due, mut cpu) = (self.alarms.peek().map_or(Nanos::MAX, |&Reverse((due, _))| due), None);
        for (i, running) in self.running.iter().enumerate() {
            let done = running.map_or(Nanos::MAX, |task| self.threads[task].since + self.threads[task].left);
            let next = done.min(self.scheduler.next_look(i));
            if next < due {
                (due, cpu) = (next, Some(i));
            }
        }
        if due > until {
            return false;
        }
        self.now = due;
        match cpu {
            None => {
                if let Some(Reverse((_, task))) = self.alarms.pop() {
                    self.proceed(task);
                }
            }
            Some(cpu) => self.attend(cpu),
        }
        true
    }

    /// Something is due on `cpu`: its task has done its computing, or the scheduler wants to look.
    fn attend(&mut self, cpu: usize) {
        if let Some(task) = self.running[cpu] {
            self.count(task);
            if self.threads[task].left == Nanos::ZERO {
                return self.proceed(task);
            }
        }
        if self.scheduler.look(cpu, self.now) {
            self.choose_again(Some(cpu));
        }
    }

    /// Counts what a running task has run.
    fn count(&mut self, task: Task) {
        let thread = &mut self.threads[task];
        let ran = self.now.since(thread.since);
        thread.account.ran += ran;
        thread.left = thread.left.since(ran);
        thread.since = self.now;
    }

    /// The next step of a task that is new, done with its last, or woken; and of all whom that wakes.
    fn proceed(&mut self, task: Task) {
        self.take_step(task);
        self.wake_all();
    }

    fn wake_all(&mut self) {
        let mut next = 0;
        while let Some(&task) = self.wakes.get(next) {
            next += 1;
            if self.threads[task].state == State::Waiting {
                self.take_step(task);
            }
        }
        self.wakes.clear();
    }

    fn take_step(&mut self, task: Task) {
        let mut step = self.workload.next(task, self.now, &mut self.wakes);
        for idle_steps in 0.. {
            assert!(idle_steps < MOST_IDLE_STEPS, "task {task} does nothing for ever, and no time passes");
            match step {
                Step::Compute(Nanos::ZERO) | Step::Sleep(Nanos::ZERO, _) => {
                    step = self.workload.next(task, self.now, &mut self.wakes);
                }
                _ => break,
            }
        }
        let state = match step {
            Step::Compute(time) => return self.compute(task, time),
            Step::Sleep(time, sleep) => {
                self.threads[task].slept = sleep;
                self.alarms.push(Reverse((self.now + time, task)));
                State::Asleep
            }
            Step::Wait => {
                self.threads[task].slept = Sleep::Interruptible;
                State::Waiting
            }
            Step::End => State::Ended,
        };
        let before = self.threads[task].state;
        self.threads[task].state = state;
        self.threads[task].since = self.now;
        if let State::Running(cpu) = before {
            let left = if state == State::Ended { Left::Ended } else { Left::Sleeps };
            self.running[cpu] = None;
            self.scheduler.put(cpu, left, self.now);
            self.choose(cpu);
        }
    }

    fn compute(&mut self, task: Task, time: Nanos) {
        let thread = &mut self.threads[task];
        assert!(!thread.remote, "task {task} is on another machine and cannot compute here");
        thread.left = time;
        if matches!(thread.state, State::Running(_)) {
            return;
        }
        thread.state = State::Ready;
        thread.since = self.now;
        let cpu = self.scheduler.wake(task, thread.slept, self.now);
        self.choose_again(cpu);
    }

    /// A CPU puts back who runs there, and chooses.
    fn choose_again(&mut self, cpu: Option<usize>) {
        let Some(cpu) = cpu else { return };
        if let Some(task) = self.running[cpu].take() {
            self.count(task);
            self.threads[task].state = State::Ready;
            self.scheduler.put(cpu, Left::Ready, self.now);
        }
        self.choose(cpu);
    }

    fn choose(&mut self, cpu: usize) {
        let Some(task) = self.scheduler.pick(cpu, self.now) else { return };
        let thread = &mut self.threads[task];
        thread.account.waited += self.now.since(thread.since);
        thread.since = self.now;
        thread.state = State::Running(cpu);
        self.running[cpu] = Some(task);
    }
}
