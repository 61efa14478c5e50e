//! From the start of the job to its exit code.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use plimsoll_core::Nanos;

use crate::clock;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::job::{self, NotStarted};
use crate::levers::group;
use crate::plan::{Facts, Plan, Want};
use crate::process::Process;
use crate::report::{Report, Tally};
use crate::rights;
use crate::signals::{Arrived, Signals};
use crate::watch::Watch;
use plimsoll_cpufutures::{IdleOnly, MaxSlowdown, Pauses};

/// The exit code of our own failures, as of `env` and `timeout`.
pub const OWN_FAILURE: u8 = 125;
/// The priority of this program where it may have it: it needs little, but in time, beside whoever is busy.
const OWN_NICE: i32 = -10;
/// Without the herald the job is still looked after, so often.
const PERIOD: Duration = Duration::from_millis(100);
/// A job that was asked to end is not paused for so long: it may have to tidy up.
const GRACE: Nanos = Nanos::from_secs(10);

/// What is to be held back.
#[derive(Debug)]
pub enum Target {
    /// A command, with its arguments.
    Command(Vec<OsString>),
    /// A process that runs already.
    Running(i32),
}

/// What to do.
#[derive(Debug)]
pub struct Options {
    /// How.
    pub want: Want,
    /// Whom.
    pub target: Target,
    /// Says nothing but errors.
    pub quiet: bool,
    /// Where the report goes.
    pub report: Option<PathBuf>,
    /// Says what it would do, and does nothing.
    pub dry_run: bool,
}

fn say(text: impl std::fmt::Display) {
    eprintln!("plimsoll yield: {text}");
}

/// Runs the job and returns the exit code. This process must have no second thread.
pub fn run(options: Options) -> u8 {
    match try_run(options) {
        Ok(code) => code,
        Err(NotStarted { code, why }) => {
            say(why);
            code
        }
    }
}

fn try_run(options: Options) -> Result<u8, NotStarted> {
    let failed = |why: String| NotStarted { code: OWN_FAILURE, why };
    let running = match options.target {
        Target::Command(_) => None,
        Target::Running(pid) => Some(target(pid).map_err(failed)?),
    };
    let mut facts = Facts::find(running.map(|process| process.pid)).map_err(failed)?;
    let mut plan = Plan::choose(options.want, facts.clone());
    if options.dry_run {
        say(format_args!("would use {plan}"));
        plan.missing.iter().for_each(|missing| say(format_args!("not used: {missing}")));
        return Ok(0);
    }
    let signals = Signals::block().map_err(|error| failed(format!("signals: {error}")))?;
    // Orphans of the job become children of this process, so that none gets lost.
    let _ = nix::sys::prctl::set_child_subreaper(running.is_none());
    // SAFETY: nothing here has started a thread yet, and the caller says the same of itself.
    let guard = unsafe { Guard::start() }.map_err(|error| failed(format!("the guard: {error}")))?;
    let mut hold = match Hold::prepare(plan.clone(), running, guard) {
        Ok(hold) => hold,
        Err((why, guard)) => {
            // What was promised cannot be had. There is always something that needs no right.
            (facts.share, facts.freezer) = (Err(why.clone()), Err(why));
            plan = Plan::choose(options.want, facts);
            Hold::prepare(plan.clone(), running, guard).map_err(|(why, _)| failed(why))?
        }
    };
    let began = match &options.target {
        Target::Running(_) => {
            running.map_or(Ok(None), |root| hold.adopt(root).map(|()| None)).map_err(failed)
        }
        Target::Command(command) => {
            hold.begin().map_err(failed).and_then(|()| job::start(command, &plan, signals.before()).map(Some))
        }
    };
    let child = match began {
        Ok(child) => child,
        Err(error) => {
            hold.release();
            return Err(error);
        }
    };
    if !options.quiet {
        say(format_args!("{plan}"));
        plan.missing.iter().for_each(|missing| say(format_args!("not used: {missing}")));
    }
    // Who looks late is told wrong shares, and gives the job what is not its due. Nobody else has this priority: all are started.
    let _ = rustix::process::setpriority_process(None, OWN_NICE);
    let mut ride = Ride::new(options.want, hold, child, running);
    let code = ride.until_the_end(&signals);
    let report = ride.end(child.map(|_| code));
    if !options.quiet {
        say(&report);
    }
    if let Some(file) = &options.report {
        write(file, &report);
    }
    Ok(code)
}

fn target(pid: i32) -> Result<Process, String> {
    rights::over(pid)?;
    if pid == std::process::id() as i32 {
        return Err(format!("process {pid} is plimsoll yield itself"));
    }
    if let Some(other) = group::held_by(pid) {
        return Err(format!(
            "process {pid} is held back by another plimsoll yield already (process {other}): interrupt that first"
        ));
    }
    Process::of(pid).filter(Process::lives).ok_or_else(|| format!("there is no process {pid}"))
}

fn write(file: &Path, report: &Report) {
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::other);
    if let Err(error) = text.and_then(|text| fs::write(file, text + "\n")) {
        say(format_args!("the report: {}: {error}", file.display()));
    }
}

/// What decides.
#[derive(Debug)]
enum Control {
    IdleOnly(IdleOnly),
    /// Sets its share.
    Share(MaxSlowdown),
    /// Stops it now and then: all that is left where its share cannot be set.
    Pauses(Pauses),
    /// Nothing: the job has its equal share, for want of a herald.
    Nothing,
}

/// From the start to the end.
struct Ride {
    hold: Hold,
    /// The command, if it was started here,
    child: Option<i32>,
    /// and how it ended.
    ended: Option<u8>,
    /// The job that ran before.
    running: Option<(Process, Option<OwnedFd>)>,
    watch: Option<Watch>,
    control: Control,
    /// The job's least share is still to be set.
    must_idle: bool,
    tally: Tally,
    /// Until when the job is left in peace.
    grace_until: Nanos,
    /// Why it is not looked after any more.
    lost: Option<String>,
}

impl Ride {
    fn new(want: Want, hold: Hold, child: Option<i32>, running: Option<Process>) -> Ride {
        // Where its share is set it need not be.
        let pauses = want == Want::IdleOnly || hold.levels().is_none();
        let watch = Watch::new(pauses)
            .map_err(|why| say(format_args!("cannot tell what it costs others: {why}")))
            .ok();
        let control = match (want, hold.levels()) {
            _ if watch.is_none() => Control::Nothing,
            (Want::IdleOnly, _) => Control::IdleOnly(IdleOnly::default()),
            (Want::MaxSlowdown(limit), Some(levels)) => {
                let start = hold.level_for(limit);
                Control::Share(MaxSlowdown::new(limit, levels, start, hold.doubling()))
            }
            (Want::MaxSlowdown(limit), None) => Control::Pauses(Pauses::new(limit)),
        };
        let must_idle = want == Want::IdleOnly;
        let tally = Tally::new(want, hold.plan().to_string(), hold.plan().missing.clone());
        let pidfd = |process: Process| {
            let pid = rustix::process::Pid::from_raw(process.pid)?;
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
        };
        let running = running.map(|process| (process, pidfd(process)));
        let grace_until = Nanos(0);
        let mut ride = Ride {
            hold,
            child,
            ended: None,
            running,
            watch,
            control,
            must_idle,
            tally,
            grace_until,
            lost: None,
        };
        ride.idle();
        ride
    }

    /// Sets the job's least share, if it is to be. Where that cannot be done now, it is tried again.
    fn idle(&mut self) {
        if self.must_idle {
            self.must_idle = match self.hold.idle() {
                Ok(in_force) => !in_force,
                Err(why) => {
                    say(why);
                    false
                }
            };
        }
    }

    /// Looks after the job until it has ended, or until it is to be let go. Returns the exit code.
    fn until_the_end(&mut self, signals: &Signals) -> u8 {
        loop {
            self.wait(signals);
            while let Some(arrived) = signals.next() {
                match arrived {
                    Arrived::Child => self.reap(),
                    Arrived::ForJob { signal, sender } => {
                        if let Some(code) = self.pass_on(signal, sender) {
                            return code;
                        }
                    }
                }
            }
            match (self.ended, &self.running) {
                (Some(code), _) => return code,
                (None, Some((process, _))) if !process.lives() => return 0,
                _ => {}
            }
            self.idle();
            self.hold.confirm();
            if self.watch.as_ref().is_none_or(|watch| watch.next_in().is_zero()) {
                self.look();
            }
        }
    }

    fn wait(&self, signals: &Signals) {
        let due = self.watch.as_ref().map_or(PERIOD, Watch::next_in).min(PERIOD);
        // Rounded up, or the last part of a millisecond would be spent asking.
        let timeout = PollTimeout::from(due.as_micros().div_ceil(1_000) as u16);
        let ended = self.running.as_ref().and_then(|(_, pidfd)| pidfd.as_ref());
        let mut ready: Vec<PollFd<'_>> = [Some(signals.as_fd()), ended.map(AsFd::as_fd)]
            .into_iter()
            .flatten()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // Interrupted it is shorter, and nobody minds.
        let _ = poll(&mut ready, timeout);
    }

    fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(status) => {
                    let Some(pid) = status.pid() else { return };
                    if Some(pid.as_raw()) == self.child {
                        self.ended = job::exit_code(status);
                    } else if pid.as_raw() == self.hold.guard().pid() {
                        self.hold.guard().ended();
                        say("the guard has ended; should this program be killed, nothing is put back");
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Gives a signal to the job. Returns the exit code where it is for this program.
    fn pass_on(&mut self, signal: Signal, sender: Option<i32>) -> Option<u8> {
        let ends = matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT);
        if ends && self.child.is_none() {
            return Some(job::of_signal(signal));
        }
        let was_paused = self.hold.is_paused();
        if ends || signal == Signal::SIGTSTP {
            self.grace_until = Nanos(clock::now().0 + GRACE.0);
            self.hold.resume();
        }
        if let Some(child) = self.child {
            // Of the terminal's signals it has its own. What it sends to its whole process group must not come back to it.
            let own =
                |sender: i32| u32::try_from(sender).is_ok_and(|sender| self.hold.pids().contains(&sender));
            let has_it = sender.is_none_or(own);
            // What makes a stopped process go on makes it forget that it was to be stopped.
            if !has_it || (signal == Signal::SIGTSTP && was_paused) {
                let _ = kill(Pid::from_raw(child), signal);
            }
        }
        if signal == Signal::SIGTSTP {
            // The shell waits for this process, not for the job.
            let _ = raise(Signal::SIGSTOP);
        }
        None
    }

    fn look(&mut self) {
        let now = clock::now();
        let paused = self.hold.is_paused();
        let Some(watch) = &mut self.watch else { return };
        let pids = self.hold.pids();
        let seen = watch.look(&pids, paused);
        self.tally.add(&seen);
        // The account is kept on, whatever becomes of it.
        let (runs, level) = match &mut self.control {
            Control::IdleOnly(control) => (control.runs(now, &seen), None),
            Control::Share(control) => (true, Some(control.level(self.hold.level(), &seen))),
            Control::Pauses(control) => (control.runs(&seen), None),
            Control::Nothing => return,
        };
        if self.lost.is_some() {
            return;
        }
        let done = match level {
            Some(level) => self.hold.set(level).map(drop),
            None => run_or_pause(&mut self.hold, runs || now < self.grace_until),
        };
        if let Err(why) = done {
            say(format_args!("the job is not held back any more: {why}"));
            // It goes on with what is in force.
            self.hold.resume();
            self.lost = Some(why);
        }
    }

    fn end(mut self, exit_code: Option<u8>) -> Report {
        // What was between the last look and the end.
        if let Some(watch) = &mut self.watch {
            self.tally.add(&watch.look(&self.hold.pids(), self.hold.is_paused()));
        }
        let worst = match &self.control {
            Control::Share(control) => Some(control.worst()),
            Control::Pauses(control) => Some(control.worst()),
            _ => None,
        };
        self.hold.release();
        self.tally.close(worst, self.lost, clock::own_cpu_s(), exit_code)
    }
}

fn run_or_pause(hold: &mut Hold, runs: bool) -> Result<(), String> {
    if runs {
        hold.resume();
        Ok(())
    } else {
        hold.pause()
    }
}
