//! The two ways to read threads.

use plimsoll_core::Nanos;

#[cfg(feature = "bpf")]
use crate::bpf::Bpf;
use crate::pread::Pread;
use crate::scene::Scene;

/// How threads are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// By BPF where that may be loaded, else by files.
    #[default]
    Auto,
    /// By a BPF iterator, in the kernel.
    Bpf,
    /// By files of `/proc`.
    Pread,
}

/// The one that was chosen.
pub enum Source {
    /// By a BPF iterator.
    #[cfg(feature = "bpf")]
    Bpf(Box<Bpf>),
    /// By files of `/proc`.
    Pread(Box<Pread>),
}

/// Makes it ready, and says why it is not BPF where that was left to it.
///
/// # Errors
/// Where the one that was asked for cannot be had.
pub fn open(reader: Reader, now: Nanos, scene: &mut Scene) -> Result<(Source, Option<String>), String> {
    let why = match reader {
        Reader::Pread => None,
        Reader::Auto | Reader::Bpf => match bpf() {
            Ok(bpf) => return Ok((bpf, None)),
            Err(why) if reader == Reader::Bpf => return Err(why),
            Err(why) => Some(why),
        },
    };
    scene.described.clear();
    scene.tasks.clear();
    scene.news.begin(true);
    Ok((Source::Pread(Box::new(Pread::new(now, scene)?)), why))
}

#[cfg(feature = "bpf")]
fn bpf() -> Result<Source, String> {
    Ok(Source::Bpf(Box::new(Bpf::new()?)))
}

#[cfg(not(feature = "bpf"))]
fn bpf() -> Result<Source, String> {
    Err("this program was built without the feature `bpf`".to_owned())
}

impl Source {
    /// `bpf` or `pread`.
    pub fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "bpf")]
            Source::Bpf(_) => "bpf",
            Source::Pread(_) => "pread",
        }
    }

    /// Reads all threads.
    ///
    /// # Errors
    /// Where that does not work any more.
    pub fn read(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        match self {
            #[cfg(feature = "bpf")]
            Source::Bpf(bpf) => bpf.read(now, scene),
            Source::Pread(pread) => {
                pread.read(now, scene);
                Ok(())
            }
        }
    }
}
