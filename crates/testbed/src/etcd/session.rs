//! Connections to an etcd, and what errors of it say.

use std::net::SocketAddr;

use futures_util::future::join_all;
use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use plimsoll_sentry::etcd::message::RangeRequest;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::messages::{Answered, Op, PutRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse};
use super::operation::{self, Operation};
use crate::database::load::Kind;
use crate::database::request::Outcome;
use crate::database::task::How;
use crate::database::{self, Database};

/// Keys that are made at once; etcd takes 128 in a transaction.
const AT_ONCE: u64 = 100;
/// Who does so at the same time.
const WRITERS: u64 = 8;
/// With which a sentry's words begin that it tells who was cancelled.
const CANCELLED: &str = "cancelled:";

/// Where an etcd is, or a sentry in front of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// How long a client waits for an answer, if there is a limit.
    pub timeout: Option<Nanos>,
}

/// A connection, shared by its clones.
#[derive(Clone)]
pub struct Session {
    grpc: Grpc<Channel>,
    timeout: Option<Nanos>,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// Why not.
    pub async fn connect(target: &Target) -> Result<Session, String> {
        let endpoint =
            Endpoint::from_shared(format!("http://{}", target.address)).map_err(|e| e.to_string())?;
        let channel =
            endpoint.connect().await.map_err(|e| format!("cannot connect to {}: {e}", target.address))?;
        // A range may be as long as it likes.
        let grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
        Ok(Session { grpc, timeout: target.timeout })
    }

    /// Reads; how many keys there are.
    ///
    /// # Errors
    /// What the server says.
    pub async fn range(&mut self, range: RangeRequest) -> Result<i64, Status> {
        let answer: RangeResponse = self.ask("/etcdserverpb.KV/Range", range).await?;
        Ok(answer.count)
    }

    /// Writes.
    ///
    /// # Errors
    /// What the server says.
    pub async fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<(), Status> {
        let put = PutRequest { key: key.into(), value: value.into(), lease: 0 };
        self.ask::<_, Answered>("/etcdserverpb.KV/Put", put).await.map(drop)
    }

    /// Does one thing, with these parameters.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(&mut self, operation: &Operation, parameters: &[i64]) -> Result<(), Status> {
        match operation {
            Operation::Range(range, prefix) => {
                self.range(operation::range(range, *prefix, parameters)).await.map(drop)
            }
            Operation::Put(key, value) => {
                self.put(operation::with(key, parameters), operation::with(value, parameters)).await
            }
            Operation::Fill { prefix, keys, size } => self.fill(prefix, *keys, *size).await,
        }
    }

    /// The connection, for what streams.
    pub fn grpc(&self) -> Grpc<Channel> {
        self.grpc.clone()
    }

    async fn fill(&self, prefix: &str, keys: u64, size: usize) -> Result<(), Status> {
        let fill = |first: u64| {
            let mut session = self.clone();
            async move {
                for first in (first * AT_ONCE..keys).step_by((WRITERS * AT_ONCE) as usize) {
                    let put = |i: u64| {
                        let (key, value) = (format!("{prefix}{i}").into(), value(i, size));
                        RequestOp { request: Some(Op::Put(PutRequest { key, value, lease: 0 })) }
                    };
                    let success = (first..keys.min(first + AT_ONCE)).map(put).collect();
                    session.ask::<_, TxnResponse>("/etcdserverpb.KV/Txn", TxnRequest { success }).await?;
                }
                Ok(())
            }
        };
        join_all((0..WRITERS).map(fill)).await.into_iter().collect()
    }

    /// Calls a method of one request and one answer.
    ///
    /// # Errors
    /// What the server says.
    pub async fn ask<A, B>(&mut self, path: &'static str, message: A) -> Result<B, Status>
    where
        A: Message + Default + 'static,
        B: Message + Default + 'static,
    {
        let broken = |e: tonic::transport::Error| Status::unavailable(e.to_string());
        self.grpc.ready().await.map_err(broken)?;
        let mut request = Request::new(message);
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout.into());
        }
        let codec = ProstCodec::<A, B>::default();
        self.grpc
            .unary(request, PathAndQuery::from_static(path), codec)
            .await
            .map(tonic::Response::into_inner)
    }
}

/// A value whose order has nothing to do with that of the keys.
fn value(i: u64, size: usize) -> Vec<u8> {
    let digits = format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    digits.bytes().cycle().take(size).collect()
}

/// A connection of a load, with its operations.
pub struct Prepared {
    session: Session,
    operations: Vec<Operation>,
    closed: bool,
}

impl Database for Target {
    type Client = Prepared;
    type Session = Session;

    async fn open(&self, kinds: &[Kind]) -> Result<Prepared, String> {
        let operations = kinds.iter().map(|kind| kind.text.parse()).collect::<Result<_, String>>()?;
        Ok(Prepared { session: Session::connect(self).await?, operations, closed: false })
    }

    async fn begin(&self, _: &str) -> Result<Session, String> {
        Session::connect(self).await
    }
}

impl database::Client for Prepared {
    fn is_closed(&self) -> bool {
        self.closed
    }

    async fn ask(&mut self, kind: usize, parameters: &[i64]) -> Outcome {
        match self.session.run(&self.operations[kind], parameters).await {
            Ok(()) => Outcome::Ok,
            Err(status) if status.code() == Code::Unavailable => {
                self.closed = true;
                Outcome::Lost
            }
            Err(status) => match how(&status) {
                How::Cancelled => Outcome::Ended,
                _ => Outcome::Grpc(status.code() as i32),
            },
        }
    }
}

impl database::Session for Session {
    fn id(&self) -> i32 {
        // No etcd knows its clients by a number.
        0
    }

    async fn run(&mut self, text: &str) -> Result<(), How> {
        let operation: Operation = text.parse().map_err(How::Failed)?;
        self.run(&operation, &[]).await.map_err(|status| how(&status))
    }

    async fn closed(&mut self) -> How {
        std::future::pending().await
    }
}

/// A sentry's word, or its own client's limit.
fn how(status: &Status) -> How {
    match status.code() {
        Code::ResourceExhausted if status.message().starts_with(CANCELLED) => How::Cancelled,
        Code::DeadlineExceeded | Code::Cancelled => How::Cancelled,
        code => How::Failed(format!("{code:?}: {}", status.message())),
    }
}
