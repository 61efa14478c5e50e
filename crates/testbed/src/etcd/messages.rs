//! What clients say to an etcd, beside ranges (`plimsoll_sentry::etcd::message`), and what of its answers anybody wants to know. The numbers are
//! those of `etcdserverpb/rpc.proto`; fields that nobody here needs are left out, and skipped where they come.

use plimsoll_sentry::etcd::message::RangeRequest;
use prost::{Message, Oneof};

/// `RangeResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    /// Keys in the range.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// `PutRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    /// Which key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// What it is to be.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// With which lease.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

/// An answer of which nobody wants to know more than that there is one.
#[derive(Clone, PartialEq, Message)]
pub struct Answered {}

/// `TxnRequest` without conditions.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    /// What is done.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
}

/// `RequestOp`.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    /// What.
    #[prost(oneof = "Op", tags = "1, 2")]
    pub request: Option<Op>,
}

/// What a transaction does.
#[derive(Clone, PartialEq, Oneof)]
pub enum Op {
    /// It reads.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// It writes.
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

/// `TxnResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    /// Whether its conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
}
