//! Finds ledgers, has each watched, and removes those whose process is gone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::config::{App, Mode};
use plimsoll_engine::ledger::port::Port;
use plimsoll_engine::ledger::{Book, Open, tick, word};
use plimsoll_ledger::Ledger;
use plimsoll_ledger::control::Mode as Word;
use plimsoll_ledger::place::{self, process_started};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::ledger::control::{self, Directory, Known};
use crate::watch::{Outlets, Promise, Watch};

/// From one look into a directory to the next, unless an application asks for its ledger earlier; and from one try for the socket to the next.
const RESCAN: Duration = Duration::from_millis(500);
/// Ledgers that are watched at once.
const MOST: usize = 1_024;

/// Watches the ledgers of one directory until it is dropped, each as the config has it now.
pub async fn scan(dir: PathBuf, mut apps: watch::Receiver<Rc<[App]>>, outlets: Outlets) {
    let directory = Rc::new(RefCell::new(Directory::default()));
    let wanted = Rc::clone(&directory.borrow().wanted);
    let open = Open::default();
    let scans = async {
        let (dir, directory, open) = (dir.clone(), Rc::clone(&directory), Rc::clone(&open));
        let (watches, by_name) = Default::default();
        let mut scanner = Scanner { dir, apps: Rc::from([]), outlets, directory, open, watches, by_name };
        loop {
            let now = Rc::clone(&apps.borrow_and_update());
            scanner.go_over(now);
            scanner.scan();
            // An application that has just begun need not wait, nor another config.
            tokio::select! {
                () = sleep(RESCAN) => {}
                () = wanted.notified() => {}
                Ok(()) = apps.changed() => {}
            }
        }
    };
    // All within one task: with it goes the socket.
    tokio::select! {
        () = scans => {}
        () = listen(dir.clone(), Rc::clone(&directory)) => {}
        () = tick(Rc::clone(&open)) => {}
    }
}

struct Scanner {
    dir: PathBuf,
    apps: Rc<[App]>,
    outlets: Outlets,
    directory: Rc<RefCell<Directory>>,
    open: Open,
    watches: JoinSet<String>,
    /// What each ledger that is watched is held to.
    by_name: HashMap<String, (App, AbortHandle)>,
}

impl Scanner {
    /// Has those watched anew of which the config says something else.
    fn go_over(&mut self, apps: Rc<[App]>) {
        self.by_name.retain(|name, (app, watch)| {
            let stays = apps.contains(app);
            if !stays {
                log::info!(ledger:% = name; "the config says something else of it now");
                watch.abort();
                self.directory.borrow_mut().known.remove(name);
            }
            stays
        });
        self.apps = apps;
    }

    fn scan(&mut self) {
        while self.watches.try_join_next().is_some() {}
        self.by_name.retain(|_, (_, watch)| !watch.is_finished());
        self.open.borrow_mut().retain(|_, ledger| ledger.strong_count() > 0);
        let found = names(&self.dir);
        self.directory.borrow_mut().known.retain(|name, _| found.contains(name));
        self.outlets.board.change(|status| {
            let ours = |path: &String| Path::new(path).parent() == Some(&self.dir);
            status
                .left_alone
                .retain(|path, _| !ours(path) || found.iter().any(|name| path.ends_with(name.as_str())));
            status.events_lost = self.outlets.events.lost();
        });
        for name in &found {
            if !self.open.borrow().contains_key(name) {
                self.look_at(name);
            }
        }
    }

    fn look_at(&mut self, name: &str) {
        let path = self.dir.join(name);
        let Some((app, pid)) = place::of_file_name(name) else { return };
        if process_started(pid).is_none() {
            self.remove(&path, pid);
            return;
        }
        let Some(app) = self.apps.iter().find(|known| known.name == app).cloned() else {
            let why = format!("there is no [app.{app}] in the config");
            return self.leave(name, why);
        };
        if self.open.borrow().len() >= MOST {
            return self.leave(name, format!("{MOST} ledgers are watched already"));
        }
        if app.mode == Mode::Off {
            if matches!(self.directory.borrow().known.get(name), Some(Ok(known)) if known.mode == Word::Off) {
                return;
            }
            return match Ledger::peek(&path) {
                Ok(ledger) => self.know(name, Ok(known(&ledger, Word::Off, Rc::default()))),
                Err(refusal) => self.leave(name, refusal.to_string()),
            };
        }
        match Ledger::open(&path) {
            Ok(ledger) if !ledger.has_process() => self.remove(&path, pid),
            Ok(ledger) => self.watch(name, app, ledger),
            Err(refusal) => self.leave(name, refusal.to_string()),
        }
    }

    fn watch(&mut self, name: &str, app: App, ledger: Ledger) {
        if let Err(refusal) = ledger.sign(u64::from(std::process::id())) {
            return self.leave(name, refusal.to_string());
        }
        let port = Rc::new(RefCell::new(Port::default()));
        self.know(name, Ok(known(&ledger, word(app.mode), Rc::clone(&port))));
        let ledger = Rc::new(RefCell::new(ledger));
        self.open.borrow_mut().insert(name.to_owned(), Rc::downgrade(&ledger));
        log::info!(ledger:% = name; "watching");
        let promise =
            Promise::of_app(&app, name.trim_end_matches(place::SUFFIX), self.outlets.sentry.as_ref());
        let watch = Watch::new(Book::new(ledger, port), promise, &self.outlets);
        let watch = self.watches.spawn_local(watch.run());
        self.by_name.insert(name.to_owned(), (app, watch));
    }

    fn know(&self, name: &str, known: Result<Known, String>) {
        if known.is_ok() {
            let path = self.dir.join(name).display().to_string();
            self.outlets.board.change(|status| drop(status.left_alone.remove(&path)));
        }
        let before = self.directory.borrow_mut().known.insert(name.to_owned(), known);
        if let Some(Ok(before)) = before {
            // Whoever was let in as it was comes again, and is told how it is.
            before.port.borrow_mut().close();
        }
    }

    /// Leaves a ledger alone; it is looked at again at every scan.
    fn leave(&self, name: &str, why: String) {
        let path = self.dir.join(name).display().to_string();
        let is_news = !matches!(self.directory.borrow().known.get(name), Some(Err(before)) if *before == why);
        if is_news {
            log::warn!(ledger:% = name, why:%; "ledger left alone");
            self.outlets.board.change(|status| drop(status.left_alone.insert(path, why.clone())));
            self.know(name, Err(why));
        }
    }

    fn remove(&self, path: &Path, pid: u64) {
        match fs::remove_file(path) {
            Ok(()) => log::info!(ledger:% = path.display(), pid; "removed: its process is gone"),
            Err(error) => log::debug!(ledger:% = path.display(), error:%; "not removed"),
        }
    }
}

fn known(ledger: &Ledger, mode: Word, port: Rc<RefCell<Port>>) -> Known {
    Known { uid: ledger.uid(), pid: u32::try_from(ledger.pid()).unwrap_or(0), mode, port }
}

/// The ledgers of a directory; none where there is no directory yet.
fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| place::of_file_name(name).is_some()).take(8 * MOST).collect()
}

/// Has the directory's socket, or waits for it.
async fn listen(dir: PathBuf, directory: Rc<RefCell<Directory>>) {
    let mut told = String::new();
    loop {
        match control::listen(&dir).await {
            Ok(listener) => {
                log::info!(directory:% = dir.display(); "listening");
                let _socket = Leave(dir);
                return control::serve(listener, directory).await;
            }
            // No application has been there yet, which makes it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let error = error.to_string();
                if error != told {
                    log::warn!(directory:% = dir.display(), error:%; "cannot listen for applications; trying again");
                    told = error;
                }
            }
        }
        sleep(RESCAN).await;
    }
}

/// Removes the socket at the end.
struct Leave(PathBuf);

impl Drop for Leave {
    fn drop(&mut self) {
        control::leave(&self.0);
    }
}
