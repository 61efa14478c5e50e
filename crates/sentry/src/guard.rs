//! What is refused before anybody else sees it: requests that two readers could understand differently, and requests
//! that no gateway passes on.
//!
//! hyper and h2 refuse most of it themselves: malformed heads, folded lines, bare CR, blanks before a colon,
//! differing lengths, unknown chunk sizes, HTTP/2 requests with headers of HTTP/1. A length beside a transfer
//! coding is dropped by hyper, which then reads the coding and closes the connection. What is left is here.

use http::header::{EXPECT, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Version};

/// Why a request goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What its client is told.
    pub status: StatusCode,
    /// The same in words.
    pub why: &'static str,
}

const fn malformed(status: StatusCode, why: &'static str) -> Result<(), Malformed> {
    Err(Malformed { status, why })
}

/// Looks at the head of a request.
///
/// # Errors
/// Where it goes no further.
pub fn check<B>(request: &Request<B>) -> Result<(), Malformed> {
    let headers = request.headers();
    if request.method() == Method::CONNECT {
        return malformed(StatusCode::METHOD_NOT_ALLOWED, "tunnels are not served here");
    }
    check_target(request)?;
    if request.version() < Version::HTTP_2 {
        check_host(request, headers)?;
        check_coding(headers)?;
    }
    if let Some(value) = headers.get(EXPECT)
        && !value.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return malformed(StatusCode::EXPECTATION_FAILED, "unknown expectation");
    }
    Ok(())
}

/// A path, with the scheme and the host before it or neither; `*` is for `OPTIONS` (RFC 9112, section 3.2; RFC 9113,
/// section 8.3.1).
fn check_target<B>(request: &Request<B>) -> Result<(), Malformed> {
    let uri = request.uri();
    let is_path = uri.path().starts_with('/') || (uri.path() == "*" && request.method() == Method::OPTIONS);
    if !is_path || uri.authority().is_some() != uri.scheme().is_some() {
        return malformed(StatusCode::BAD_REQUEST, "no valid request target");
    }
    Ok(())
}

/// RFC 9112, section 3.2: exactly one, and one that could be one.
fn check_host<B>(request: &Request<B>, headers: &HeaderMap) -> Result<(), Malformed> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else {
        if request.version() == Version::HTTP_11 {
            return malformed(StatusCode::BAD_REQUEST, "no host");
        }
        return Ok(());
    };
    if hosts.next().is_some() {
        return malformed(StatusCode::BAD_REQUEST, "more than one host");
    }
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(b);
    if !host.as_bytes().iter().all(allowed) {
        return malformed(StatusCode::BAD_REQUEST, "no valid host");
    }
    Ok(())
}

/// The body is read as chunked and passed on without its codings, so it must have no other.
fn check_coding(headers: &HeaderMap) -> Result<(), Malformed> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return malformed(StatusCode::NOT_IMPLEMENTED, "unknown transfer coding");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(build: impl FnOnce(http::request::Builder) -> http::request::Builder) -> Option<u16> {
        let request = build(Request::builder().uri("/").version(Version::HTTP_11)).body(()).unwrap();
        check(&request).err().map(|e| e.status.as_u16())
    }

    #[test]
    fn ambiguous_requests_go_no_further() {
        assert_eq!(status(|r| r.header("host", "shop:80")), None);
        assert_eq!(status(|r| r.header("host", "[::1]:80")), None);
        assert_eq!(status(|r| r), Some(400));
        assert_eq!(status(|r| r.version(Version::HTTP_10)), None);
        assert_eq!(status(|r| r.version(Version::HTTP_2)), None);
        assert_eq!(status(|r| r.header("host", "a").header("host", "a")), Some(400));
        for host in ["a b", "a/b", "a@b", "a,b", "a\\b", "a\tb", "a#", "a\"", "\u{e4}"] {
            assert_eq!(status(|r| r.header("host", host)), Some(400), "{host}");
        }
        let coded =
            |coding: &'static str| status(|r| r.header("host", "a").header("transfer-encoding", coding));
        assert_eq!(coded("chunked"), None);
        assert_eq!(coded(" Chunked "), None);
        for coding in ["gzip, chunked", "chunked, chunked", "identity", "", "xchunked", "chunked;a=b"] {
            assert_eq!(coded(coding), Some(501), "{coding}");
        }
        let twice = |r: http::request::Builder| {
            r.header("host", "a")
                .header("transfer-encoding", "chunked")
                .header("transfer-encoding", "chunked")
        };
        assert_eq!(status(twice), Some(501));
        assert_eq!(status(|r| r.header("host", "a").method("CONNECT")), Some(405));
        assert_eq!(status(|r| r.header("host", "a").header("expect", "100-Continue")), None);
        assert_eq!(status(|r| r.header("host", "a").header("expect", "a miracle")), Some(417));
    }
}
