//! The records of a ledger as they are read: from bytes that anybody may have written.

use std::borrow::Cow;
use std::fmt;

use crate::layout::{self, APP_BYTES, LABEL_BYTES, NAME_BYTES, Owner, Shape, at};
use crate::place;
use crate::refusal::Refusal;

/// A word of the record; 0 where it is too short, which no caller lets it be.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Half a word of the record.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A text of the ledger: up to `N` bytes, which may be anything. It is read when it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    pub(crate) fn read(bytes: &[u8], at: usize) -> Text<N> {
        Text(bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N]))
    }

    /// Cut at the end of a character where it is too long, and at its first zero byte.
    pub fn cut(text: &str) -> Text<N> {
        let text = text.split('\0').next().unwrap_or_default();
        let text = &text[..text.floor_char_boundary(N)];
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Text(bytes)
    }

    /// Up to its first zero byte; U+FFFD stands for whatever is not UTF-8 or is a control character.
    pub fn show(&self) -> Cow<'_, str> {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(N);
        let text = String::from_utf8_lossy(&self.0[..end]);
        if !text.contains(char::is_control) {
            return text;
        }
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>().into()
    }

    /// As it is in the ledger, padded with zero bytes.
    pub fn bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|&b| b == 0)
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Text<N> {
        Text([0; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.show(), f)
    }
}

/// The header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub shape: Shape,
    pub pid: u64,
    pub pid_started: u64,
    pub created_ns: u64,
    pub app: String,
    pub changing: Changing,
}

/// What of the header changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Changing {
    pub app_beat_ns: u64,
    pub tasks_refused: u64,
    pub accounts_refused: u64,
    pub resources_refused: u64,
    pub tasks_used: u32,
    pub accounts_used: u32,
    pub agent_beat_ns: u64,
    pub flags: u64,
    pub agent_pid: u64,
    pub clock_ns: u64,
}

impl Header {
    /// From the beginning of a file. Everything that never changes is checked here.
    pub fn read(bytes: &[u8]) -> Result<Header, Refusal> {
        if bytes.get(at::MAGIC..at::MAGIC + 8) != Some(&layout::MAGIC) {
            return Err(Refusal::Magic);
        }
        if bytes.len() < layout::HEADER_BYTES {
            return Err(Refusal::Length { bytes: bytes.len() as u64, expected: layout::HEADER_BYTES as u64 });
        }
        let version = u32_at(bytes, at::VERSION);
        if version != layout::VERSION {
            return Err(Refusal::Version(version));
        }
        let shape = Shape {
            resources: u32_at(bytes, at::RESOURCES),
            lanes: u32_at(bytes, at::LANES),
            tasks: u32_at(bytes, at::TASKS),
            accounts: u32_at(bytes, at::ACCOUNTS),
        };
        shape.check()?;
        let app = Text::<APP_BYTES>::read(bytes, at::APP).show().into_owned();
        place::check_app(&app)?;
        Ok(Header {
            shape,
            pid: u64_at(bytes, at::PID),
            pid_started: u64_at(bytes, at::PID_STARTED),
            created_ns: u64_at(bytes, at::CREATED_NS),
            app,
            changing: Changing::read(bytes, &shape),
        })
    }
}

impl Changing {
    /// From the beginning of a file; `*_used` is within the counts.
    pub fn read(bytes: &[u8], shape: &Shape) -> Changing {
        Changing {
            app_beat_ns: u64_at(bytes, at::APP_BEAT_NS),
            tasks_refused: u64_at(bytes, at::TASKS_REFUSED),
            accounts_refused: u64_at(bytes, at::ACCOUNTS_REFUSED),
            resources_refused: u64_at(bytes, at::RESOURCES_REFUSED),
            tasks_used: u32_at(bytes, at::TASKS_USED).min(shape.tasks),
            accounts_used: u32_at(bytes, at::ACCOUNTS_USED).min(shape.accounts),
            agent_beat_ns: u64_at(bytes, at::AGENT_BEAT_NS),
            flags: u64_at(bytes, at::FLAGS),
            agent_pid: u64_at(bytes, at::AGENT_PID),
            clock_ns: u64_at(bytes, at::CLOCK_NS),
        }
    }
}

/// A resource. Its kind may be none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResourceRecord {
    pub kind: u32,
    pub capacity: u64,
    pub name: Text<NAME_BYTES>,
}

impl ResourceRecord {
    pub fn read(bytes: &[u8]) -> ResourceRecord {
        ResourceRecord { kind: u32_at(bytes, 0), capacity: u64_at(bytes, 8), name: Text::read(bytes, 16) }
    }
}

/// A task. It may live or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TaskRecord {
    pub turn: u64,
    pub key: u64,
    pub started_ns: u64,
    pub done: u64,
    pub total: u64,
    pub deadline_ns: u64,
    pub flags: u32,
    pub tid: u32,
    pub label: Text<LABEL_BYTES>,
}

impl TaskRecord {
    pub fn read(bytes: &[u8]) -> TaskRecord {
        TaskRecord {
            turn: u64_at(bytes, 0),
            key: u64_at(bytes, 8),
            started_ns: u64_at(bytes, 16),
            done: u64_at(bytes, 24),
            total: u64_at(bytes, 32),
            deadline_ns: u64_at(bytes, 40),
            flags: u32_at(bytes, 48),
            tid: u32_at(bytes, 52),
            label: Text::read(bytes, 64),
        }
    }
}

/// An account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AccountRecord {
    pub owner: u64,
    pub gets: u64,
    pub frees: u64,
    pub slows: u64,
    pub wait_ns: u64,
    pub hold_ns: u64,
    pub waiting_since_ns: u64,
    pub holding_since_ns: u64,
}

impl AccountRecord {
    pub fn read(bytes: &[u8]) -> AccountRecord {
        AccountRecord {
            owner: u64_at(bytes, 0),
            gets: u64_at(bytes, 8),
            frees: u64_at(bytes, 16),
            slows: u64_at(bytes, 24),
            wait_ns: u64_at(bytes, 32),
            hold_ns: u64_at(bytes, 40),
            waiting_since_ns: u64_at(bytes, 48),
            holding_since_ns: u64_at(bytes, 56),
        }
    }

    pub fn owner(&self) -> Owner {
        Owner::of_word(self.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_the_end_of_a_character() {
        assert_eq!(Text::<4>::cut("abcé").show(), "abc");
        assert_eq!(Text::<5>::cut("abcé").show(), "abcé");
        assert_eq!(Text::<8>::cut("a\0b").show(), "a");
        assert!(Text::<8>::cut("").is_empty());
    }

    #[test]
    fn whatever_a_text_holds_it_is_shown_as_one_line() {
        assert_eq!(Text::<8>::read(b"a\xffb\n\x1b[2\0", 0).show(), "a\u{fffd}b\u{fffd}\u{fffd}[2");
    }
}
