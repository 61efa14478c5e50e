//! A protobuf message field by field, without a copy.
//!
//! Generated types would do, and do in a test; but they make a string of every attribute, and of a span we want ten bytes of a
//! hundred. Measured on traces as SDKs send them (`cargo bench -p plimsoll-controller --bench spans`), that decides how many spans a
//! second one core takes.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// It is no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer, or a truth.
    Varint(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A number of eight bytes.
    Fixed(u64),
    /// Numbers of four bytes and groups, of which nothing is wanted.
    Other,
}

impl<'a> Value<'a> {
    /// The bytes, of a field that must have some.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// The number of eight bytes, of a field that must be one.
    pub fn fixed(self) -> Result<u64, Malformed> {
        match self {
            Value::Fixed(number) => Ok(number),
            _ => Err(Malformed),
        }
    }

    /// The integer, of a field that must be one.
    pub fn varint(self) -> Result<u64, Malformed> {
        match self {
            Value::Varint(number) => Ok(number),
            _ => Err(Malformed),
        }
    }
}

/// The fields of a message, each with its tag; the last one is an error where the message ends too early.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Those of this message.
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    fn read(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let rest = &mut self.0;
        let (tag, kind) = decode_key(rest).map_err(|_| Malformed)?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(rest).map_err(|_| Malformed)?),
            WireType::LengthDelimited => {
                let length = decode_varint(rest).map_err(|_| Malformed)?;
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                let (bytes, after) = rest.split_at_checked(length).ok_or(Malformed)?;
                *rest = after;
                Value::Bytes(bytes)
            }
            WireType::SixtyFourBit => {
                let (bytes, after) = rest.split_first_chunk().ok_or(Malformed)?;
                *rest = after;
                Value::Fixed(u64::from_le_bytes(*bytes))
            }
            WireType::ThirtyTwoBit | WireType::StartGroup | WireType::EndGroup => {
                skip_field(kind, tag, rest, DecodeContext::default()).map_err(|_| Malformed)?;
                Value::Other
            }
        };
        Ok((tag, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
