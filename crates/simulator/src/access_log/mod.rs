//! Access logs as CSV: when each request came, of which class it was, how long it took.
//!
//! The first line names the columns, in any order, among others that are left alone: a timestamp, a class and a
//! service time, under any of the names that gateways give them. A unit at the end of a name (`service_ms`, `time [us]`)
//! holds for its column. Without one, a timestamp is in seconds, is a date (RFC 3339), or counts from 1970 in the unit
//! that its size betrays; a service time brings its own unit (`12ms`) or is in seconds.

mod cells;
mod columns;
mod names;

use std::io;

use csv::{Position, ReaderBuilder, StringRecord, Trim};
use plimsoll_core::Nanos;

use columns::Columns;
use names::Names;

pub use names::{MAX_NAMES, OTHER, class_name};

/// Most requests of a log.
pub const MAX_REQUESTS: usize = 20_000_000;

/// The requests of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The classes as [`class_name`] writes paths; the first is [`OTHER`].
    pub names: Vec<String>,
    /// In the order of time, the first at zero; never empty.
    pub records: Vec<Record>,
    /// What had to be assumed.
    pub notes: Vec<String>,
}

/// One request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Since the first.
    pub at: Nanos,
    /// Index into the names.
    pub name: u16,
    /// Above zero.
    pub service: Nanos,
}

/// Reads a log. `file` is what messages call it.
///
/// # Errors
/// The line that is wrong and what to write instead.
pub fn read(input: impl io::Read, file: &str) -> Result<AccessLog, String> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(input);
    let in_file = |error: csv::Error| match error.position() {
        Some(at) => format!("{file}:{}: {error}", at.line()),
        None => format!("{file}: {error}"),
    };
    let header = reader.headers().map_err(in_file)?;
    let Columns { timestamp, class, service } =
        Columns::of(header).map_err(|error| format!("{file}:1: {error}"))?;
    let mut names = Names::default();
    let mut records: Vec<Record> = Vec::new();
    let mut bare_times = false;
    let mut line = StringRecord::new();
    while reader.read_record(&mut line).map_err(in_file)? {
        let here = |error: String| format!("{file}:{}: {error}", line.position().map_or(0, Position::line));
        if records.len() == MAX_REQUESTS {
            return Err(here(format!("a log holds at most {MAX_REQUESTS} requests; use a part of it")));
        }
        let at = cells::timestamp(&line[timestamp.index], timestamp.unit_ns).map_err(here)?;
        let time = cells::service_time(&line[service.index], service.unit_ns).map_err(here)?;
        bare_times |= time.unit_assumed;
        records.push(Record { at, name: names.index(&line[class.index]), service: time.value });
    }
    records.sort_by_key(|record| record.at);
    let Some(&Record { at: first, .. }) = records.first() else {
        return Err(format!("{file}: holds no request, only the names of its columns"));
    };
    records.iter_mut().for_each(|record| record.at = record.at - first);
    let mut notes = Vec::new();
    if bare_times {
        let advice = "name the column service_ms if they are milliseconds";
        notes.push(format!("{file}: service times have no unit and are read as seconds; {advice}"));
    }
    if names.overflowed() {
        notes.push(format!("{file}: has more than {MAX_NAMES} classes; the rest counts as `{OTHER}`"));
    }
    Ok(AccessLog { names: names.into_names(), records, notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(text: &str) -> Result<AccessLog, String> {
        read(text.as_bytes(), "a.csv")
    }

    fn record(at_ms: u64, name: u16, service_ms: u64) -> Record {
        Record { at: Nanos::from_millis(at_ms), name, service: Nanos::from_millis(service_ms) }
    }

    #[test]
    fn columns_are_found_by_name_and_units_hold() {
        let expected = vec![record(0, 1, 20), record(500, 2, 3), record(1_500, 1, 40)];
        for text in [
            "timestamp,class,service_ms\n10.0,slow,20\n10.5,fast,3\n11.5,slow,40\n",
            "status, Service Time (ms), class, TS_ms\n200, 20, slow, 10000\n200, 3.0, fast, 10500\n500,40,slow,11500",
            "time,type,duration\n2026-01-02T03:04:05Z,slow,20ms\n2026-01-02T03:04:05.5Z,fast,3ms\n\
             2026-01-02T04:04:06.500+01:00,slow,40ms\n",
            "msec,class,request_time\n1700000000.000,slow,0.020\n1700000000.500,fast,0.003\n1700000001.5,slow,0.04\n",
            "ts,class,took_us\n1700000000000,slow,20000\n1700000000500,fast,3e3\n1700000001500,slow,40000\n",
            "ts,class,took_ns\n1700000000000000000,slow,20000000\n1700000000500000000,fast,3000000\n\
             1700000001500000000,slow,40000000\n",
        ] {
            let log = log(text).unwrap();
            assert_eq!(log.records, expected, "{text}");
            assert_eq!(log.names, [OTHER, "slow", "fast"]);
            assert_eq!(log.notes.is_empty(), !text.contains("request_time"), "{:?}", log.notes);
        }
    }

    #[test]
    fn a_log_in_the_order_of_completion_is_sorted() {
        let log = log("ts,class,service_ms\n3,a,1\n1,b,1\n2,a,1\n").unwrap();
        assert_eq!(log.records, [record(0, 2, 1), record(1_000, 1, 1), record(2_000, 1, 1)]);
    }

    #[test]
    fn errors_tell_the_line_and_what_to_write() {
        for (text, part) in [
            ("", "a.csv:1: no column for the timestamp"),
            ("1,slow,20\n", "a.csv:1: no column for the timestamp"),
            ("timestamp,class\n", "a.csv:1: no column for the service time"),
            ("timestamp,time,class,service\n", "a.csv:1: two columns could be the timestamp"),
            ("timestamp,class,service\n", "a.csv: holds no request"),
            ("timestamp,class,service\n1,a,1\nyesterday,a,1\n", "a.csv:3: `yesterday` is not a time"),
            ("timestamp,class,service\n1,a,1\n1,a,soon\n", "a.csv:3: `soon` is not a service time"),
            ("timestamp,class,service\n1,a,-1\n", "a.csv:2: `-1` is not a service time"),
            ("timestamp,class,service\n1,a,nan\n", "a.csv:2: `nan` is not a service time"),
            ("timestamp,class,service\n1,a,86401\n", "a.csv:2: `86401` is not a service time"),
            ("timestamp,class,service\n1,a\n", "a.csv:2: "),
        ] {
            let error = log(text).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(head in "timestamp,class,service\n|", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read([head.as_bytes(), &bytes].concat().as_slice(), "a.csv");
        }

        #[test]
        fn lines_of_numbers_are_all_read(lines in prop::collection::vec((0u32..100_000, 0u32..100_000), 1..50)) {
            let text: String = lines.iter().map(|(at, took)| format!("{at},x,{took}\n")).collect();
            let log = log(&format!("ts_ms,class,service_ms\n{text}")).unwrap();
            let sum = |values: Vec<u64>| values.iter().sum::<u64>();
            prop_assert_eq!(log.records.len(), lines.len());
            let read = log.records.iter().map(|r| r.service.0).collect();
            let written = lines.iter().map(|&(_, took)| (u64::from(took) * 1_000_000).max(1)).collect();
            prop_assert_eq!(sum(read), sum(written));
        }
    }
}
