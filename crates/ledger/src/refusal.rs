//! Why a ledger is left alone.

use std::fmt;
use std::io;

use crate::layout;

/// Why a ledger is left alone, or cannot be made. Each says what, and what would be right.
#[derive(Debug)]
pub enum Refusal {
    /// The file cannot be opened, read or written.
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// No regular file: a link, a pipe, a directory.
    NoFile,
    /// It does not begin as a ledger does; perhaps it is just being made.
    Magic,
    /// Of another version.
    Version(u32),
    /// A count is outside its limits.
    Counts {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u32,
        /// How many there can be.
        most: u32,
    },
    /// The file is not as long as its counts say, or got shorter.
    Length {
        /// How long it is, in bytes, as far as could be read.
        bytes: u64,
        /// How long it should be.
        expected: u64,
    },
    /// The name of the application is none.
    App(String),
    /// Another agent has it.
    Taken {
        /// That agent's process, as it says itself; 0 if it says nothing.
        pid: u64,
    },
    /// The directory is somebody else's, or anybody may write to it.
    Directory(String),
    /// This process has a ledger of that name already.
    Already(String),
}

impl Refusal {
    /// One word for it, as the test vectors name it.
    pub fn word(&self) -> &'static str {
        match self {
            Refusal::Io { .. } => "io",
            Refusal::NoFile => "file",
            Refusal::Magic => "magic",
            Refusal::Version(_) => "version",
            Refusal::Counts { .. } => "counts",
            Refusal::Length { .. } => "length",
            Refusal::App(_) => "app",
            Refusal::Taken { .. } => "taken",
            Refusal::Directory(_) => "directory",
            Refusal::Already(_) => "already",
        }
    }

    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Refusal {
        move |why| Refusal::Io { what, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Io { what, why } => write!(f, "cannot {what}: {why}"),
            Refusal::NoFile => write!(f, "no regular file"),
            Refusal::Magic => {
                write!(f, "does not begin with PLIMSOLL: no ledger, or one that is just being made")
            }
            Refusal::Version(version) => {
                write!(f, "a ledger of version {version}; this program knows version {}", layout::VERSION)
            }
            Refusal::Counts { what, count, most } => write!(f, "{count} {what}: 1 to {most} are possible"),
            Refusal::Length { bytes, expected } => {
                write!(f, "{bytes} bytes long, where its counts add up to {expected}")
            }
            Refusal::App(app) => {
                write!(f, "{app:?} cannot be the name of an application: 1 to 32 of a-z A-Z 0-9 _ -")
            }
            Refusal::Taken { pid: 0 } => write!(f, "another agent has it"),
            Refusal::Taken { pid } => write!(f, "another agent has it, process {pid}"),
            Refusal::Directory(why) => f.write_str(why),
            Refusal::Already(name) => write!(f, "this process has {name} already: open an application once"),
        }
    }
}

impl std::error::Error for Refusal {}
