//! The lines that the SDK and the agent exchange over `agent.sock`, read and written.
//!
//! Both sides are read strictly: what does not say exactly what `docs/ledger.md` lays down is [not understood](NotUnderstood), and
//! is ignored, whoever sent it. Only a line that is too long ends a connection.

mod lines;

use std::fmt;
use std::str::FromStr;

pub use lines::{Lines, MOST_LINE_BYTES, TooLong};

use crate::layout::{MOST_RESOURCES, MOST_TASKS};
use crate::place;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Whether the agent acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It only reads.
    Off,
    /// It decides and records, and never acts.
    Shadow,
    /// It cancels.
    Enforce,
}

/// How a cancellation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The task has ended for it.
    Cancelled,
    /// It ended by itself first.
    Finished,
    /// There is no such task.
    Gone,
    /// The cancel action failed.
    Failed,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// The ledger is being read.
    Welcome {
        /// Of the protocol.
        version: u32,
        /// Whether the agent acts.
        mode: Mode,
    },
    /// It is not, and the agent closes.
    Refused {
        /// Why not.
        text: String,
    },
    /// Cancel a task.
    Cancel {
        /// Of this cancellation.
        id: u64,
        /// The index of the task's record.
        task: u32,
        /// Its turn, in full.
        turn: u64,
        /// The index of what it holds up.
        resource: u16,
        /// Why.
        text: String,
    },
    /// There is room again: run once more what this cancelled.
    Rerun {
        /// Of the cancellation.
        id: u64,
    },
    /// Do not: its deadline has passed.
    Drop {
        /// Of the cancellation.
        id: u64,
    },
}

/// What the SDK says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromSdk {
    /// Here is an application.
    Hello {
        /// Of the protocol.
        version: u32,
        /// The name of its ledger, without a slash.
        file: String,
    },
    /// The cancel action is being called.
    Acknowledge {
        /// Of the cancellation.
        id: u64,
    },
    /// What became of it.
    Outcome {
        /// Of the cancellation.
        id: u64,
        /// In a word.
        outcome: Outcome,
        /// How, where it failed.
        text: String,
    },
    /// It was run again.
    Reran {
        /// Of the cancellation.
        id: u64,
    },
    /// It is not run again.
    Dropped {
        /// Of the cancellation.
        id: u64,
    },
}

/// Why a line is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood(String);

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotUnderstood {}

fn wrong<T>(why: impl Into<String>) -> Result<T, NotUnderstood> {
    Err(NotUnderstood(why.into()))
}

/// The words of a line from its first on.
struct Words<'a>(Option<&'a str>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, NotUnderstood> {
        let Some(rest) = self.0 else { return wrong("a word is missing") };
        let (word, rest) = rest.split_once(' ').map_or((rest, None), |(word, rest)| (word, Some(rest)));
        self.0 = rest;
        if word.is_empty() { wrong("a word is missing, or a space too much") } else { Ok(word) }
    }

    fn number<T: FromStr>(&mut self) -> Result<T, NotUnderstood> {
        let word = self.word()?;
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        match digits.then(|| word.parse().ok()).flatten() {
            Some(number) => Ok(number),
            None => wrong(format!("{word:?} is no number that can stand there")),
        }
    }

    fn below<T: FromStr + PartialOrd + fmt::Display>(&mut self, end: T) -> Result<T, NotUnderstood> {
        match self.number()? {
            number if number < end => Ok(number),
            number => wrong(format!("{number} is not below {end}")),
        }
    }

    fn one_of<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, NotUnderstood> {
        let word = self.word()?;
        match words.iter().find(|(name, _)| *name == word) {
            Some(&(_, value)) => Ok(value),
            None => wrong(format!("{word:?} is not known there")),
        }
    }

    fn text(&mut self) -> String {
        self.0.take().unwrap_or_default().to_owned()
    }
}

const MODES: [(&str, Mode); 3] = [("off", Mode::Off), ("shadow", Mode::Shadow), ("enforce", Mode::Enforce)];

const OUTCOMES: [(&str, Outcome); 4] = [
    ("cancelled", Outcome::Cancelled),
    ("finished", Outcome::Finished),
    ("gone", Outcome::Gone),
    ("failed", Outcome::Failed),
];

fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, v)| v == value).map_or("", |(word, _)| *word)
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&MODES, self))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&OUTCOMES, self))
    }
}

impl FromStr for FromAgent {
    type Err = NotUnderstood;

    /// A line of the agent, without its end.
    fn from_str(line: &str) -> Result<FromAgent, NotUnderstood> {
        let mut words = Words(Some(line));
        Ok(match words.word()? {
            "welcome" => FromAgent::Welcome { version: words.number()?, mode: words.one_of(&MODES)? },
            "refused" => FromAgent::Refused { text: words.text() },
            "cancel" => FromAgent::Cancel {
                id: words.number()?,
                task: words.below(MOST_TASKS)?,
                turn: words.number()?,
                resource: words.below(MOST_RESOURCES as u16)?,
                text: words.text(),
            },
            "rerun" => FromAgent::Rerun { id: words.number()? },
            "drop" => FromAgent::Drop { id: words.number()? },
            other => return wrong(format!("{other:?} is no word of an agent")),
        })
    }
}

impl FromStr for FromSdk {
    type Err = NotUnderstood;

    /// A line of an SDK, without its end.
    fn from_str(line: &str) -> Result<FromSdk, NotUnderstood> {
        let mut words = Words(Some(line));
        Ok(match words.word()? {
            "hello" => {
                let (version, file) = (words.number()?, words.word()?.to_owned());
                if place::of_file_name(&file).is_none() {
                    return wrong(format!("{file:?} is no name of a ledger: APP.PID.ledger"));
                }
                FromSdk::Hello { version, file }
            }
            "acknowledge" => FromSdk::Acknowledge { id: words.number()? },
            "outcome" => FromSdk::Outcome {
                id: words.number()?,
                outcome: words.one_of(&OUTCOMES)?,
                text: words.text(),
            },
            "reran" => FromSdk::Reran { id: words.number()? },
            "dropped" => FromSdk::Dropped { id: words.number()? },
            other => return wrong(format!("{other:?} is no word of an SDK")),
        })
    }
}

impl FromAgent {
    /// The line, with its end: never longer than [`MOST_LINE_BYTES`], and never more than one.
    pub fn to_line(&self) -> String {
        match self {
            FromAgent::Welcome { version, mode } => lines::line(format!("welcome {version} {mode}"), ""),
            FromAgent::Refused { text } => lines::line("refused".to_owned(), text),
            FromAgent::Cancel { id, task, turn, resource, text } => {
                lines::line(format!("cancel {id} {task} {turn} {resource}"), text)
            }
            FromAgent::Rerun { id } => lines::line(format!("rerun {id}"), ""),
            FromAgent::Drop { id } => lines::line(format!("drop {id}"), ""),
        }
    }
}

impl FromSdk {
    /// The line, with its end: never longer than [`MOST_LINE_BYTES`], and never more than one.
    pub fn to_line(&self) -> String {
        match self {
            FromSdk::Hello { version, file } => lines::line(format!("hello {version} {file}"), ""),
            FromSdk::Acknowledge { id } => lines::line(format!("acknowledge {id}"), ""),
            FromSdk::Outcome { id, outcome, text } => lines::line(format!("outcome {id} {outcome}"), text),
            FromSdk::Reran { id } => lines::line(format!("reran {id}"), ""),
            FromSdk::Dropped { id } => lines::line(format!("dropped {id}"), ""),
        }
    }
}
