//! The loop: reads, records and draws until it is told to end.

use std::time::Duration;

use plimsoll_core::Nanos;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::bill::Bill;
use crate::cli::Options;
use crate::clock;
use crate::draw::{Palette, Shown, draw};
use crate::history::History;
use crate::record::Recorder;
use crate::row::By;
use crate::scene::Scene;
use crate::state::{Action, State};
use crate::takers::Taker;
use crate::terminal::{Screen, Signals};
use crate::watch::Watcher;

/// How long a signal may be left waiting.
const ATTENTION: Duration = Duration::from_millis(100);
/// The history has one value a second.
const SECOND: Nanos = Nanos::from_secs(1);
/// So many keys are taken before the screen is drawn again: what is pasted comes all at once.
const KEYS: usize = 64;

/// What came of it.
pub struct Ended {
    /// Of what was recorded.
    pub bill: Option<Bill>,
    /// Why there is less of that than was asked for, as on a disk that is full.
    pub lost: Option<String>,
}

/// Shows the host, or only records it where there is no terminal.
///
/// # Errors
/// In words, where it cannot begin, or the terminal is lost.
pub fn run(options: &Options) -> Result<Ended, String> {
    let signals = Signals::catch()?;
    let screen = match Screen::take(signals.clone()) {
        // Before anything is measured or written: it may be that nobody would see it.
        Err(why) if options.record.is_none() => return Err(why),
        screen => screen.ok(),
    };
    let mut top = Top::new(options)?;
    let ended = match screen {
        Some(screen) => top.show(screen, &signals),
        None => {
            top.record_only(&signals);
            Ok(())
        }
    };
    // The terminal is back: what went wrong may be said.
    ended?;
    if !top.note.is_empty() && top.lost.is_none() {
        eprintln!("plimsoll top: {}", top.note);
    }
    let bill = options.record.as_ref().map(|(path, _)| Bill::of(path)).transpose()?;
    Ok(Ended { bill, lost: top.lost })
}

struct Top {
    watcher: Watcher,
    /// What was read last.
    latest: Scene,
    recorder: Option<Recorder>,
    history: History,
    note: String,
    lost: Option<String>,
    state: State,
    period: Nanos,
    next_at: Nanos,
    next_second_at: Nanos,
    ends_at: Option<Nanos>,
}

impl Top {
    fn new(options: &Options) -> Result<Top, String> {
        let watcher = Watcher::new(options.reader, &options.pids)?;
        let latest = watcher.scene();
        let now = clock::now();
        let begin = |(path, limit): &(std::path::PathBuf, plimsoll_core::config::Size)| {
            Recorder::create(path, options.pids.clone(), limit.bytes, now, clock::wall_s(), &latest)
        };
        let by = if options.threads { By::Thread } else { By::Process };
        Ok(Top {
            recorder: options.record.as_ref().map(begin).transpose()?,
            watcher,
            latest,
            history: History::default(),
            note: String::new(),
            lost: None,
            state: State::new(by, options.sort, options.pids.clone()),
            period: options.period,
            next_at: now + options.period,
            next_second_at: now + SECOND,
            ends_at: options.duration.map(|time| now + time),
        })
    }

    /// Reads, if it is time. Says whether a period is over: it ends with the first reading after it was due, so that accounts are as of
    /// its end and no reading is taken that the herald's budget does not allow.
    fn tick(&mut self) -> bool {
        let over = self.watcher.tick() && clock::now() >= self.next_at;
        if over {
            self.end_period();
        }
        over
    }

    /// What happened since the last period counts as well.
    fn finish(&mut self) {
        self.watcher.read();
        self.end_period();
    }

    fn end_period(&mut self) {
        let now = clock::now();
        self.latest = self.watcher.scene();
        self.record(now);
        if now >= self.next_second_at {
            self.history.add(&self.latest);
            self.next_second_at = next(self.next_second_at, SECOND, now);
        }
        self.next_at = next(self.next_at, self.period, now);
    }

    fn record(&mut self, now: Nanos) {
        let Some(recorder) = &mut self.recorder else { return };
        let written = recorder.add(now, &self.latest, &|id| self.watcher.takers(id));
        match written {
            Err(why) => {
                self.note.clone_from(&why);
                self.lost = Some(why);
            }
            Ok(()) if recorder.is_full() => {
                self.note =
                    format!("the recording has ended: it reached its limit, {} bytes", recorder.limit());
            }
            Ok(()) => {}
        }
    }

    fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|at| clock::now() >= at)
    }

    /// Until what is due next, and never so long that a signal would have to wait.
    fn patience(&self) -> Duration {
        let left = self.ends_at.map_or(ATTENTION, |at| at.since(clock::now()).into());
        self.watcher.next_in().min(left).min(ATTENTION)
    }

    fn record_only(&mut self, signals: &Signals) {
        while !(self.is_over() || signals.end() || self.recorder.as_ref().is_some_and(Recorder::is_full)) {
            self.tick();
            clock::sleep(self.patience());
        }
        self.finish();
    }

    fn show(&mut self, mut screen: Screen, signals: &Signals) -> Result<(), String> {
        let palette = Palette::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
        let mut scene = std::mem::take(&mut self.latest);
        let mut takers: Vec<Taker> = Vec::new();
        let mut dirty = true;
        let mut measured = false;
        loop {
            if self.tick() && !self.state.paused {
                measured = true;
                scene = std::mem::take(&mut self.latest);
                self.state.show(&scene);
                dirty = true;
            }
            dirty |= screen.obey()?;
            if dirty {
                takers.clear();
                takers.extend(
                    self.state.row().map(|row| self.watcher.takers_of(&scene, &row.key)).unwrap_or_default(),
                );
                let note = match &*self.note {
                    "" if !measured => "measuring the first second",
                    "" if self.recorder.is_some() => "recording",
                    note => note,
                };
                let shown = Shown { scene: &scene, history: &self.history, takers: &takers, note, palette };
                screen.draw(|frame| draw(frame, &mut self.state, &shown))?;
                dirty = false;
            }
            let over = self.is_over() || signals.end();
            if over || self.keys(&screen, &scene, &mut dirty)? {
                self.finish();
                return Ok(());
            }
        }
    }

    /// Waits for keys until something is due. Says whether one asked to end.
    fn keys(&mut self, screen: &Screen, scene: &Scene, dirty: &mut bool) -> Result<bool, String> {
        let lost = |error: std::io::Error| format!("cannot read the terminal: {error}");
        let mut patience = self.patience();
        for _ in 0..KEYS {
            if !event::poll(patience).map_err(lost)? {
                break;
            }
            patience = Duration::ZERO;
            *dirty = true;
            match event::read().map_err(lost)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match self.state.key(key, scene) {
                    Action::None => {}
                    Action::Quit => return Ok(true),
                    Action::Suspend => screen.suspend(),
                },
                _ => {}
            }
        }
        Ok(false)
    }
}

/// When it is due next. Those that were missed, as while the program was stopped, are left out.
fn next(due: Nanos, period: Nanos, now: Nanos) -> Nanos {
    if now < due + period { due + period } else { now + period }
}
