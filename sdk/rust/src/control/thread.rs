//! The control thread: a heartbeat every second, a connection when there can be one, and an ear for the agent and for our own tasks.

use std::os::fd::AsFd;

use plimsoll_ledger::Writer;
use plimsoll_ledger::control::FromAgent;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Control;
use super::cancels::Cancels;
use super::connection::Connection;
use crate::{clock, quiet};

const BEAT_NS: u64 = 1_000_000_000;
/// An agent that has not beaten for so long is gone.
const SILENT_NS: u64 = 1_000_000_000;
const AGAIN_NS: u64 = 1_000_000_000;
/// After a refusal.
const MUCH_LATER_NS: u64 = 10_000_000_000;

pub(super) struct Thread {
    control: &'static Control,
    writer: &'static Writer,
    connection: Connection,
    cancels: Cancels,
    /// Whether the agent has welcomed us; until then it orders nothing.
    welcome: bool,
    connect_ns: u64,
    beat_ns: u64,
}

impl Thread {
    pub fn new(control: &'static Control, writer: &'static Writer, connection: Connection) -> Thread {
        let cancels = Cancels::new(control, writer);
        Thread { control, writer, connection, cancels, welcome: false, connect_ns: 0, beat_ns: 0 }
    }

    pub fn run(mut self) {
        let file = self.writer.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        while !self.control.is_stopped() {
            let now_ns = clock::system_ns();
            let connects = !self.connection.is_open() && now_ns >= self.connect_ns;
            // Who is awake beats, so that both fall together: waking up is what this thread costs.
            if connects || now_ns >= self.beat_ns {
                self.beat(now_ns);
                self.beat_ns = now_ns + BEAT_NS;
            }
            if connects {
                self.connect_ns = now_ns + AGAIN_NS;
                self.welcome = false;
                self.connection.open(&file);
            }
            for note in self.control.notes.take() {
                self.cancels.note(now_ns, note);
            }
            let was_open = self.connection.is_open();
            for line in self.connection.receive() {
                self.hear(now_ns, line);
            }
            let due_ns = self.cancels.tick(now_ns);
            for line in std::mem::take(&mut self.cancels.say) {
                self.connection.send(&line);
            }
            self.connection.flush();
            if was_open && !self.connection.is_open() {
                self.cancels.alone(now_ns);
            }
            let connect_ns = if self.connection.is_open() { u64::MAX } else { self.connect_ns };
            self.sleep(due_ns.min(self.beat_ns).min(connect_ns).saturating_sub(now_ns));
        }
        self.connection.close();
        self.cancels.alone(clock::system_ns());
    }

    /// A sign of life; and the clock, while no agent ticks it.
    fn beat(&self, now_ns: u64) {
        clock::calibrate();
        self.writer.beat(now_ns);
        if now_ns.saturating_sub(self.writer.agent_beat_ns()) > SILENT_NS {
            self.writer.tick(now_ns);
            self.writer.set_flags(0);
        }
    }

    fn hear(&mut self, now_ns: u64, line: FromAgent) {
        match line {
            FromAgent::Welcome { .. } => self.welcome = true,
            FromAgent::Refused { text } => {
                quiet::once(format!("the agent refuses us: {text}"));
                self.connect_ns = now_ns + MUCH_LATER_NS;
                self.connection.close();
            }
            _ if !self.welcome => {}
            FromAgent::Cancel { id, task, turn, resource, text } => {
                self.cancels.cancel(now_ns, id, task, turn, resource, text);
            }
            FromAgent::Rerun { id } => self.cancels.rerun(now_ns, id),
            FromAgent::Drop { id } => self.cancels.forget(id),
        }
    }

    /// Until something comes, or so long.
    fn sleep(&self, ns: u64) {
        let for_so_long =
            Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let bell = PollFd::new(&self.control.notes.bell, PollFlags::IN);
        let wants = match self.connection.has_unsent() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let stream = self.connection.stream().map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), wants));
        let mut both: Vec<PollFd<'_>> = [Some(bell), stream].into_iter().flatten().collect();
        // Whatever it was, it is looked at next.
        let _ = rustix::event::poll(&mut both, Some(&for_so_long));
    }
}
