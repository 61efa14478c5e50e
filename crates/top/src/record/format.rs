//! The lines of a recording, and how they are read: `docs/top.md` tells every field.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What the first line says of the format.
pub const FORMAT: &str = "plimsoll-top/1";
/// A taker that stands for all that are not told apart. No process has its number, 0.
pub const OTHERS: (u32, &str) = (0, "all others");
/// The longest line that is read. Ours have a few hundred bytes; a taker has less than a hundred.
pub const MAX_LINE: u64 = 64 * 1024;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Always `plimsoll-top/1`.
    pub format: String,
    /// When it was begun, in seconds since 1970.
    pub wall_s: f64,
    /// CPUs on line.
    pub cpus: usize,
}

/// Every other line: a thread in a period in which it ran or waited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When the period ended, in seconds since the recording began.
    pub t_s: f64,
    /// How long the period was, in seconds.
    pub span_s: f64,
    /// Its process.
    pub pid: u32,
    /// Itself.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// The name of its process.
    pub process: String,
    /// The path of its cgroup.
    pub cgroup: String,
    /// For how long it ran in the period.
    pub run_ms: f64,
    /// For how long it was ready to run without running.
    pub waited_ms: f64,
    /// What it would have run on an idle machine.
    pub desired_ms: f64,
    /// What it will get over the second after the period.
    pub predicted_ms_per_s: f64,
    /// Who ran meanwhile, by process, the greatest first, and in the end all others as one.
    pub takers: Vec<Took>,
}

/// A process that ran while another one's thread waited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// How much of the wait is its doing.
    pub ms: f64,
}

/// Adds a line to what is to be written.
pub fn append(block: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *block, line).expect("a line of plain fields, into memory");
    block.push(b'\n');
}

/// Three digits after the point: more is noise.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Reads a recording: calls `each` with every line that is whole.
///
/// # Errors
/// Which line of the file is wrong, and how.
pub fn read(path: &Path, mut each: impl FnMut(Line)) -> Result<Head, String> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut head = None;
    for number in 1.. {
        line.clear();
        let read = std::io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|error| format!("cannot read {name}: {error}"))? as u64;
        if line.last() != Some(&b'\n') {
            if read >= MAX_LINE {
                return Err(format!(
                    "{name}:{number}: the line is longer than {MAX_LINE} bytes; this is no recording"
                ));
            }
            // The end; or whoever wrote was killed in the middle of this line.
            break;
        }
        let wrong = |error: serde_json::Error| format!("{name}:{number}: {error}");
        if number == 1 {
            let what = "this is no recording; `plimsoll top --record FILE` makes one";
            let read: Head = serde_json::from_slice(&line).map_err(|_| format!("{name}:1: {what}"))?;
            if read.format != FORMAT {
                let format = read.format;
                return Err(format!("{name}:1: the format is `{format}`; this program reads `{FORMAT}`"));
            }
            head = Some(read);
        } else {
            each(serde_json::from_slice(&line).map_err(wrong)?);
        }
    }
    head.ok_or_else(|| format!("{name} is empty: whoever recorded was killed before it had begun"))
}
