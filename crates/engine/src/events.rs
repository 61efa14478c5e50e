//! Where events go: a thread that appends lines or calls who wants them, so that a full disk or a reader that does not read stops nobody.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::event::Event;
use crate::thread;

/// Lines that may wait to be written; what would be one more is lost and counted.
const WAITING: usize = 4096;

/// What is done with a line, which has its end.
type Sink = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// Takes events; those of the default are only logged.
#[derive(Clone, Default)]
pub struct Events {
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
}

/// The thread that writes, to be waited for at the end.
pub struct Writer(Option<JoinHandle<()>>);

impl Events {
    /// Appends to `path`; `-` is the standard output, nothing is nowhere.
    ///
    /// # Errors
    /// Where the file cannot be opened or the thread not be started.
    pub fn open(path: Option<&Path>) -> Result<(Events, Writer), String> {
        let Some(path) = path else {
            return Ok((Events { lines: None, lost: Arc::default() }, Writer(None)));
        };
        let mut to: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            let file = OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.map_err(|error| format!("events {}: {error}", path.display()))?)
        };
        // One write a line, so that two agents that append to one file do not mix theirs.
        Events::to(Box::new(move |line| to.write_all(line.as_bytes()).and_then(|()| to.flush())))
    }

    /// Calls this with every line, without its end.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn call(mut call: impl FnMut(&str) + Send + 'static) -> Result<(Events, Writer), String> {
        Events::to(Box::new(move |line| {
            call(line.trim_end());
            Ok(())
        }))
    }

    fn to(sink: Sink) -> Result<(Events, Writer), String> {
        let (lines, waiting) = sync_channel(WAITING);
        let thread = thread::spawn("plimsoll-events", move || write(sink, &waiting));
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok((Events { lines: Some(lines), lost: Arc::default() }, Writer(Some(thread))))
    }

    /// Writes an event, now or shortly.
    pub fn tell(&self, event: &Event) {
        let Event { event: what, app, task, resource, reason, .. } = event;
        let word = serde_json::to_value(what).unwrap_or_default();
        let what = word.as_str().unwrap_or_default();
        let (task, resource) = (task.as_deref().unwrap_or(""), resource.as_deref().unwrap_or(""));
        log::info!(app:%, task:%, resource:%, reason:%; "{what}");
        let Some(lines) = &self.lines else { return };
        let line = serde_json::to_string(event).unwrap_or_default() + "\n";
        if lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            log::warn!("an event is lost: they are not written as fast as they come");
        }
    }

    /// Events that were not written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Waits until all is written; every [`Events`] must be gone.
    pub fn finish(self) {
        if let Some(thread) = self.0 {
            // It ends when nobody can send any more.
            let _ = thread.join();
        }
    }
}

fn write(mut sink: Sink, lines: &Receiver<String>) {
    let mut failed = false;
    for line in lines {
        let written = sink(&line);
        if let (Err(error), false) = (&written, failed) {
            log::error!(error:%; "events cannot be written");
        }
        failed = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::What;

    #[test]
    fn events_are_appended_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        for reason in ["one", "two\nlines"] {
            let (events, writer) = Events::open(Some(&path)).unwrap();
            events.tell(&Event::new(What::Overload, "main", reason.to_owned()));
            assert_eq!(events.lost(), 0);
            drop(events);
            writer.finish();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let reasons: Vec<_> = text
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["reason"].clone())
            .collect();
        assert_eq!(reasons, ["one", "two\nlines"]);
        assert!(Events::open(Some(Path::new("/nonexistent/events"))).is_err());
    }

    #[test]
    fn events_are_told_line_by_line() {
        let (sender, told) = sync_channel(1);
        let (events, writer) = Events::call(move |line| sender.send(line.to_owned()).unwrap()).unwrap();
        events.tell(&Event::new(What::Overload, "main", "one".to_owned()));
        drop(events);
        writer.finish();
        let line = told.recv().unwrap();
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
}
