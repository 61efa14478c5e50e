//! What senders are answered, as OTLP says: over gRPC by its status, over HTTP by a status and a message in the format of the request.

use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use prost::encoding::{int32, int64, string};
use serde_json::json;

use super::receiver::{Format, Refused, Taken};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Codes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It is no message of OTLP.
    InvalidArgument = 3,
    /// It took too long.
    DeadlineExceeded = 4,
    /// It is too long. Without RetryInfo nobody sends it again.
    ResourceExhausted = 8,
    /// Nobody answers to that here.
    Unimplemented = 12,
    /// The token is missing.
    Unauthenticated = 16,
}

/// Why a request is refused, in both worlds.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Over HTTP.
    pub status: StatusCode,
    /// Over gRPC, and in the message over HTTP.
    pub code: Code,
    /// In words.
    pub words: String,
}

impl Problem {
    /// That, in words.
    pub fn new(status: StatusCode, code: Code, words: impl Into<String>) -> Problem {
        Problem { status, code, words: words.into() }
    }

    /// A message that is longer than so many bytes.
    pub fn too_long(longest: usize) -> Problem {
        let words = format!(
            "longer than {longest} bytes (max_message of [controller.telemetry]); send smaller batches"
        );
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, words)
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        match refused {
            Refused::Malformed(why) => Problem::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, why),
            Refused::TooLong(longest) => Problem::too_long(longest),
        }
    }
}

fn empty() -> Body {
    Full::default().boxed_unsync()
}

/// Words for what was rejected.
fn words(taken: Taken) -> String {
    format!("{} of {} spans have no valid trace_id, span_id or parent_span_id", taken.rejected, taken.spans)
}

/// An `ExportTraceServiceResponse`: empty, unless something was rejected.
fn response(taken: Taken) -> Vec<u8> {
    let mut bytes = Vec::new();
    if taken.rejected > 0 {
        let mut partial = Vec::new();
        int64::encode(1, &(taken.rejected as i64), &mut partial);
        string::encode(2, &words(taken), &mut partial);
        prost::encoding::bytes::encode(1, &partial, &mut bytes);
    }
    bytes
}

/// Over gRPC.
pub fn grpc(result: Result<Taken, Problem>) -> Response<Body> {
    let mut answer = Response::new(empty());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    match result {
        Ok(taken) => {
            let response = response(taken);
            let mut frame = BytesMut::with_capacity(5 + response.len());
            frame.put_u8(0);
            frame.put_u32(response.len() as u32);
            frame.put_slice(&response);
            let mut trailers = HeaderMap::new();
            trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
            let body = Full::new(frame.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
            *answer.body_mut() = body.boxed_unsync();
        }
        Err(problem) => {
            answer.headers_mut().insert(GRPC_STATUS, HeaderValue::from(problem.code as u16));
            if let Ok(words) = HeaderValue::from_str(&percent(&problem.words)) {
                answer.headers_mut().insert(GRPC_MESSAGE, words);
            }
        }
    }
    answer
}

/// As `grpc-message` is written: visible ASCII as it is, all else in percent.
fn percent(words: &str) -> String {
    let visible = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b'%';
    words
        .bytes()
        .map(|byte| if visible(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Over HTTP.
pub fn http(format: Format, result: Result<Taken, Problem>) -> Response<Body> {
    let (status, bytes) = match (result, format) {
        (Ok(taken), Format::Protobuf) => (StatusCode::OK, response(taken)),
        (Ok(Taken { rejected: 0, .. }), Format::Json) => (StatusCode::OK, b"{}".to_vec()),
        (Ok(taken), Format::Json) => {
            // Numbers of 64 bits are strings in protobuf's JSON.
            let partial =
                json!({ "rejectedSpans": taken.rejected.to_string(), "errorMessage": words(taken) });
            (StatusCode::OK, json!({ "partialSuccess": partial }).to_string().into_bytes())
        }
        // Both are a google.rpc.Status.
        (Err(Problem { status, code, words }), Format::Protobuf) => {
            let mut bytes = Vec::new();
            int32::encode(1, &(code as i32), &mut bytes);
            string::encode(2, &words, &mut bytes);
            (status, bytes)
        }
        (Err(Problem { status, code, words }), Format::Json) => {
            (status, json!({ "code": code as i32, "message": words }).to_string().into_bytes())
        }
    };
    let mut answer = Response::new(Full::new(Bytes::from(bytes)).boxed_unsync());
    *answer.status_mut() = status;
    let kind = match format {
        Format::Protobuf => "application/x-protobuf",
        Format::Json => "application/json",
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    answer
}
