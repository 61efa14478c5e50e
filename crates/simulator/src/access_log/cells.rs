//! What stands in the cells of a log: times.

use std::time::UNIX_EPOCH;

use plimsoll_core::Nanos;

const SECOND_NS: u64 = 1_000_000_000;
/// Of a count from 1970 without a unit: from here on it is in that unit. As seconds the first is the year 5138.
const EPOCH_UNITS: [(f64, u64); 3] = [(1e17, 1), (1e14, 1_000), (1e11, 1_000_000)];
/// 300 years: what is later has another unit.
const LATEST: u64 = 300 * 366 * DAY_NS;
/// The longest service time that a workload may write, and so the longest that one suggested from a log may have.
const LONGEST: u64 = DAY_NS;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// A service time, and whether nothing said in which unit it is.
pub struct ServiceTime {
    pub value: Nanos,
    pub unit_assumed: bool,
}

pub fn timestamp(cell: &str, unit_ns: Option<u64>) -> Result<Nanos, String> {
    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
    let parsed = match number {
        Some(number) => {
            let sized = || EPOCH_UNITS.iter().find(|(from, _)| number >= *from).map(|&(_, ns)| ns);
            scaled(cell, number, unit_ns.or_else(sized).unwrap_or(SECOND_NS))
        }
        None => date(cell),
    };
    parsed.filter(|at| at.0 <= LATEST).ok_or_else(|| {
        format!(
            "`{}` is not a time; write seconds or a date, as in 12.5 or 2026-01-31T10:00:00Z",
            shown(cell)
        )
    })
}

/// Zero becomes the shortest time above it: logs round.
pub fn service_time(cell: &str, unit_ns: Option<u64>) -> Result<ServiceTime, String> {
    let number = cell.parse::<f64>().ok();
    let parsed = match number {
        Some(number) if number.is_finite() => scaled(cell, number, unit_ns.unwrap_or(SECOND_NS)),
        Some(_) => None,
        None => cell.parse().ok(),
    };
    match parsed.filter(|time| time.0 <= LONGEST) {
        Some(time) => {
            Ok(ServiceTime { value: time.max(Nanos(1)), unit_assumed: number.is_some() && unit_ns.is_none() })
        }
        None => {
            Err(format!("`{}` is not a service time; write for example 12.5ms, and at most 24h", shown(cell)))
        }
    }
}

/// A number of units. Digits are taken as they stand where they can be: as a float, today's date is only exact to 256 ns.
fn scaled(cell: &str, number: f64, unit_ns: u64) -> Option<Nanos> {
    if number < 0.0 {
        return None;
    }
    let (whole, fraction) = cell.split_once('.').unwrap_or((cell, "0"));
    match (whole.parse::<u64>(), format!("0.{fraction}").parse::<f64>()) {
        (Ok(whole), Ok(fraction)) => {
            let part = (fraction * unit_ns as f64).round() as u64;
            whole.checked_mul(unit_ns)?.checked_add(part).map(Nanos)
        }
        _ => Some(Nanos((number * unit_ns as f64).round() as u64)),
    }
}

/// RFC 3339 with or without an offset; a space may stand for the T.
fn date(cell: &str) -> Option<Nanos> {
    let (local, offset_s) = split_offset(cell)?;
    let time = humantime::parse_rfc3339_weak(local).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let ns = i128::try_from(time.as_nanos()).ok()? - i128::from(offset_s) * i128::from(SECOND_NS);
    u64::try_from(ns).ok().map(Nanos)
}

/// `2026-01-31T10:00:00+01:30` is that time and 5,400 s.
fn split_offset(cell: &str) -> Option<(&str, i64)> {
    let zone = cell.len().checked_sub(6).filter(|&at| at >= 19 && cell.is_char_boundary(at));
    let Some((local, zone)) = zone.map(|at| cell.split_at(at)) else { return Some((cell, 0)) };
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return Some((cell, 0)),
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some((local, sign * (hours * 3600 + minutes * 60)))
}

/// A log may hold anything: nothing long or unprintable reaches the terminal.
fn shown(cell: &str) -> String {
    cell.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
