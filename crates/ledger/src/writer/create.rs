//! Making the file: whole, private, and never in the place of one that lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::DerefMut;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{CWD, FallocateFlags, RenameFlags};

use super::map::Map;
use super::words;
use crate::layout::{self, APP_BYTES, HEADER_BYTES, Shape};
use crate::place;
use crate::records::{Header, Text};
use crate::refusal::Refusal;

/// What is made.
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    /// The directory, which is there: see [`place::prepare`].
    pub directory: &'a Path,
    /// The name of the application.
    pub app: &'a str,
    /// How many records of each kind.
    pub shape: Shape,
    /// This process.
    pub pid: u64,
    /// When it began, see [`place::process_started`].
    pub pid_started: u64,
    /// The time now.
    pub created_ns: u64,
    /// 0600, or 0640 where a group's agent shall read it.
    pub mode: u32,
}

/// The ledgers that this program has made and not removed. A program that replaces itself (`execve`) stays the same process, but what that
/// made before is nobody's any more.
#[expect(clippy::disallowed_types, reason = "guards the making of ledgers, never an event")]
static MADE: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());

fn made() -> impl DerefMut<Target = Vec<PathBuf>> {
    MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Removes a ledger that this program has made, if it is there still.
pub(super) fn remove(path: &Path) {
    let mut made = made();
    let place = place_of(path);
    made.retain(|other| *other != place);
    // Whoever else removed it did what is wanted.
    let _ = std::fs::remove_file(path);
}

/// The same however the directory is written.
fn place_of(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    directory.zip(path.file_name()).map_or_else(|| path.to_owned(), |(directory, name)| directory.join(name))
}

/// Tells files from one another that are being made at once.
static MAKING: AtomicU32 = AtomicU32::new(0);

impl<'a> Create<'a> {
    /// A ledger of this process with default counts, still without a name.
    pub fn in_directory(directory: &'a Path, now_ns: u64) -> Create<'a> {
        let pid = u64::from(std::process::id());
        Create {
            directory,
            app: "",
            shape: Shape::default(),
            pid,
            pid_started: place::process_started(pid).unwrap_or(0),
            created_ns: now_ns,
            mode: 0o600,
        }
    }

    pub(super) fn make(&self) -> Result<(Map, PathBuf), Refusal> {
        place::check_app(self.app)?;
        self.shape.check()?;
        let making = format!(".{}.{}.{}.new", self.app, self.pid, MAKING.fetch_add(1, Ordering::Relaxed));
        let making = self.directory.join(making);
        let path = self.directory.join(place::file_name(self.app, self.pid));
        let made = self.fill(&making).and_then(|map| self.rename(&making, &path).map(|()| (map, path)));
        if made.is_err() {
            // It may not even be there.
            let _ = std::fs::remove_file(&making);
        }
        made
    }

    fn fill(&self, making: &Path) -> Result<Map, Refusal> {
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(self.mode).open(making)
        };
        // What an earlier process of this number left unfinished is in the way.
        let file = open()
            .or_else(|_| std::fs::remove_file(making).and_then(|()| open()))
            .map_err(Refusal::io("make a ledger"))?;
        let bytes = self.shape.bytes() as u64;
        file.set_len(bytes).map_err(Refusal::io("size a ledger"))?;
        // Its pages are had now or never: one that is missing when the application writes to it would be a signal that ends it.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // A file system that cannot promise has them or has not; shared memory can.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(why) => return Err(Refusal::Io { what: "reserve a ledger", why: why.into() }),
        }
        let map = Map::new(&file, self.shape).map_err(Refusal::io("map a ledger"))?;
        self.write_header(map.header());
        Ok(map)
    }

    fn write_header(&self, header: &words::Header) {
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        let count = |word: &AtomicU32, value| word.store(value, Ordering::Relaxed);
        count(&header.version, layout::VERSION);
        count(&header.resources, self.shape.resources);
        count(&header.lanes, self.shape.lanes);
        count(&header.tasks, self.shape.tasks);
        count(&header.accounts, self.shape.accounts);
        set(&header.pid, self.pid);
        set(&header.pid_started, self.pid_started);
        set(&header.created_ns, self.created_ns);
        words::write_text(&header.app, Text::<APP_BYTES>::cut(self.app).bytes());
        header.magic.store(u64::from_le_bytes(layout::MAGIC), Ordering::Release);
    }

    fn rename(&self, making: &Path, path: &Path) -> Result<(), Refusal> {
        let rename = || {
            rustix::fs::renameat_with(CWD, making, CWD, path, RenameFlags::NOREPLACE).map_err(io::Error::from)
        };
        let mut made = made();
        let place = place_of(path);
        match rename() {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                if made.contains(&place) && self.is_of_this_process(path) {
                    return Err(Refusal::Already(place::file_name(self.app, self.pid)));
                }
                // An earlier process of this number left it, or an earlier program of this process.
                std::fs::remove_file(path)
                    .and_then(|()| rename())
                    .map_err(Refusal::io("replace a ledger"))?;
            }
            done => done.map_err(Refusal::io("name a ledger"))?,
        }
        made.push(place);
        Ok(())
    }

    /// Whether the ledger there says that it is this very process's.
    fn is_of_this_process(&self, path: &Path) -> bool {
        let mut bytes = [0; HEADER_BYTES];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 0));
        let header = read.ok().and_then(|()| Header::read(&bytes).ok());
        header.is_some_and(|header| header.pid == self.pid && header.pid_started == self.pid_started)
    }
}
