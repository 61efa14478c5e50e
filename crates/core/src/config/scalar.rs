//! Numbers, text, and the names of HTTP.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::report::Report;
use super::value::{Node, Value, read_str};

impl Value for u32 {
    fn kind() -> String {
        "a whole number".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<u32> {
        let Some(integer) = node.value.get_ref().as_integer() else { return node.mismatch(report) };
        u32::from_str_radix(integer.as_str(), integer.radix()).ok().or_else(|| {
            let message = format!("`{}` is {integer}; write a whole number from 0 to {}", node.key, u32::MAX);
            report.error(node.span(), message);
            None
        })
    }
}

impl Value for f64 {
    fn kind() -> String {
        "a number".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "number" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<f64> {
        let number = match node.value.get_ref() {
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
            DeValue::Float(n) => n.as_str().parse().ok(),
            _ => return node.mismatch(report),
        };
        number.filter(|n: &f64| n.is_finite()).or_else(|| {
            report
                .error(node.span(), format!("`{}` must be a finite number; write for example 0.5", node.key));
            None
        })
    }
}

impl Value for String {
    fn kind() -> String {
        "a string".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<String> {
        node.value.get_ref().as_str().map(str::to_owned).or_else(|| node.mismatch(report))
    }
}

impl Value for PathBuf {
    const EXAMPLE: &'static str = "\"/etc/plimsoll/server.pem\"";
    fn kind() -> String {
        "a path".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<PathBuf> {
        let text = match node.value.get_ref().as_str() {
            Some(text) => text,
            None => return node.mismatch(report),
        };
        if text.is_empty() {
            report.error(node.span(), format!("`{}` is empty; write the path of a file", node.key));
            return None;
        }
        Some(PathBuf::from(text))
    }
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

impl FromStr for Secret {
    type Err = String;
    fn from_str(text: &str) -> Result<Secret, String> {
        // It travels in an `authorization: Bearer` header.
        if text.len() < 8 || text.len() > 256 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("write 8 to 256 visible ASCII characters without spaces".to_owned());
        }
        Ok(Secret(text.to_owned()))
    }
}

impl Value for Secret {
    const EXAMPLE: &'static str = "\"a long random word\"";
    fn kind() -> String {
        "a secret".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string", "minLength": 8, "maxLength": 256, "pattern": "^[!-~]*$" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Secret> {
        // Not the general mismatch, which quotes the value.
        let read = node.value.get_ref().as_str().map_or_else(|| Err("write a string".to_owned()), str::parse);
        read.map_err(|error| report.error(node.span(), format!("`{}`: {error}", node.key))).ok()
    }
}

impl Value for HeaderName {
    const EXAMPLE: &'static str = "\"x-api-key\"";
    fn kind() -> String {
        "a header name".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<HeaderName> {
        read_str(node, report)
    }
}

impl Value for HeaderValue {
    const EXAMPLE: &'static str = "\"application/json\"";
    fn kind() -> String {
        "a header value".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<HeaderValue> {
        read_str(node, report)
    }
}

impl Value for Method {
    const EXAMPLE: &'static str = "\"GET\"";
    fn kind() -> String {
        "a method".to_owned()
    }
    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Z-]+$" })
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Method> {
        let method: Method = read_str(node, report)?;
        // Methods are case-sensitive, so a lower-case one would silently never match.
        if method.as_str().bytes().any(|b| b.is_ascii_lowercase()) {
            let upper = method.as_str().to_ascii_uppercase();
            report.error(node.span(), format!("`{}`: methods are upper case; write \"{upper}\"", node.key));
            return None;
        }
        Some(method)
    }
}
