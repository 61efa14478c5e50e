//! An application and its ledger: opened once, never in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_ledger::layout::{Kind, Shape};
use plimsoll_ledger::{Create, Writer, place};

use crate::cancel::Cancellation;
use crate::control::{Connection, Control, Limits};
use crate::task::TaskBuilder;
use crate::{clock, fork, quiet};

#[expect(
    clippy::disallowed_types,
    reason = "guards the opening of applications and the beginning and end of cancellable tasks, never an event"
)]
pub(crate) type Lock<T> = std::sync::Mutex<T>;

/// Whoever panicked while it had the lock left nothing half done.
pub(crate) fn lock<T>(lock: &Lock<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What is called to cancel a task.
pub(crate) type Action = dyn Fn(&Cancellation) + Send + Sync;

/// An application. Cheap to copy; all copies are the same.
///
/// Where there can be no ledger (the directory is not ours, shared memory is full, ...) everything works as if nobody looked, and
/// [`problem`](App::problem) says why.
#[derive(Clone, Copy, Debug)]
pub struct App {
    pub(crate) open: Option<&'static Open>,
    problem: &'static str,
}

/// An application that has a ledger. It lives as long as the process: so an event finds it without counting references.
pub(crate) struct Open {
    /// Tells its resources from those of others.
    pub number: u16,
    pub writer: Writer,
    pub control: Control,
    /// The application's own cancel action.
    pub action: Option<Arc<Action>>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("ledger", &self.writer.path()).finish()
    }
}

/// How an application is opened.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let app = plimsoll_sdk::App::options()
///     .directory(dir.path())
///     .on_cancel(|cancel| println!("end {} for: {}", cancel.key(), cancel.reason()))
///     .open("shop");
/// ```
pub struct Options {
    directory: Option<PathBuf>,
    shape: Shape,
    mode: u32,
    action: Option<Arc<Action>>,
    stream: Option<UnixStream>,
    limits: Limits,
}

impl Options {
    /// Where ledgers are, in place of `$PLIMSOLL_DIR` or `/dev/shm/plimsoll-UID`.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Options {
        self.directory = Some(directory.into());
        self
    }

    /// How many resources (up to 256), tasks (131,072) and accounts (1,048,576) there is room for. By default 64, 4,096 and 16,384, which
    /// take 1.6 MB.
    pub fn room(mut self, resources: u32, tasks: u32, accounts: u32) -> Options {
        self.shape = Shape { resources, tasks, accounts, ..self.shape };
        self
    }

    /// Lets a group's agent read the ledger: mode 0640.
    pub fn group_readable(mut self) -> Options {
        self.mode = 0o640;
        self
    }

    /// The cancel action of all cancellable tasks that have none of their own. It is called on a thread of its own.
    pub fn on_cancel(mut self, action: impl Fn(&Cancellation) + Send + Sync + 'static) -> Options {
        self.action = Some(Arc::new(action));
        self
    }

    /// Talks over this in place of the agent's socket, once: one end of a pair whose other end an agent within this process has.
    pub fn control(mut self, stream: UnixStream) -> Options {
        self.stream = Some(stream);
        self
    }

    /// How long a cancel action may take until it has failed (5 s), and how long what was cancelled waits for room (30 s). For tests.
    pub fn patience(mut self, action: Duration, rerun: Duration) -> Options {
        self.limits = Limits { action, rerun };
        self
    }

    /// Opens the application of this name: 1 to 32 of `a-z A-Z 0-9 _ -`. One that this process has open is given again, as it is.
    pub fn open(self, name: &str) -> App {
        let opened = opened();
        let mut opened = lock(opened);
        let key = (std::process::id(), name.to_owned());
        if let Some(app) = opened.get(&key) {
            return *app;
        }
        let app = self.make(name).unwrap_or_else(|problem| {
            quiet::once(format!("{name} is not accounted for: {problem}"));
            App { open: None, problem: keep(problem) }
        });
        // One that cannot be had now can perhaps be had later; a name that was tried a thousand times is no name.
        if app.open.is_some() {
            opened.insert(key, app);
        }
        app
    }

    fn make(self, name: &str) -> Result<App, String> {
        let directory = self.directory.unwrap_or_else(place::directory);
        place::prepare(&directory).map_err(|why| why.to_string())?;
        let now_ns = clock::system_ns();
        let create = Create {
            app: name,
            shape: self.shape,
            mode: self.mode,
            ..Create::in_directory(&directory, now_ns)
        };
        let writer = Writer::create(&create).map_err(|why| why.to_string())?;
        if !fork::protect(writer.mapping()) {
            writer.remove();
            return Err("too many applications are open in this process".to_owned());
        }
        clock::calibrate();
        writer.tick(now_ns);
        writer.beat(now_ns);
        static NUMBER: AtomicU16 = AtomicU16::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let connection = match self.stream {
            Some(stream) => Connection::given(stream),
            None => Connection::socket(directory.join(place::SOCKET)),
        };
        let control = Control::new(writer.shape().tasks, self.limits).map_err(|why| why.to_string())?;
        let open: &'static Open = Box::leak(Box::new(Open { number, writer, control, action: self.action }));
        open.control.start(&open.writer, connection).map_err(|why| {
            open.writer.remove();
            format!("no thread for it: {why}")
        })?;
        Ok(App { open: Some(open), problem: "" })
    }
}

/// Keeps what went wrong, once for each thing that does, and no more of them than anybody would read.
fn keep(problem: String) -> &'static str {
    static KEPT: Lock<BTreeSet<&'static str>> = Lock::new(BTreeSet::new());
    let mut kept = lock(&KEPT);
    match kept.get(problem.as_str()) {
        Some(known) => known,
        None if kept.len() >= 64 => "it cannot be opened, and neither could many before it",
        None => {
            let problem = &*problem.leak();
            kept.insert(problem);
            problem
        }
    }
}

/// All that are open, by process and name: a child of a fork knows its parent's, and opens its own.
fn opened() -> &'static Lock<BTreeMap<(u32, String), App>> {
    static OPENED: OnceLock<Lock<BTreeMap<(u32, String), App>>> = OnceLock::new();
    OPENED.get_or_init(|| {
        // SAFETY: the handler is there as long as the program, and neither panics nor waits for anybody.
        unsafe { libc::atexit(close_all) };
        Lock::default()
    })
}

/// Removes the ledgers of this process when it ends in order.
extern "C" fn close_all() {
    if let Some(opened) = opened().try_lock().ok().as_deref() {
        for app in opened.values() {
            if let Some(open) = app.open {
                open.writer.remove();
            }
        }
    }
}

impl App {
    /// Opens the application of this name with everything as usual: see [`Options`].
    pub fn open(name: &str) -> App {
        App::options().open(name)
    }

    /// How to open one.
    pub fn options() -> Options {
        Options {
            directory: None,
            shape: Shape::default(),
            mode: 0o600,
            action: None,
            stream: None,
            limits: Limits::default(),
        }
    }

    /// One that nobody accounts for.
    pub fn unaccounted() -> App {
        App { open: None, problem: "it was asked not to be" }
    }

    /// Why it is not accounted for; `None` if it is.
    pub fn problem(&self) -> Option<&str> {
        if self.open.is_some() { None } else { Some(self.problem) }
    }

    /// Where the ledger is.
    pub fn ledger(&self) -> Option<&std::path::Path> {
        self.open.map(|open| open.writer.path())
    }

    /// Removes the ledger and ends the connection to the agent. Tasks go on, and nobody looks. A process that ends in order need not call this.
    pub fn close(self) {
        if let Some(open) = self.open {
            open.control.stop();
            open.writer.remove();
            lock(opened()).retain(|_, app| app.open.is_none_or(|other| !std::ptr::eq(other, open)));
        }
    }

    /// A resource by its name, which is made when it is first asked for. `capacity` is how many units can be held at once, 0 if nobody knows.
    pub fn resource(&self, kind: Kind, capacity: u64, name: &str) -> Resource {
        let index = self.open.and_then(|open| open.writer.resource(kind, capacity, name).map(|i| (open, i)));
        Resource { key: index.map_or(NONE, |(open, index)| u32::from(open.number) << 16 | u32::from(index)) }
    }

    /// A task, still to be begun: a request, a session, a job. `label` says to people what it is: `GET /report`.
    pub fn task<'a>(&self, label: &'a str) -> TaskBuilder<'a> {
        TaskBuilder::new(*self, label)
    }
}

/// A resource that tasks hold and wait for. Cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The application's number, which is never 0, and the record's index.
    pub(crate) key: u32,
}

/// In place of a resource's key: it found no room.
const NONE: u32 = u32::MAX;

impl Resource {
    /// The index of its record; `None` if it found no room.
    pub fn index(&self) -> Option<u16> {
        (self.key != NONE).then_some(self.key as u16)
    }

    pub(crate) fn is_of(&self, open: &Open) -> bool {
        self.key >> 16 == u32::from(open.number)
    }
}

/// The lane of this thread: threads that began one after the other have different ones.
pub(crate) fn lane() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static LANE: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    LANE.try_with(|lane| *lane).unwrap_or(0)
}
