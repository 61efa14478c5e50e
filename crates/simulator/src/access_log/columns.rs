//! Which column of a log is which.

use csv::StringRecord;

const TIMESTAMPS: &[&str] = &[
    "timestamp",
    "time",
    "ts",
    "at",
    "start",
    "start_time",
    "arrival",
    "arrival_time",
    "date",
    "datetime",
    "msec",
    "time_iso8601",
];
const CLASSES: &[&str] = &[
    "class",
    "name",
    "type",
    "query_type",
    "route",
    "endpoint",
    "path",
    "uri",
    "url",
    "request",
    "operation",
];
const SERVICE_TIMES: &[&str] = &[
    "service",
    "service_time",
    "processing_time",
    "duration",
    "latency",
    "response_time",
    "request_time",
    "upstream_response_time",
    "elapsed",
    "took",
];
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("millis", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("seconds", 1_000_000_000),
];

/// Where to find what.
pub struct Columns {
    pub timestamp: Column,
    pub class: Column,
    pub service: Column,
}

/// A column and the unit that its name gives, in nanoseconds.
pub struct Column {
    pub index: usize,
    pub unit_ns: Option<u64>,
}

impl Columns {
    pub fn of(header: &StringRecord) -> Result<Columns, String> {
        Ok(Columns {
            timestamp: find(header, "timestamp", TIMESTAMPS)?,
            class: find(header, "class", CLASSES)?,
            service: find(header, "service time", SERVICE_TIMES)?,
        })
    }
}

fn find(header: &StringRecord, what: &str, names: &[&str]) -> Result<Column, String> {
    let mut found = header.iter().enumerate().filter_map(|(index, cell)| {
        let (name, unit_ns) = split_unit(cell);
        names.contains(&name.as_str()).then_some(Column { index, unit_ns })
    });
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(_)) => Err(format!("two columns could be the {what}; rename one of them")),
        (None, _) => Err(format!(
            "no column for the {what}; the first line names the columns, as in timestamp,class,service_ms"
        )),
    }
}

/// `Service time (ms)` is `service_time` in units of 1,000,000 ns.
fn split_unit(cell: &str) -> (String, Option<u64>) {
    let lower = cell.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let unit = words.last().and_then(|last| UNITS.iter().find(|(name, _)| name == last));
    match unit {
        Some(&(_, ns)) if words.len() > 1 => (words[..words.len() - 1].join("_"), Some(ns)),
        _ => (words.join("_"), None),
    }
}
