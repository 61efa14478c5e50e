//! Going over to another config while serving: on SIGHUP, and when the file has changed. A file that cannot be used
//! changes nothing; the log says what is wrong with it, line by line.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_core::config::Config;

use crate::config_file::{self, LoadError};
use crate::record::Recorder;
use crate::state::Shared;
use crate::supervisor::kept_text::KeptText;

/// How reloads went.
#[derive(Debug, Default)]
pub struct Reloads {
    /// Those that were carried out.
    pub done: AtomicU64,
    /// Those that changed nothing because the file cannot be used.
    pub failed: AtomicU64,
}

/// What a file looks like from the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// Reloads the config of a worker.
pub struct Reloader {
    path: PathBuf,
    shared: Arc<Shared>,
    last_good: KeptText,
    recorder: Option<Arc<Recorder>>,
    reloads: Arc<Reloads>,
    /// The text that was last carried out or found wrong: it need not be looked at again.
    seen: String,
    /// The file as it was when its text was last read, and as it was at the last look.
    read: Option<Stamp>,
    looked: Option<Stamp>,
}

impl Reloader {
    /// For a worker that runs with `text`, which is what stands at `path` or did when it was good.
    pub fn new(
        path: PathBuf,
        text: String,
        shared: Arc<Shared>,
        last_good: KeptText,
        recorder: Option<Arc<Recorder>>,
        reloads: Arc<Reloads>,
    ) -> Reloader {
        Reloader { path, shared, last_good, recorder, reloads, seen: text, read: None, looked: None }
    }

    /// Reloads because the operator said so.
    pub fn reload(&mut self) {
        match config_file::text(&self.path) {
            Ok(text) => self.carry_out(text),
            Err(error) => self.fail(&error),
        }
    }

    /// Looks at the file, and reloads if it has another text than before. To be called once a second: a file that has
    /// just changed is left alone until the next look finds it the same, so that one that is being written is not
    /// read half-way.
    pub fn look(&mut self) {
        let stamp = std::fs::metadata(&self.path).ok().map(|meta| Stamp {
            inode: meta.ino(),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        });
        let settled = stamp == self.looked;
        self.looked = stamp;
        if !settled || stamp.is_none() || stamp == self.read {
            return;
        }
        self.read = stamp;
        match config_file::text(&self.path) {
            Ok(text) if text == self.seen => {}
            Ok(text) => self.carry_out(text),
            Err(error) => self.fail(&error),
        }
    }

    fn carry_out(&mut self, text: String) {
        let parsed = config_file::parse(&text, &self.path);
        self.seen = text;
        let (config, warnings) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.fail(&error),
        };
        for warning in warnings {
            log::warn!(warning:%; "config");
        }
        if let Some(recorder) = &self.recorder {
            recorder.config(&self.seen);
        }
        let before = self.shared.routing().load_full();
        let late = needs_upgrade(&before.config, &config);
        if let Err(error) = self.shared.reload(config) {
            return self.fail(&error.at(&self.seen, &self.path));
        }
        self.reloads.done.fetch_add(1, Relaxed);
        log::info!(config:% = self.path.display(); "reloaded");
        if let Some(what) = late {
            log::warn!(what:%; "takes effect at the next upgrade (SIGUSR2) or restart");
        }
        if let Err(error) = self.last_good.store(&self.seen) {
            log::warn!(error:%; "the config is not kept for a worker that restarts");
        }
    }

    fn fail(&self, error: &LoadError) {
        self.reloads.failed.fetch_add(1, Relaxed);
        error.log();
        log::error!("not reloaded; the running config stays");
    }
}

/// What of the difference between two configs lies with the parent, and so does not change by a reload.
fn needs_upgrade(before: &Config, after: &Config) -> Option<String> {
    let (before, after) = (&before.sentry, &after.sentry);
    let keys = [
        ("listen", before.listen != after.listen),
        ("admin", before.admin != after.admin),
        ("threads", before.threads != after.threads),
    ];
    let changed: Vec<_> = keys.iter().filter(|(_, changed)| *changed).map(|(key, _)| *key).collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}
