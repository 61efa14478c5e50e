//! Going over to another config while serving: on SIGHUP, and when the file has changed. A file that cannot be used
//! changes nothing; the log says what is wrong with it, line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_core::config::Config;

use crate::config_file::{LoadError, Loaded};
use crate::followed::Followed;
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

impl Reloads {
    /// The file's config is the running one now.
    pub fn succeed(&self, file: &Followed) {
        self.done.fetch_add(1, Relaxed);
        log::info!(config:% = file.path().display(); "reloaded");
    }

    /// It is not; why has been said.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Relaxed);
        log::error!("not reloaded; the running config stays");
    }
}

/// Reloads the config of a worker.
pub struct Reloader {
    file: Followed,
    shared: Arc<Shared>,
    last_good: KeptText,
    recorder: Option<Arc<Recorder>>,
    reloads: Arc<Reloads>,
}

impl Reloader {
    /// For a worker that runs with what is in this file, or was when it was good.
    pub fn new(
        file: Followed,
        shared: Arc<Shared>,
        last_good: KeptText,
        recorder: Option<Arc<Recorder>>,
        reloads: Arc<Reloads>,
    ) -> Reloader {
        Reloader { file, shared, last_good, recorder, reloads }
    }

    /// Reloads because the operator said so.
    pub fn reload(&mut self) {
        let loaded = self.file.load();
        self.go_over(loaded);
    }

    /// Reloads if the file says something else. To be called once a second.
    pub fn look(&mut self) {
        if let Some(loaded) = self.file.look() {
            self.go_over(loaded);
        }
    }

    fn go_over(&mut self, loaded: Result<Loaded, LoadError>) {
        let Loaded { config, text, warnings } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return self.fail(&error),
        };
        for warning in warnings {
            log::warn!(warning:%; "config");
        }
        if let Some(recorder) = &self.recorder {
            recorder.config(&text);
        }
        let before = self.shared.routing().load_full();
        let late = needs_upgrade(&before.config, &config);
        if let Err(error) = self.shared.reload(config) {
            return self.fail(&error.at(&text, self.file.path()));
        }
        self.reloads.succeed(&self.file);
        if let Some(what) = late {
            log::warn!(what:%; "takes effect at the next upgrade (SIGUSR2) or restart");
        }
        if let Err(error) = self.last_good.store(&text) {
            log::warn!(error:%; "the config is not kept for a worker that restarts");
        }
    }

    fn fail(&self, error: &LoadError) {
        error.log();
        self.reloads.fail();
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
    changed(&keys)
}

/// The names of the keys that changed, if any did.
pub fn changed(keys: &[(&str, bool)]) -> Option<String> {
    let changed: Vec<_> = keys.iter().filter(|(_, changed)| *changed).map(|(key, _)| *key).collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}
