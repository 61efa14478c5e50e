//! Spans in, whatever they came by: unpacks a message, reads it, and has the learner hear it.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::GzDecoder;
use plimsoll_core::Nanos;
use plimsoll_core::config::HostPattern;
use plimsoll_ratecontrol::paths::{Learner, Service};

use super::otlp::{RawSpan, Sink};
use super::{json, otlp, semantics};

/// What an SDK calls a service that nobody named.
const UNNAMED: &str = "unknown_service";

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As protobuf.
    Protobuf,
    /// As OTLP's JSON.
    Json,
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no request of OTLP.
    Malformed(Cow<'static, str>),
    /// Unpacked it is longer than this.
    TooLong(usize),
}

/// What became of a message that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Spans in it.
    pub spans: u64,
    /// Those of them that were refused: they have no numbers.
    pub rejected: u64,
}

/// What became of all messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were taken.
    pub messages: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Spans without numbers.
    pub rejected: u64,
}

/// Takes messages, one after the other.
pub struct Receiver {
    /// Who learns from them.
    pub learner: Learner,
    /// What became of them.
    pub counts: Counts,
    longest: usize,
    hosts: Vec<HostPattern>,
    unpacked: Vec<u8>,
    words: String,
}

impl Receiver {
    /// No message is longer than `longest` bytes, packed or not.
    pub fn new(learner: Learner, longest: usize) -> Receiver {
        Receiver {
            learner,
            counts: Counts::default(),
            longest,
            hosts: Vec::new(),
            unpacked: Vec::new(),
            words: String::new(),
        }
    }

    /// As it is, but what is asked of each of these hosts is another operation.
    #[must_use]
    pub fn telling_apart(self, mut hosts: Vec<HostPattern>) -> Receiver {
        hosts.sort_by_key(|host| match host {
            HostPattern::Exact(_) => 0,
            HostPattern::Suffix(suffix) => usize::MAX - suffix.len(),
        });
        Receiver { hosts, ..self }
    }

    /// Takes a message, packed by gzip or not.
    ///
    /// # Errors
    /// Where it is none; of a message that is broken off spans may have been taken.
    pub fn take(
        &mut self,
        now: Nanos,
        format: Format,
        is_packed: bool,
        message: &[u8],
    ) -> Result<Taken, Refused> {
        let taken = self.read(now, format, is_packed, message);
        match taken {
            Ok(taken) => {
                self.counts.messages += 1;
                self.counts.rejected += taken.rejected;
            }
            Err(_) => self.counts.refused += 1,
        }
        taken
    }

    fn read(
        &mut self,
        now: Nanos,
        format: Format,
        is_packed: bool,
        message: &[u8],
    ) -> Result<Taken, Refused> {
        let message = if is_packed { unpack(message, self.longest, &mut self.unpacked)? } else { message };
        let service = self.learner.service(UNNAMED);
        let mut heard = Heard {
            learner: &mut self.learner,
            hosts: &self.hosts,
            words: &mut self.words,
            service,
            now,
            taken: Taken::default(),
        };
        match format {
            Format::Protobuf => otlp::decode(message, &mut heard)
                .map_err(|_| Refused::Malformed("it is no ExportTraceServiceRequest".into()))?,
            Format::Json => {
                json::decode(message, &mut heard).map_err(|error| Refused::Malformed(error.into()))?
            }
        }
        Ok(heard.taken)
    }
}

struct Heard<'a> {
    learner: &'a mut Learner,
    hosts: &'a [HostPattern],
    words: &'a mut String,
    service: Service,
    now: Nanos,
    taken: Taken,
}

impl Sink for Heard<'_> {
    fn service(&mut self, name: &str) {
        self.service = self.learner.service(if name.is_empty() { UNNAMED } else { name });
    }

    fn span(&mut self, span: &RawSpan<'_>) {
        self.taken.spans += 1;
        match semantics::read(span, self.hosts, self.words) {
            Some(span) => self.learner.hear(self.now, self.service, &span),
            None => self.taken.rejected += 1,
        }
    }
}

/// Unpacks a message, up to so many bytes: a small one may hide a large one. The room is used again, and not kept where it is large.
fn unpack<'a>(packed: &[u8], longest: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8], Refused> {
    room.clear();
    room.shrink_to(1 << 20);
    let limit = longest as u64 + 1;
    match GzDecoder::new(packed).take(limit).read_to_end(room) {
        Ok(length) if length > longest => Err(Refused::TooLong(longest)),
        Ok(_) => Ok(room),
        Err(error) => Err(Refused::Malformed(format!("gzip: {error}").into())),
    }
}
