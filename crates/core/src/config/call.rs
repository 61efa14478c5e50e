//! A request over HTTP as people write it down: `POST /items/_search {"size": 1}`.

use std::fmt;
use std::str::FromStr;

use http::uri::PathAndQuery;

use super::value::text;

/// Method, path and body. In path and body `?1` to `?9` stand for parameters, and `?0` for what is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCall {
    /// As in "GET".
    pub method: String,
    /// From the first slash on, with what follows a question mark.
    pub path: String,
    /// What is sent; empty for nothing.
    pub body: String,
}

text! {
    HttpCall: "a request over HTTP", "GET /items", { "pattern": "^[A-Z]+ /" }, str::parse;
}

impl FromStr for HttpCall {
    type Err = String;
    fn from_str(text: &str) -> Result<HttpCall, String> {
        let (method, rest) = text.trim_start().split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim_start();
        let (path, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_method || !path.starts_with('/') || PathAndQuery::from_str(path).is_err() {
            // A body may be long.
            let shown: String = text.chars().take(60).collect();
            return Err(format!(
                "\"{shown}\" is not a request; write a method, a path and what is sent, as in \"POST /items/_search {{}}\""
            ));
        }
        let body = body.trim_start().to_owned();
        Ok(HttpCall { method: method.to_owned(), path: path.to_owned(), body })
    }
}

impl fmt::Display for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if self.body.is_empty() { Ok(()) } else { write!(f, " {}", self.body) }
    }
}

impl HttpCall {
    /// The same with values for `?0`, `?1` and so on. Those without one stay.
    pub fn with(&self, values: &[i64]) -> HttpCall {
        let [path, body] = [&self.path, &self.body].map(|text| filled(text, values));
        HttpCall { method: self.method.clone(), path, body }
    }

    /// The largest parameter that is asked for, 0 where there is none.
    pub fn parameters(&self) -> usize {
        most(&self.path).max(most(&self.body))
    }
}

/// A text with values for `?0`, `?1` and so on. Those without one stay.
pub fn filled(text: &str, values: &[i64]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('?') {
        let value = number(&rest[at..]).and_then(|number| values.get(number));
        filled += &rest[..at];
        match value {
            Some(value) => filled += &value.to_string(),
            None => filled.push('?'),
        }
        rest = &rest[at + 1 + usize::from(value.is_some())..];
    }
    filled + rest
}

/// The largest parameter of a text, 0 where there is none.
pub(super) fn most(text: &str) -> usize {
    text.match_indices('?').filter_map(|(at, _)| number(&text[at..])).max().unwrap_or(0)
}

/// The digit that follows a question mark.
fn number(text: &str) -> Option<usize> {
    text.as_bytes().get(1).filter(|byte| byte.is_ascii_digit()).map(|byte| usize::from(byte - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> HttpCall {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_request_is_read_and_shown() {
        let bulk = call("POST /items/_bulk?refresh=true {\"index\":{}}\n{\"a\":1}\n");
        assert_eq!((bulk.method.as_str(), bulk.path.as_str()), ("POST", "/items/_bulk?refresh=true"));
        assert_eq!(bulk.body, "{\"index\":{}}\n{\"a\":1}\n", "the last line end counts");
        assert_eq!(call(&bulk.to_string()), bulk);
        assert_eq!(call("DELETE /items").to_string(), "DELETE /items");
        for wrong in ["", "GET", "GET items", "get /items", "/items", "GET /it<ems>\u{7f} {}"] {
            let error = wrong.parse::<HttpCall>().unwrap_err();
            assert!(error.contains("POST /items/_search {}"), "{error}");
        }
    }

    #[test]
    fn parameters_are_filled_in_and_nothing_else_is() {
        let search = call("POST /items/_search?q=?1&x {\"from\": ?2, \"why\": \"é?\", \"n\": ?0?1?9}");
        assert_eq!(search.parameters(), 9);
        let filled = search.with(&[7, 8, -9]);
        assert_eq!(filled.path, "/items/_search?q=8&x");
        assert_eq!(filled.body, "{\"from\": -9, \"why\": \"é?\", \"n\": 78?9}");
        assert_eq!(call("GET /?").parameters(), 0);
    }
}
