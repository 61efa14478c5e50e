//! Answers, and what is read from a request's query.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use hyper::{Response, StatusCode};

/// All answers here are small and whole.
pub type Body = Full<Bytes>;

/// A plain text answer.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

/// A JSON answer.
pub fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    with_type(status, "application/json", value.to_string().into())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The first value of `name` in a query string; empty for a name without `=`. Values here are names and
/// numbers, so percent-encoding is not undone.
pub fn param<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let query = "stall=1s&die&k=3&k=4";
        assert_eq!(param(query, "stall"), Some("1s"));
        assert_eq!(param(query, "die"), Some(""));
        assert_eq!(param(query, "k"), Some("3"));
        assert_eq!(param(query, "sta"), None);
        assert_eq!(param("", "k"), None);
    }
}
