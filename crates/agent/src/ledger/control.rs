//! `DIR/agent.sock`: who may speak for which ledger.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::ledger::port::{Connection, NO_HELLO, Port};
use plimsoll_ledger::control::Mode;
use plimsoll_ledger::place::{self, SOCKET};
use rustix::fs::OFlags;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Applications at once; whoever comes on top waits.
const CONNECTIONS: usize = 1_024;
/// How long an application may take to say who it is, and its ledger to be found.
const PATIENCE: Duration = Duration::from_secs(2);

/// A ledger that is known.
#[derive(Clone)]
pub struct Known {
    /// Whose file it is, and the process that writes it.
    pub uid: u32,
    /// The process.
    pub pid: u32,
    /// Whether it is watched, and how.
    pub mode: Mode,
    /// Its end of the connection.
    pub port: Rc<RefCell<Port>>,
}

/// The ledgers of a directory, by name; or why one is left alone.
#[derive(Default)]
pub struct Directory {
    /// Those that can be spoken of.
    pub known: HashMap<String, Result<Known, String>>,
    /// Somebody asks for one that is not known yet.
    pub wanted: Rc<Notify>,
}

/// Takes the socket of a directory. Another agent may have it.
///
/// # Errors
/// Why not.
pub async fn listen(dir: &Path) -> io::Result<UnixListener> {
    let path = dir.join(SOCKET);
    if UnixStream::connect(&path).await.is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent listens there"));
    }
    // Nobody listens: what lies there is from one that was killed.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    open_up(&path)?;
    Ok(listener)
}

/// Lets applications connect: those of all users where the agent is root, else those of its own. Who may speak for which ledger, [`admit`]
/// sees to. The directory's owner may have put something else in the socket's place, so the mode is that of what was looked at.
pub(super) fn open_up(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let socket = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let (is, own) = (socket.metadata()?, rustix::process::geteuid());
    if !is.file_type().is_socket() || is.uid() != own.as_raw() || is.nlink() != 1 {
        return Err(io::Error::other("there is something else in the socket's place"));
    }
    let mode = if own.is_root() { 0o666 } else { 0o600 };
    // What was only looked at has no mode to be set but by this name.
    fs::set_permissions(format!("/proc/self/fd/{}", socket.as_raw_fd()), fs::Permissions::from_mode(mode))
}

/// Removes the socket of a directory, at the end.
pub fn leave(dir: &Path) {
    // If it is gone already, all is well.
    let _ = fs::remove_file(dir.join(SOCKET));
}

/// Serves the applications of a directory until it is dropped.
pub async fn serve(listener: UnixListener, directory: Rc<RefCell<Directory>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let directory = Rc::clone(&directory);
                tokio::task::spawn_local(async move {
                    if let Err(error) = converse(stream, &directory).await {
                        log::debug!(error:%; "application left");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!(error:%; "application's connection not accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, directory: &RefCell<Directory>) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    let hello = timeout(PATIENCE, connection.hello()).await;
    let known = match hello.unwrap_or_else(|_| Ok(Err(NO_HELLO.to_owned())))? {
        Ok(file) => admit(connection.stream(), directory, &file).await,
        Err(why) => Err(why),
    };
    match known {
        Ok(known) => connection.serve(known.mode, &known.port).await,
        Err(why) => connection.refuse(why).await,
    }
}

/// Whether this peer may speak for that ledger.
async fn admit(stream: &UnixStream, directory: &RefCell<Directory>, file: &str) -> Result<Known, String> {
    let Some((app, _)) = place::of_file_name(file) else {
        return Err("that is no ledger's name; it is APP.PID.ledger".to_owned());
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let known = loop {
        let (found, wanted) = {
            let directory = directory.borrow();
            (directory.known.get(file).cloned(), Rc::clone(&directory.wanted))
        };
        match found {
            Some(known) => break known?,
            // It may have been made this moment.
            None if tokio::time::Instant::now() < deadline => {
                wanted.notify_one();
                sleep(Duration::from_millis(50)).await;
            }
            None => {
                return Err(format!("there is no ledger {file}, or no [app.{app}] in the agent's config"));
            }
        }
    };
    let peer = stream.peer_cred().map_err(|error| format!("cannot tell who you are: {error}"))?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    match (peer.uid() == known.uid, pid == Some(known.pid)) {
        (true, true) => Ok(known),
        (false, _) => Err("that ledger is another user's".to_owned()),
        (_, false) => Err("that ledger is another process's".to_owned()),
    }
}
