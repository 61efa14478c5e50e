//! `plimsoll top`.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_core::Nanos;
use plimsoll_core::config::Size;
use plimsoll_herald::Reader;

use crate::bill::Bill;
use crate::once;
use crate::order::Sort;
use crate::run::{self, Ended};

/// See how much slower than on an idle machine every process runs, and who takes the CPU from whom
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this process; may be given several times.
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// Threads instead of processes.
    #[arg(long)]
    threads: bool,
    /// What comes first.
    #[arg(long, value_enum, default_value = "slowdown")]
    sort: Sort,
    /// How often the screen changes and a recording grows: from 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_period)]
    period: Nanos,
    /// What reads the host.
    #[arg(long, value_name = "READER", default_value = "auto", value_parser = parse_reader)]
    reader: Reader,
    /// Ends after this time.
    #[arg(long = "for", value_name = "TIME", conflicts_with = "once")]
    duration: Option<Nanos>,
    /// Needs no terminal: measures for a second, prints that and ends.
    #[arg(long)]
    once: bool,
    /// With --once and --bill: JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Writes the history of every thread that runs or waits into a new file, and prints the bill of it at the end. Without a terminal,
    /// only that.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    record: Option<PathBuf>,
    /// The recording ends where it would become larger.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", requires = "record")]
    limit: Size,
    /// Prints who waited for the CPU because of whom, from a recording.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "record", "pids", "duration"])]
    bill: Option<PathBuf>,
}

fn parse_period(text: &str) -> Result<Nanos, String> {
    let period: Nanos = text.parse()?;
    if (Nanos::from_millis(100)..=Nanos::from_secs(60)).contains(&period) {
        return Ok(period);
    }
    Err(format!("{period} is out of range; write a time from 100ms to 1m, as in \"1s\""))
}

fn parse_reader(text: &str) -> Result<Reader, String> {
    match text {
        "auto" => Ok(Reader::Auto),
        "bpf" => Ok(Reader::Bpf),
        "pread" => Ok(Reader::Pread),
        _ => Err(format!("`{text}` is no reader; write auto, bpf or pread")),
    }
}

/// What to do, in full.
#[derive(Debug)]
pub struct Options {
    /// The processes to which all is limited; all where there are none.
    pub pids: Vec<u32>,
    /// Threads instead of processes.
    pub threads: bool,
    /// What comes first.
    pub sort: Sort,
    /// How often the screen changes.
    pub period: Nanos,
    /// What reads the host.
    pub reader: Reader,
    /// When to end.
    pub duration: Option<Nanos>,
    /// Where the history is written, and how large that may become.
    pub record: Option<(PathBuf, Size)>,
}

/// Runs until it is told to end. Fails where it cannot begin, and where it could not record to the end.
pub fn run(args: Args) -> ExitCode {
    if args.json && !args.once && args.bill.is_none() {
        eprintln!("plimsoll top: --json goes with --once or --bill");
        return ExitCode::from(2);
    }
    let done = match &args.bill {
        Some(path) => Bill::of(path).map(|bill| (text_of(&bill, args.json), None)),
        None => {
            let options = Options {
                pids: args.pids,
                threads: args.threads,
                sort: args.sort,
                period: args.period,
                reader: args.reader,
                duration: args.duration,
                record: args.record.map(|path| (path, args.limit)),
            };
            if args.once {
                once::measure(&options, args.json).map(|text| (text, None))
            } else {
                run::run(&options).map(|Ended { bill, lost }| {
                    (bill.map(|bill| text_of(&bill, false)).unwrap_or_default(), lost)
                })
            }
        }
    };
    match done {
        Ok((text, lost)) => match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&format!("cannot write: {error}")),
            // Whoever read has had enough. What was recorded is told, and that it is not all.
            _ => lost.map_or(ExitCode::SUCCESS, |why| failed(&why)),
        },
        Err(error) => failed(&error),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("plimsoll top: {why}");
    ExitCode::FAILURE
}

fn text_of(bill: &Bill, json: bool) -> String {
    if json { json_of(bill) } else { bill.to_string() }
}

/// One line, its fields in the order in which they are documented.
pub fn json_of(what: &impl serde::Serialize) -> String {
    serde_json::to_string(what).expect("plain fields, into memory") + "\n"
}
