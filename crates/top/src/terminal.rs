//! The terminal: taken, and given back as it was however this ends.

use std::io::{IsTerminal, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{DefaultTerminal, Frame, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

/// What signals have asked for.
#[derive(Clone, Debug)]
pub struct Signals {
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Signals {
    /// Catches those that ask to end: they only raise a flag.
    ///
    /// # Errors
    /// In words, where they cannot be caught.
    pub fn catch() -> Result<Signals, String> {
        let signals = Signals { end: Arc::default(), stop: Arc::default(), go_on: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            raise(signal, &signals.end)?;
        }
        Ok(signals)
    }

    /// Whether to end.
    pub fn end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
}

fn raise(signal: i32, on: &Arc<AtomicBool>) -> Result<(), String> {
    flag::register(signal, Arc::clone(on)).map(drop).map_err(|error| format!("cannot catch signals: {error}"))
}

/// The whole terminal, until it is dropped; a panic gives it back as well.
pub struct Screen {
    terminal: DefaultTerminal,
    signals: Signals,
}

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// In words, where there is none.
    pub fn take(signals: Signals) -> Result<Screen, String> {
        if !(stdin().is_terminal() && stdout().is_terminal()) {
            return Err("standard input and output are not a terminal; `plimsoll top --once` prints a table without one, \
                        `--once --json` prints JSON, and `--record FILE` writes the history"
                .to_owned());
        }
        // From here on these do not stop us in the middle of a picture.
        raise(SIGTSTP, &signals.stop)?;
        raise(SIGCONT, &signals.go_on)?;
        let terminal = ratatui::try_init().map_err(|error| format!("cannot use this terminal: {error}"))?;
        Ok(Screen { terminal, signals })
    }

    /// Draws.
    ///
    /// # Errors
    /// In words, where the terminal has gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), String> {
        self.terminal.draw(draw).map(drop).map_err(|error| format!("cannot draw: {error}"))
    }

    /// Stops, with all who belong to the same job, as Ctrl-Z asks; the next [`Screen::obey`] does it.
    pub fn suspend(&self) {
        self.signals.stop.store(true, Ordering::Relaxed);
        // Nobody else may be there.
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
    }

    /// Stops if that was asked for, until it is continued. Says whether everything has to be drawn anew.
    ///
    /// # Errors
    /// In words, where the terminal has gone meanwhile.
    pub fn obey(&mut self) -> Result<bool, String> {
        let lost = |error: std::io::Error| format!("cannot take the terminal back: {error}");
        if self.signals.stop.swap(false, Ordering::Relaxed) {
            self.give_back();
            emulate_default_handler(SIGTSTP).map_err(lost)?;
            self.signals.go_on.store(true, Ordering::Relaxed);
            // Both of Ctrl-Z and of the job's.
            self.signals.stop.store(false, Ordering::Relaxed);
        }
        if !self.signals.go_on.swap(false, Ordering::Relaxed) {
            return Ok(false);
        }
        // Also after a stop that nobody could catch: the shell has set the terminal to its own liking since.
        disable_raw_mode().map_err(lost)?;
        enable_raw_mode().map_err(lost)?;
        execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All)).map_err(lost)?;
        // A new one knows that nothing is on the screen. (`Terminal::clear` asks the terminal where its cursor is, and waits.)
        self.terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(lost)?;
        Ok(true)
    }

    fn give_back(&mut self) {
        // Where the terminal has gone there is nothing to give back to.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}
