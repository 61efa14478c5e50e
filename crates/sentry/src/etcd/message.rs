//! What is read of etcd's API: which method a request calls, what a range asks for, and how many keys its answer says there are.
//! Messages are those of `etcdserverpb/rpc.proto`; gRPC puts a flag and four bytes of length before each.

use prost::Message;

/// Bytes before a message.
const PREFIX: usize = 5;
/// A longer request is not read: keys are short, and etcd itself takes no more than 1.5 MiB.
const LONGEST: usize = 64 * 1024;

/// A method, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `KV/Range`: the only one that is ever cancelled.
    Range,
    /// The other requests of the KV service that are answered soon: puts, deletions, transactions.
    Write,
    /// Everything else: watches and leases, which last, locks and elections, which wait, and what administrators do. Nobody judges how
    /// long such a call takes.
    Other,
}

impl Method {
    /// The method that a gRPC call with this path calls.
    pub fn of(path: &str) -> Method {
        match path {
            "/etcdserverpb.KV/Range" => Method::Range,
            "/etcdserverpb.KV/Put" | "/etcdserverpb.KV/DeleteRange" | "/etcdserverpb.KV/Txn" => Method::Write,
            _ => Method::Other,
        }
    }
}

/// `etcdserverpb.RangeRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key that is not wanted; nothing where only `key` is. One zero byte: all that follow.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Keys that are wanted at most; all, where it is 0.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// As of when; now, where it is 0.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// 0 none, 1 ascending, 2 descending.
    #[prost(int32, tag = "5")]
    pub sort_order: i32,
    /// By what: 0 key, 1 version, 2 creation, 3 modification, 4 value.
    #[prost(int32, tag = "6")]
    pub sort_target: i32,
    /// Whether any member may answer by what it has.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Whether values are left out of the answer. They are read all the same.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Whether only the number of keys is wanted.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    /// Only keys that were modified since.
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
    /// Only keys that were modified until then.
    #[prost(int64, tag = "11")]
    pub max_mod_revision: i64,
    /// Only keys that were created since.
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
    /// Only keys that were created until then.
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

/// Gathers the one message of a request from its parts.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    over: bool,
}

impl Gathered {
    /// Takes in what comes next; the request, as soon as all of it is there. One that is compressed, too long or no range is nothing.
    pub fn take(&mut self, part: &[u8]) -> Option<RangeRequest> {
        if self.over {
            return None;
        }
        if self.bytes.len() + part.len() > PREFIX + LONGEST {
            return self.end();
        }
        self.bytes.extend_from_slice(part);
        let (&[compressed, ref length @ ..], message) = self.bytes.split_first_chunk::<PREFIX>()?;
        let length = u32::from_be_bytes(*length) as usize;
        if compressed != 0 || length > LONGEST {
            return self.end();
        }
        let request = RangeRequest::decode(message.get(..length)?).ok();
        (self.over, self.bytes) = (true, Vec::new());
        request
    }

    fn end<T>(&mut self) -> Option<T> {
        self.over = true;
        self.bytes = Vec::new();
        None
    }
}

/// Reads the answer to a range as it passes: only how many keys there are in the range, which is its last field. Whatever is not
/// understood ends the reading.
#[derive(Debug)]
pub struct Answer {
    at: At,
    number: u64,
    shift: u32,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In what comes before the message.
    Prefix(u8),
    /// Before or within the tag of a field.
    Tag,
    /// Within a number.
    Number { is_count: bool },
    /// Within the length of a field.
    Length,
    /// Within what is of no interest, with so many bytes to go.
    Skip(u64),
    /// Where nothing is understood.
    Lost,
}

/// `RangeResponse.count`.
const COUNT: u64 = 4;

impl Default for Answer {
    fn default() -> Answer {
        Answer { at: At::Prefix(0), number: 0, shift: 0, count: 0 }
    }
}

impl Answer {
    /// Takes in what comes next.
    pub fn take(&mut self, mut part: &[u8]) {
        while let Some((&byte, rest)) = part.split_first() {
            if let At::Skip(left) = self.at {
                let skipped = left.min(part.len() as u64);
                self.at = if left == skipped { At::Tag } else { At::Skip(left - skipped) };
                part = &part[skipped as usize..];
                continue;
            }
            part = rest;
            self.at = match self.at {
                At::Prefix(0) if byte != 0 => At::Lost,
                At::Prefix(read) if usize::from(read) + 1 == PREFIX => At::Tag,
                At::Prefix(read) => At::Prefix(read + 1),
                At::Lost | At::Skip(_) => return,
                at => match self.varint(byte) {
                    None => continue,
                    Some(Ok(number)) => self.next(at, number),
                    Some(Err(())) => At::Lost,
                },
            };
        }
    }

    /// The keys in the range; nothing where the answer was not understood, or not to its end.
    pub fn count(&self) -> Option<u64> {
        (self.at == At::Tag && self.shift == 0).then_some(self.count)
    }

    /// One more byte of a number, which is there with its last.
    fn varint(&mut self, byte: u8) -> Option<Result<u64, ()>> {
        if self.shift > 63 {
            return Some(Err(()));
        }
        self.number |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return None;
        }
        self.shift = 0;
        Some(Ok(std::mem::take(&mut self.number)))
    }

    fn next(&mut self, at: At, number: u64) -> At {
        match at {
            At::Tag => match (number >> 3, number & 7) {
                (field, 0) => At::Number { is_count: field == COUNT },
                (_, 1) => At::Skip(8),
                (_, 2) => At::Length,
                (_, 5) => At::Skip(4),
                _ => At::Lost,
            },
            At::Number { is_count } => {
                if is_count {
                    self.count = number;
                }
                At::Tag
            }
            At::Length if number > 0 => At::Skip(number),
            _ => At::Tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `etcdserverpb.RangeResponse`, as a server writes it.
    #[derive(Clone, PartialEq, Message)]
    struct RangeResponse {
        #[prost(bytes = "vec", optional, tag = "1")]
        header: Option<Vec<u8>>,
        #[prost(bytes = "vec", repeated, tag = "2")]
        kvs: Vec<Vec<u8>>,
        #[prost(bool, tag = "3")]
        more: bool,
        #[prost(int64, tag = "4")]
        count: i64,
    }

    fn framed(message: &impl Message) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend((message.encoded_len() as u32).to_be_bytes());
        bytes.extend(message.encode_to_vec());
        bytes
    }

    fn range() -> RangeRequest {
        RangeRequest {
            key: b"item-".to_vec(),
            range_end: b"item.".to_vec(),
            limit: 10,
            sort_order: 2,
            sort_target: 4,
            ..RangeRequest::default()
        }
    }

    #[test]
    fn only_requests_of_the_kv_service_are_judged() {
        assert_eq!(Method::of("/etcdserverpb.KV/Range"), Method::Range);
        for write in ["Put", "DeleteRange", "Txn"] {
            assert_eq!(Method::of(&format!("/etcdserverpb.KV/{write}")), Method::Write);
        }
        for other in [
            "/etcdserverpb.KV/Compact",
            "/etcdserverpb.Watch/Watch",
            "/etcdserverpb.Lease/LeaseKeepAlive",
            "/v3lockpb.Lock/Lock",
            "/etcdserverpb.KV/range",
            "/etcdserverpb.KV/Range/",
            "",
        ] {
            assert_eq!(Method::of(other), Method::Other, "{other}");
        }
    }

    #[test]
    fn a_range_is_read_however_it_is_cut() {
        let bytes = framed(&range());
        for cut in 0..=bytes.len() {
            let mut gathered = Gathered::default();
            let (first, second) = bytes.split_at(cut);
            let read = gathered.take(first).or_else(|| gathered.take(second));
            assert_eq!(read, Some(range()), "cut at {cut}");
            assert_eq!(gathered.take(&bytes), None, "there is one message");
        }
    }

    #[test]
    fn what_is_compressed_or_too_long_or_no_range_is_not_read() {
        let mut compressed = framed(&range());
        compressed[0] = 1;
        let nonsense = [0, 0, 0, 0, 3, 0xff, 0xff, 0xff];
        for bytes in [&compressed[..], &[0, 0xff, 0xff, 0xff, 0xff, 1], &nonsense] {
            assert_eq!(Gathered::default().take(bytes), None, "{bytes:?}");
        }
        let mut gathered = Gathered::default();
        gathered.take(&[0, 0, 0, 0xff, 0xff]);
        for _ in 0..1_000 {
            assert_eq!(gathered.take(&[7; 1_024]), None);
            assert!(gathered.bytes.capacity() <= 2 * (PREFIX + LONGEST));
        }
    }

    #[test]
    fn the_count_of_an_answer_is_read_however_it_is_cut() {
        for count in [0, 1, 127, 128, 100_000] {
            let answer = RangeResponse {
                header: Some(vec![8, 1]),
                kvs: vec![vec![9; 300], Vec::new(), vec![1]],
                more: true,
                count,
            };
            let bytes = framed(&answer);
            for size in [1, 2, 3, 7, 100, bytes.len()] {
                let mut read = Answer::default();
                bytes.chunks(size).for_each(|part| read.take(part));
                assert_eq!(read.count(), Some(count as u64), "in parts of {size}");
            }
            let mut broken = Answer::default();
            broken.take(&bytes[..20]);
            assert_eq!(broken.count(), None, "it broke off");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let (mut gathered, mut answer) = (Gathered::default(), Answer::default());
            for part in &parts {
                gathered.take(part);
                answer.take(part);
                prop_assert!(gathered.bytes.len() <= PREFIX + LONGEST);
            }
            answer.count();
        }
    }
}
