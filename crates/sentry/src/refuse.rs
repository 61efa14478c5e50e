//! What a client is told when it is turned away: by the gate, or because its server failed.
//!
//! Over HTTP a refusal is a 503 (429 where the client alone is over its share), with a jittered `retry-after` so
//! that clients do not come back together, `plimsoll-reason` and a small JSON body. Over gRPC it is a status
//! without messages, with `RetryInfo` in its details. Refusals must be cheap: head and body are one buffer.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use plimsoll_core::rng::Rng;
use plimsoll_core::{Mechanism, Nanos, Refusal};
use rand::RngExt;

use crate::body::ResponseBody;

/// Which mechanism refused, which limit was hit, and by what.
pub const REASON: HeaderName = HeaderName::from_static("plimsoll-reason");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Longest `retry-after`: whatever the estimate says, conditions change sooner.
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);

/// Whether a request is a gRPC call, and so wants its answer as one.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The answer to a request that was refused.
pub fn refusal(refusal: &Refusal, grpc: bool, rng: &mut Rng) -> Response<ResponseBody> {
    // Between once and twice as long as the condition is expected to last.
    let jitter = 1.0 + rng.random::<f64>();
    let wait = Nanos::from_secs_f64(refusal.retry_after.min(LONGEST_WAIT).as_secs_f64() * jitter);
    // Whole seconds, at least one: drawn so that a fleet told "soon" still comes back apart.
    let seconds = wait.0.div_ceil(1_000_000_000).max(1) + u64::from(rng.random::<bool>());
    let client_alone = refusal.mechanism == Mechanism::FairShare;

    let mut text = Vec::with_capacity(192);
    let prefix: &[u8] = if grpc { b"" } else { b"{\"error\":\"overloaded\",\"reason\":\"" };
    text.extend_from_slice(prefix);
    // Writing to a Vec does not fail. The reason is made of names, numbers and units: nothing to escape.
    let _ = write!(text, "{refusal}");
    let reason = prefix.len()..text.len();
    if !grpc {
        let _ = write!(text, "\",\"retry_after_s\":{seconds}}}");
    }
    let text = Bytes::from(text);
    let reason =
        HeaderValue::from_maybe_shared(text.slice(reason)).unwrap_or(HeaderValue::from_static("unprintable"));

    let mut response = if grpc {
        let code = if client_alone { Code::ResourceExhausted } else { Code::Unavailable };
        let mut response = grpc_status(code, reason.clone());
        response.headers_mut().insert(GRPC_DETAILS, retry_info(code, reason.as_bytes(), wait));
        response
    } else {
        let status =
            if client_alone { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, text)
    };
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response.headers_mut().insert(REASON, reason);
    response
}

/// The answer where it is not the gate that says no: `error` is one of this program's own words.
pub fn error(status: StatusCode, error: &'static str, grpc: bool) -> Response<ResponseBody> {
    if grpc {
        let code = match status {
            StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
            s if s.is_client_error() => Code::Internal,
            _ => Code::Unavailable,
        };
        return grpc_status(code, HeaderValue::from_static(error));
    }
    json(status, Bytes::from(format!("{{\"error\":\"{error}\"}}")))
}

/// The answer to a gRPC call that was let in and had to end for the sake of others; `why` is one of this program's own texts.
pub fn cancelled(why: &str) -> Response<ResponseBody> {
    let message = HeaderValue::try_from(why).unwrap_or(HeaderValue::from_static("cancelled"));
    let mut response = grpc_status(Code::ResourceExhausted, message.clone());
    response.headers_mut().insert(REASON, message);
    response
}

fn json(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body));
    *response.status_mut() = status;
    response.headers_mut().reserve(4);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// The gRPC status codes in use here.
#[derive(Clone, Copy)]
enum Code {
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
}

/// A call that ends with its head ("trailers-only"). `message` has nothing that gRPC wants percent-encoded.
fn grpc_status(code: Code, message: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    let headers = response.headers_mut();
    headers.reserve(6);
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(code as u16));
    headers.insert(GRPC_MESSAGE, message);
    response
}

/// `google.rpc.Status { code, message, details: [Any(RetryInfo { retry_delay })] }`, in base64.
///
/// The four messages are a dozen bytes of protobuf each; generated code for them would be the largest part of
/// this file's dependencies.
fn retry_info(code: Code, message: &[u8], wait: Nanos) -> HeaderValue {
    let (mut delay, mut info, mut any, mut status) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    varint_field(&mut delay, 1, wait.0 / 1_000_000_000);
    varint_field(&mut delay, 2, wait.0 % 1_000_000_000);
    bytes_field(&mut info, 1, &delay);
    bytes_field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes_field(&mut any, 2, &info);
    varint_field(&mut status, 1, code as u64);
    bytes_field(&mut status, 2, message);
    bytes_field(&mut status, 3, &any);
    HeaderValue::try_from(STANDARD_NO_PAD.encode(status)).unwrap_or(HeaderValue::from_static(""))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_field(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    varint(out, value);
}

fn bytes_field(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use http_body::Body;
    use plimsoll_core::rng::seeded;
    use plimsoll_core::{Limit, Percentile, Quantity};

    use super::*;

    fn refused(mechanism: Mechanism, retry_after: Nanos) -> Refusal {
        Refusal {
            mechanism,
            limit: Limit::Percentile(Percentile::P90),
            estimate: Quantity::Time(Nanos::from_millis(61)),
            objective: Quantity::Time(Nanos::from_millis(50)),
            retry_after,
        }
    }

    #[test]
    fn http_clients_get_a_status_a_reason_and_a_jittered_wait() {
        let mut rng = seeded(1, 0);
        let mut waits = Vec::new();
        for _ in 0..100 {
            let response = refusal(&refused(Mechanism::Bouncer, Nanos::from_millis(2_500)), false, &mut rng);
            assert_eq!(response.status(), 503);
            assert_eq!(
                response.headers()["plimsoll-reason"],
                "bouncer; limit=p90; estimate=61ms; objective=50ms"
            );
            assert_eq!(response.headers()["content-type"], "application/json");
            waits.push(response.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap());
            assert!(response.body().size_hint().exact().is_some_and(|n| n > 0));
        }
        assert!(waits.iter().all(|w| (3..=6).contains(w)), "{waits:?}");
        assert!((3..=6).all(|w| waits.contains(&w)), "{waits:?}");
        let alone = refusal(&refused(Mechanism::FairShare, Nanos::ZERO), false, &mut rng);
        assert_eq!(alone.status(), 429);
        let late = refusal(&refused(Mechanism::Bouncer, Nanos::MAX), false, &mut rng);
        assert!(late.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 61);
    }

    #[test]
    fn grpc_clients_get_a_status_with_retry_info() {
        let response =
            refusal(&refused(Mechanism::Bouncer, Nanos::from_millis(2_500)), true, &mut seeded(1, 0));
        assert_eq!(response.status(), 200);
        assert!(response.body().is_end_stream());
        let headers = response.headers();
        assert_eq!((&headers["grpc-status"], &headers["content-type"]), (&"14".parse().unwrap(), &GRPC));
        assert_eq!(headers["plimsoll-reason"], headers["grpc-message"]);
        assert!(headers.contains_key("retry-after"));
        let alone = refusal(&refused(Mechanism::FairShare, Nanos::ZERO), true, &mut seeded(1, 0));
        assert_eq!(alone.headers()["grpc-status"], "8");
    }

    #[test]
    fn retry_info_is_the_protobuf_that_others_write() {
        // As googleapis-common-protos (Python) writes it: code 14, message "m", one RetryInfo of 1.5 s.
        let wanted = [
            &[0x08, 14, 0x12, 1, b'm', 0x1a, 54, 0x0a, 40][..],
            b"type.googleapis.com/google.rpc.RetryInfo",
            &[0x12, 10, 0x0a, 8, 0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01],
        ]
        .concat();
        let value = retry_info(Code::Unavailable, b"m", Nanos::from_millis(1_500));
        assert_eq!(STANDARD_NO_PAD.decode(value.as_bytes()).unwrap(), wanted);
    }
}
