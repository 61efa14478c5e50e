//! The engine within an application: the watch of its own ledger, without an agent.

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plimsoll_core::config::{self, Config, Mode, parse};
use plimsoll_ledger::{Ledger, Refusal};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::ease::Sentry;
use crate::events::{Events, Writer};
use crate::ledger::port::{Connection, Port};
use crate::ledger::{Book, Open, tick, word};
use crate::running::Running;
use crate::status::Board;
use crate::watch::{Outlets, Promise, Watch};

/// How an application is watched from within: on one thread, as an agent would, with the same objectives, budgets and events.
///
/// ```
/// use plimsoll_engine::Engine;
/// # let dir = tempfile::tempdir().unwrap();
///
/// let config = r#"
///     [app.shop]
///     slo  = { p99 = "50ms" }
///     mode = "shadow"              # first look what it would do; then "enforce"
/// "#;
/// let engine = Engine::of_config(config, "shop")?.on_event(|line| println!("{line}"));
/// # #[cfg(feature = "sdk")] {
/// # let (app, engine) = engine.open(plimsoll_sdk::App::options().directory(dir.path()));
/// # assert_eq!((app.problem(), engine.problem()), (None, None));
/// # app.close();
/// # }
/// # Ok::<(), String>(())
/// ```
pub struct Engine {
    app: config::App,
    sentry: Option<Sentry>,
    events: To,
}

/// Where events go.
enum To {
    File(Option<PathBuf>),
    Call(Box<dyn FnMut(&str) + Send>),
}

impl Engine {
    /// One for an application with this objective, mode and budget. Events are only logged.
    pub fn new(app: config::App) -> Engine {
        Engine { app, sentry: None, events: To::File(None) }
    }

    /// One as `[app.NAME]` says in a config, which is that of `plimsoll agent`: `[agent] events` is where events go, and the `pool` is eased
    /// through `[sentry] admin`.
    ///
    /// # Errors
    /// What is wrong with the config, and where.
    pub fn of_config(text: &str, app: &str) -> Result<Engine, String> {
        let (config, warnings) = parse::<Config>(text, "config").map_err(|errors| errors.to_string())?;
        for warning in warnings {
            log::warn!("{warning}");
        }
        let Some(of_app) = config.apps.into_iter().find(|of| of.name == app) else {
            return Err(format!("there is no [app.{app}] in the config"));
        };
        let sentry = Some(Sentry::new(config.sentry.admin, config.sentry.admin_token));
        Ok(Engine { app: of_app, sentry, events: To::File(config.agent.events) })
    }

    /// Appends every event to a file, as a line of JSON; `-` is the standard output.
    pub fn events(mut self, path: impl Into<PathBuf>) -> Engine {
        self.events = To::File(Some(path.into()));
        self
    }

    /// Calls this with every event, a line of JSON without its end, on a thread that does nothing else.
    pub fn on_event(mut self, call: impl FnMut(&str) + Send + 'static) -> Engine {
        self.events = To::Call(Box::new(call));
        self
    }

    /// Opens the application, and watches it. Neither can fail: what went wrong, [`App::problem`](plimsoll_sdk::App::problem) and
    /// [`Running::problem`] say, and the application runs as if nobody looked.
    #[cfg(feature = "sdk")]
    pub fn open(self, options: plimsoll_sdk::Options) -> (plimsoll_sdk::App, Running) {
        let (ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => {
                let why = format!("no pair of sockets for it: {error}");
                return (options.open(&self.app.name), Running::not(why));
            }
        };
        let app = options.control(theirs).open(&self.app.name);
        let running = match app.ledger() {
            Some(ledger) => self.start(ledger, ours),
            None => Running::not(format!("there is no ledger: {}", app.problem().unwrap_or_default())),
        };
        (app, running)
    }

    /// Watches a ledger of this process. `control` is one end of a pair of sockets, the other end of which the application's SDK has.
    pub fn start(self, ledger: &Path, control: UnixStream) -> Running {
        if self.app.mode == Mode::Off {
            return Running::nothing();
        }
        match self.prepare(ledger, control) {
            Ok((within, writer)) => Running::start(|stop| run(within, writer, stop)),
            Err(why) => Running::not(why),
        }
    }

    fn prepare(self, path: &Path, control: UnixStream) -> Result<(Within, Writer), String> {
        let refused = |refusal: Refusal| format!("{}: {refusal}", path.display());
        let ledger = Ledger::open(path).map_err(refused)?;
        if ledger.pid() != u64::from(std::process::id()) {
            return Err(format!("{}: it is another process's", path.display()));
        }
        ledger.sign(ledger.pid()).map_err(refused)?;
        control.set_nonblocking(true).map_err(|error| format!("its socket: {error}"))?;
        let (events, writer) = match self.events {
            To::File(path) => Events::open(path.as_deref())?,
            To::Call(call) => Events::call(call)?,
        };
        Ok((Within { app: self.app, sentry: self.sentry, ledger, control, events }, writer))
    }
}

/// All that the thread needs.
struct Within {
    app: config::App,
    sentry: Option<Sentry>,
    ledger: Ledger,
    control: UnixStream,
    events: Events,
}

/// Watches until it is told to stop, or cannot.
fn run(within: Within, writer: Writer, stop: oneshot::Receiver<()>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let tasks = LocalSet::new();
    let ended = tasks.block_on(&runtime, async {
        tokio::select! {
            _ = stop => Ok(()),
            why = within.watch() => Err(why),
        }
    });
    // What still runs is dropped, and with it the last who could send.
    drop((tasks, runtime));
    writer.finish();
    ended
}

impl Within {
    /// Watches; why it ended.
    async fn watch(self) -> String {
        let Within { app, sentry, ledger, control, events } = self;
        let file = ledger.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ledger = Rc::new(RefCell::new(ledger));
        let open = Open::default();
        open.borrow_mut().insert(file.clone(), Rc::downgrade(&ledger));
        tokio::task::spawn_local(tick(open));
        let port = Rc::<RefCell<Port>>::default();
        let promise = Promise::of_app(&app, &app.name, sentry.as_ref());
        let outlets = Outlets { events, board: Board::new().0, recorder: None, sentry: None };
        let watch = Watch::new(Book::new(ledger, Rc::clone(&port)), promise, &outlets);
        tokio::select! {
            why = watch.run() => why,
            why = converse(control, &file, &app, &port) => why,
        }
    }
}

/// Talks with the application, until it leaves; why it did.
async fn converse(control: UnixStream, ours: &str, app: &config::App, port: &RefCell<Port>) -> String {
    let mut connection = match tokio::net::UnixStream::from_std(control) {
        Ok(stream) => Connection::new(stream),
        Err(error) => return format!("its socket: {error}"),
    };
    match connection.hello().await {
        Ok(Ok(file)) if file == ours => {
            let left = connection.serve(word(app.mode), port).await;
            format!(
                "the application was closed{}",
                left.err().map_or(String::new(), |why| format!(": {why}"))
            )
        }
        Ok(Ok(file)) => format!("the application speaks for {file}"),
        Ok(Err(why)) => format!("the application is none: {why}"),
        Err(_) => "the application was open before it was to be watched, or is closed".to_owned(),
    }
}
