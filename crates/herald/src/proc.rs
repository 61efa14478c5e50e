//! The files of `/proc`, as text; [`crate::parse`] takes them apart.

use std::fmt;
use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir, openat};

/// More than any of the files that are read whole has up to the last field that is needed: `status` of a host with 1,024 CPUs.
const LONGEST: usize = 16 * 1024;

/// `/proc`, kept open.
pub struct Proc {
    dir: OwnedFd,
    buffer: Vec<u8>,
}

impl Proc {
    /// Opens it.
    ///
    /// # Errors
    /// Where there is none, or it is that of another pid namespace, whose numbers mean other threads to this one's system calls.
    pub fn open() -> Result<Proc, String> {
        let mount = "mount one with `mount -t proc proc /proc`";
        let dir = openat(
            rustix::fs::CWD,
            "/proc",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| format!("/proc cannot be opened ({error}); {mount}"))?;
        let proc = Proc { dir, buffer: vec![0; LONGEST] };
        let own: Option<u32> =
            std::fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
        match own {
            None => Err(format!("/proc holds nothing about this process; {mount}")),
            Some(pid) if pid != std::process::id() => {
                Err(format!("/proc is that of another pid namespace; {mount} in this one"))
            }
            Some(_) => Ok(proc),
        }
    }

    /// Opens a file of it.
    ///
    /// # Errors
    /// `NotFound` where a process or thread is gone.
    pub fn file(&self, path: impl fmt::Display) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(openat(&self.dir, path.to_string(), flags, Mode::empty())?)
    }

    /// What a file of it holds, up to 16 KiB.
    ///
    /// # Errors
    /// As of [`Proc::file`]; a thread that ends meanwhile gives `ESRCH`.
    pub fn text(&mut self, path: impl fmt::Display) -> io::Result<&[u8]> {
        let file = self.file(path)?;
        let read = rustix::io::read(&file, &mut self.buffer[..])?;
        Ok(&self.buffer[..read])
    }

    /// Calls `each` with all entries of a directory of it that are numbers: processes, or threads of one.
    ///
    /// # Errors
    /// As of [`Proc::file`].
    pub fn numbers(&mut self, path: impl fmt::Display, mut each: impl FnMut(u32)) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.dir, path.to_string(), flags, Mode::empty())?;
        // Not `self.buffer`, whose bytes are initialised, which is not asked for here.
        let mut buffer = Vec::with_capacity(LONGEST);
        let mut entries = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            if let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                each(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Stat;

    #[test]
    fn this_process_is_there() {
        let mut proc = Proc::open().unwrap();
        let pid = std::process::id();
        let (name, stat) = Stat::parse(proc.text(format_args!("{pid}/task/{pid}/stat")).unwrap()).unwrap();
        assert!(stat.started > 0 && !name.is_empty(), "{stat:?}");
        let mut pids = Vec::new();
        proc.numbers(".", |number| pids.push(number)).unwrap();
        assert!(pids.contains(&pid));
        let mut tids = Vec::new();
        proc.numbers(format_args!("{pid}/task"), |number| tids.push(number)).unwrap();
        assert!(tids.contains(&pid));
        assert_eq!(proc.text("4194304999/stat").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
