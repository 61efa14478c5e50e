//! The file of a ledger: opened once, read in pieces, and three words of it written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};

use super::Memory;
use crate::layout::{EXACT, HEADER_BYTES, Shape, at};
use crate::place;
use crate::records::Header;
use crate::refusal::Refusal;

/// How much is read at once: little enough to stay in a processor's cache. A multiple of every record's size.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// A ledger that is read.
///
/// ```
/// use plimsoll_ledger::{Begin, Create, Ledger, Look, Writer, layout::Kind};
/// # let dir = tempfile::tempdir().unwrap();
/// # let app = Writer::create(&Create { app: "shop", ..Create::in_directory(dir.path(), 1_000) })?;
/// # let table = app.resource(Kind::Lock, 1, "table").unwrap();
/// # let task = app.begin(&Begin { label: "GET /report", started_ns: 2_000, ..Begin::default() }).unwrap();
/// # let account = app.account(task, table).unwrap();
/// # let path = app.path();
///
/// let mut ledger = Ledger::open(path)?;
/// let mut look = Look::default();
/// ledger.look(2_000, &mut look)?;
/// # account.get(1, || 2_100);
/// ledger.look(2_500, &mut look)?;
/// let task = &look.tasks[0];
/// let held = look.uses_of(task)[0];
/// assert_eq!(task.label.show(), "GET /report");
/// assert_eq!(look.resource(held.resource).unwrap().name.show(), "table");
/// assert_eq!((held.held, held.window.hold_ns), (1, 400));
/// # Ok::<(), plimsoll_ledger::Refusal>(())
/// ```
pub struct Ledger {
    file: File,
    path: PathBuf,
    header: Header,
    uid: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) memory: Memory,
}

impl Ledger {
    /// Opens a ledger as its agent, which it is alone until this is dropped. Refuses what is no ledger, and what another agent has.
    pub fn open(path: &Path) -> Result<Ledger, Refusal> {
        let ledger = Ledger::of(path, true)?;
        match rustix::fs::flock(&ledger.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(ledger),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(Refusal::Taken { pid: ledger.header.changing.agent_pid })
            }
            Err(why) => Err(Refusal::Io { what: "lock the ledger", why: why.into() }),
        }
    }

    /// Opens a ledger to look only, beside its agent.
    pub fn peek(path: &Path) -> Result<Ledger, Refusal> {
        Ledger::of(path, false)
    }

    fn of(path: &Path, write: bool) -> Result<Ledger, Refusal> {
        // Neither a link to elsewhere nor a pipe that waits for a writer.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).write(write).custom_flags(flags.bits() as i32).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(why) if why.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(Refusal::NoFile);
            }
            Err(why) => return Err(Refusal::Io { what: "open the ledger", why }),
        };
        let metadata = file.metadata().map_err(Refusal::io("look at the ledger"))?;
        if !metadata.is_file() {
            return Err(Refusal::NoFile);
        }
        let mut bytes = vec![0; HEADER_BYTES.min(usize::try_from(metadata.len()).unwrap_or(HEADER_BYTES))];
        file.read_exact_at(&mut bytes, 0).map_err(Refusal::io("read the ledger"))?;
        let header = Header::read(&bytes)?;
        let expected = header.shape.bytes() as u64;
        if metadata.len() != expected {
            return Err(Refusal::Length { bytes: metadata.len(), expected });
        }
        let (path, uid) = (path.to_owned(), metadata.uid());
        Ok(Ledger { file, path, header, uid, bytes, memory: Memory::default() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose file it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// How many records of each kind there are.
    pub fn shape(&self) -> Shape {
        self.header.shape
    }

    /// The name of the application.
    pub fn app(&self) -> &str {
        &self.header.app
    }

    /// The process that writes.
    pub fn pid(&self) -> u64 {
        self.header.pid
    }

    /// When that process began, in the kernel's ticks.
    pub fn pid_started(&self) -> u64 {
        self.header.pid_started
    }

    /// When the ledger was made.
    pub fn created_ns(&self) -> u64 {
        self.header.created_ns
    }

    /// Whether the process that writes is there still, and is the same.
    pub fn has_process(&self) -> bool {
        place::process_started(self.pid()) == Some(self.pid_started())
    }

    /// Whether that process still writes, for all that can be known: an application that closes its ledger removes the file.
    pub fn is_alive(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() > 0) && self.has_process()
    }

    /// The agent's sign of life.
    pub fn beat(&self, now_ns: u64) -> Result<(), Refusal> {
        self.write(at::AGENT_BEAT_NS, now_ns)
    }

    /// Asks the application to stamp events with exact times, or to stop that.
    pub fn set_exact(&self, exact: bool) -> Result<(), Refusal> {
        self.write(at::FLAGS, if exact { EXACT } else { 0 })
    }

    /// The agent's process.
    pub fn sign(&self, pid: u64) -> Result<(), Refusal> {
        self.write(at::AGENT_PID, pid)
    }

    /// Sets the coarse time.
    pub fn tick(&self, now_ns: u64) -> Result<(), Refusal> {
        self.write(at::CLOCK_NS, now_ns)
    }

    fn write(&self, at: usize, word: u64) -> Result<(), Refusal> {
        self.file.write_all_at(&word.to_le_bytes(), at as u64).map_err(Refusal::io("write to the ledger"))
    }

    /// So many bytes from there on, into a buffer that is used again.
    pub(super) fn read<'b>(
        &self,
        buffer: &'b mut Vec<u8>,
        at: usize,
        bytes: usize,
    ) -> Result<&'b [u8], Refusal> {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let buffer = &mut buffer[..bytes];
        match self.file.read_exact_at(buffer, at as u64) {
            Ok(()) => Ok(buffer),
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Err(Refusal::Length {
                bytes: self.file.metadata().map_or(0, |metadata| metadata.len()),
                expected: self.shape().bytes() as u64,
            }),
            Err(why) => Err(Refusal::Io { what: "read the ledger", why }),
        }
    }
}
