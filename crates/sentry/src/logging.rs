//! The log: one line an event on stderr, `key=value` as logfmt has it. The rest of the crate logs through the `log`
//! crate; this is what stands behind it.
//!
//! A message that one place in the code keeps repeating is cut off after a few lines a second and summed up, so that
//! a fault that hits every request cannot turn the log into a second overload.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use humantime::format_rfc3339_millis;
use log::kv::{Key, Value, VisitSource};
use log::{LevelFilter, Metadata, Record};

use crate::clock;

/// Lines that one place may write in a second.
const BURST: u64 = 10;
/// Places that are told apart; two that share an entry share its burst.
const PLACES: usize = 256;

struct Stderr {
    role: &'static str,
    places: [Place; PLACES],
}

/// The second that counts (upper 32 bits) and the lines in it.
#[derive(Default)]
struct Place(AtomicU64);

/// Sends everything that is logged to stderr, marked with this process's role. Once a process; later calls change
/// nothing.
pub fn start(role: &'static str) {
    static LOGGER: OnceLock<Stderr> = OnceLock::new();
    let logger = LOGGER.get_or_init(|| Stderr { role, places: [const { Place(AtomicU64::new(0)) }; PLACES] });
    if log::set_logger(logger).is_ok() {
        let verbose = std::env::var_os("PLIMSOLL_DEBUG").is_some();
        log::set_max_level(if verbose { LevelFilter::Debug } else { LevelFilter::Info });
        // A policy that panics at every request is caught at every request: its words are bounded like all others.
        std::panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string).unwrap_or_default();
            log::error!(at:%, what:% = panic.payload_as_str().unwrap_or("unknown"); "panic");
        }));
    }
}

impl log::Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What libraries have to say is about their insides.
        metadata.target().starts_with("plimsoll")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = record.line().unwrap_or(0) as usize;
        let place = record.file().unwrap_or("").len().wrapping_mul(31).wrapping_add(line) % PLACES;
        let wall = clock::wall();
        let Some(skipped) = self.places[place].admit(wall.0 / 1_000_000_000) else { return };
        let text = format(self.role, record, wall, skipped);
        // One write, so that lines of parent and worker do not mix. If stderr is gone there is nobody to tell.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn flush(&self) {}
}

impl Place {
    /// Whether another line may be written in this second, and how many were not in the last one that had any.
    fn admit(&self, second: u64) -> Option<u64> {
        let fresh = |packed: u64| packed >> 32 != second & 0xffff_ffff;
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            Some(if fresh(packed) { second << 32 | 1 } else { packed.saturating_add(1) })
        });
        let before = counted.unwrap_or_else(|packed| packed);
        let lines = before & 0xffff_ffff;
        if fresh(before) { Some(lines.saturating_sub(BURST)) } else { (lines < BURST).then_some(0) }
    }
}

fn format(role: &str, record: &Record<'_>, wall: plimsoll_core::Nanos, skipped: u64) -> String {
    let time = format_rfc3339_millis(std::time::UNIX_EPOCH + wall.into());
    let level = record.level().as_str().to_ascii_lowercase();
    let mut text = format!("ts={time} level={level} role={role} pid={} msg=", std::process::id());
    quote(&mut text, &record.args().to_string());
    // The visitor below never fails.
    let _ = record.key_values().visit(&mut Pairs(&mut text));
    if skipped > 0 {
        let _ = write!(text, " not_shown={skipped}");
    }
    text.push('\n');
    text
}

struct Pairs<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for Pairs<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        let _ = write!(self.0, " {key}=");
        quote(self.0, &value.to_string());
        Ok(())
    }
}

/// Longest value, in bytes: what clients and servers send must not fill the log.
const LONGEST: usize = 4096;

fn quote(text: &mut String, value: &str) {
    let value = &value[..value.floor_char_boundary(LONGEST)];
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(plain) {
        text.push_str(value);
    } else {
        // Escapes quotes, line ends and whatever else would let a value pass for another line.
        let _ = write!(text, "{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use log::kv::Source;
    use plimsoll_core::Nanos;

    use super::*;

    fn line(message: &str, pairs: &dyn Source, skipped: u64) -> String {
        let mut record = Record::builder();
        record.level(log::Level::Warn).key_values(&pairs);
        format(
            "worker",
            &record.args(format_args!("{message}")).build(),
            Nanos::from_secs(1_700_000_000),
            skipped,
        )
    }

    #[test]
    fn a_line_reads_as_logfmt_and_cannot_be_forged() {
        let start =
            format!("ts=2023-11-14T22:13:20.000Z level=warn role=worker pid={} msg=", std::process::id());
        let pairs = [("pool", "shop"), ("error", "x\nlevel=info")];
        assert_eq!(
            line("no server", &pairs, 3),
            format!("{start}\"no server\" pool=shop error=\"x\\nlevel=info\" not_shown=3\n")
        );
        assert!(line(&"x".repeat(10_000), &[("", ""); 0], 0).len() < 5_000);
    }

    #[test]
    fn repetition_is_cut_off_and_summed_up() {
        let place = Place::default();
        let written = (0..100).filter(|_| place.admit(7).is_some()).count();
        assert_eq!(written as u64, BURST);
        assert_eq!(place.admit(8), Some(100 - BURST));
        assert_eq!(place.admit(8), Some(0));
    }
}
