//! Numbers, text, and the words of HTTP.

use std::fmt;
use std::path::PathBuf;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use serde_json::json;
use toml::de::DeValue;

use super::report::Report;
use super::value::{Node, Shape, Value, text};

impl Value for u32 {
    const SHAPE: Shape = Shape::new(
        || "a whole number".to_owned(),
        || "1".to_owned(),
        || json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<u32> {
        let Some(integer) = node.value.get_ref().as_integer() else { return node.mismatch(report) };
        u32::from_str_radix(integer.as_str(), integer.radix()).ok().or_else(|| node.out_of_range(report))
    }
}

impl Value for f64 {
    const SHAPE: Shape =
        Shape::new(|| "a number".to_owned(), || "0.5".to_owned(), || json!({ "type": "number" }));
    fn read(node: Node<'_>, report: &mut Report) -> Option<f64> {
        let number: Option<f64> = match node.value.get_ref() {
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
            DeValue::Float(n) => n.as_str().parse().ok(),
            _ => return node.mismatch(report),
        };
        number.filter(|n| n.is_finite()).or_else(|| node.out_of_range(report))
    }
}

impl Value for String {
    const SHAPE: Shape =
        Shape::new(|| "a string".to_owned(), || "\"text\"".to_owned(), || json!({ "type": "string" }));
    fn read(node: Node<'_>, report: &mut Report) -> Option<String> {
        node.text().map(str::to_owned).or_else(|| node.mismatch(report))
    }
}

text! {
    PathBuf: "a file", "server.pem", { "minLength": 1 }, |text| match text {
        "" => Err("an empty path names no file; write for example \"server.pem\""),
        _ => Ok(PathBuf::from(text)),
    };
    HeaderName: "a header name", "x-api-key", { "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }, |text| {
        text.parse().map_err(|_| format!("\"{text}\" is not a header name; write for example \"x-api-key\""))
    };
    HeaderValue: "a header value", "application/json", {}, |text| {
        HeaderValue::from_str(text).map_err(|_| "control characters are not allowed in a header; remove them")
    };
    PathAndQuery: "a path", "/healthz", { "pattern": "^/[^#]*$" }, |text| {
        let path = text.parse().ok().filter(|_| text.starts_with('/') && !text.contains('#'));
        path.ok_or_else(|| format!("\"{text}\" is not a path; write for example \"/healthz\""))
    };
    Method: "a method", "GET", { "pattern": "^[!#$%&'*+.^_`|~0-9A-Z-]+$" }, |text| {
        let upper = text.to_ascii_uppercase();
        // Methods are case-sensitive: one in lower case would never match anything, and nobody would know why.
        match text.parse() {
            Ok(method) if upper == text => Ok(method),
            Ok(_) => Err(format!("\"{text}\" is not upper case; write \"{upper}\"")),
            Err(_) => Err(format!("\"{text}\" is not a method; write for example \"GET\"")),
        }
    };
}

/// A password that goes into no log: it prints as dots, and no excerpt of the file shows its line.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"...\"")
    }
}

impl Value for Secret {
    const SHAPE: Shape = Shape::new(
        || "a secret".to_owned(),
        || "\"a-long-random-word\"".to_owned(),
        || json!({ "type": "string", "minLength": 8, "maxLength": 256, "pattern": "^[!-~]*$" }),
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Secret> {
        // It travels in an `authorization: Bearer` header. No message quotes the value, whatever its type.
        let fits =
            |text: &&str| (8..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        match node.text().filter(fits) {
            Some(text) => Some(Secret(text.to_owned())),
            None => node.fail(report, "write a string of 8 to 256 visible ASCII characters without spaces"),
        }
    }
}
