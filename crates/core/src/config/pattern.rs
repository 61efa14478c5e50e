//! What a request can be recognised by: patterns for paths, hosts, header values and gRPC methods.

use std::str::FromStr;

use super::value::text;

/// Longest pattern, in bytes, and most segments of a path pattern.
const MAX_PATTERN: usize = 1024;
const MAX_SEGMENTS: usize = 32;

text! {
    PathPattern: "a path pattern", "/product/{id}", { "pattern": "^/[^?#]*$", "maxLength": 1024 }, str::parse;
    HostPattern: "a host pattern", "shop.example", { "maxLength": 1024 }, str::parse;
    ValuePattern: "a value, or the beginning of one and `*`", "free", { "maxLength": 1024 }, str::parse;
    GrpcPattern: "a gRPC method", "shop.Cart/*", { "pattern": "^[^/]+/[^/]+$", "maxLength": 1024 }, str::parse;
}

fn check_length(text: &str) -> Result<(), String> {
    let long = text.len() > MAX_PATTERN;
    if long { Err(format!("{} bytes are too many; write at most {MAX_PATTERN}", text.len())) } else { Ok(()) }
}

/// A path template, split at its slashes. It is compared with the path as the client sent it: nothing is decoded, and
/// a slash at the end counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// What must stand between the slashes.
    pub segments: Vec<Segment>,
    /// Whether one more slash and anything at all must follow: `/static/*` takes `/static/` and `/static/a/b`, but
    /// not `/static`.
    pub open: bool,
}

/// What one segment of a path must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Exactly this; empty after a slash at the end.
    Literal(String),
    /// Anything that is not empty.
    Param,
}

impl Segment {
    fn fits(&self, part: &str) -> bool {
        match self {
            Segment::Literal(text) => text == part,
            Segment::Param => !part.is_empty(),
        }
    }

    fn covers(&self, other: &Segment) -> bool {
        match other {
            Segment::Literal(text) => self.fits(text),
            Segment::Param => *self == Segment::Param,
        }
    }
}

impl PathPattern {
    /// Whether the path, without its query, is one of these.
    pub fn fits(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut parts = path.split('/');
        let begins = self.segments.iter().all(|segment| parts.next().is_some_and(|part| segment.fits(part)));
        begins && parts.next().is_some() == self.open
    }

    /// Whether all that fits `other` fits this.
    pub fn covers(&self, other: &PathPattern) -> bool {
        let longer = other.segments.len().checked_sub(self.segments.len());
        let ends = match longer {
            None => false,
            Some(more) => {
                if self.open {
                    more > 0 || other.open
                } else {
                    more == 0 && !other.open
                }
            }
        };
        ends && self.segments.iter().zip(&other.segments).all(|(ours, theirs)| ours.covers(theirs))
    }
}

impl FromStr for PathPattern {
    type Err = String;
    fn from_str(text: &str) -> Result<PathPattern, String> {
        check_length(text)?;
        let Some(path) = text.strip_prefix('/') else {
            return Err(format!("\"{text}\" does not begin with a slash; write \"/{text}\""));
        };
        if let Some(odd) = path.chars().find(|c| "?#".contains(*c) || c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "\"{text}\" holds {odd:?}, which no path has (the query is not compared); remove it"
            ));
        }
        let mut parts: Vec<&str> = path.split('/').collect();
        let rest = |part: &str| part == "*" || param_name(part).is_some_and(|name| name.ends_with("..."));
        let open = parts.pop_if(|last| rest(last)).is_some();
        if parts.len() > MAX_SEGMENTS {
            return Err(format!("{} segments are too many; write at most {MAX_SEGMENTS}", parts.len()));
        }
        let segments = parts.into_iter().map(|part| segment(part, text)).collect::<Result<_, _>>()?;
        Ok(PathPattern { segments, open })
    }
}

fn param_name(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

fn segment(part: &str, pattern: &str) -> Result<Segment, String> {
    let identifier =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    match param_name(part) {
        Some(name) if identifier(name) => Ok(Segment::Param),
        None if !part.contains(['{', '}', '*']) => Ok(Segment::Literal(part.to_owned())),
        _ => Err(format!(
            "`{part}` in \"{pattern}\" is no segment; write {{name}} for a whole one, and `*` or {{name...}} for all the rest"
        )),
    }
}

/// The host of a request, in any case and without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this.
    Exact(String),
    /// Something, and then this, which begins with a dot: `*.example.com`.
    Suffix(String),
}

impl HostPattern {
    /// Whether the host is one of these; a port and a dot at its end do not count.
    pub fn fits(&self, host: &str) -> bool {
        let host = without_port(host);
        let host = host.strip_suffix('.').unwrap_or(host);
        match self {
            HostPattern::Exact(name) => name.eq_ignore_ascii_case(host),
            HostPattern::Suffix(suffix) => host
                .len()
                .checked_sub(suffix.len())
                .filter(|&start| start > 0)
                .and_then(|start| host.get(start..))
                .is_some_and(|end| suffix.eq_ignore_ascii_case(end)),
        }
    }

    /// Whether all that fits `other` fits this.
    pub fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (_, HostPattern::Exact(name)) => self.fits(name),
            (HostPattern::Suffix(ours), HostPattern::Suffix(theirs)) => theirs.ends_with(ours),
            (HostPattern::Exact(_), HostPattern::Suffix(_)) => false,
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an IPv6 address stand within its brackets.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

impl FromStr for HostPattern {
    type Err = String;
    fn from_str(text: &str) -> Result<HostPattern, String> {
        check_length(text)?;
        let suffix = text.strip_prefix('*');
        let name = suffix.unwrap_or(text).to_ascii_lowercase();
        if without_port(&name) != name {
            return Err(format!("\"{text}\" has a port, which is not compared; leave it out"));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
        let dotted = suffix.is_none() || name.len() > 1 && name.starts_with('.');
        if name.is_empty() || name.ends_with('.') || !dotted || !name.chars().all(fits) {
            let example = "\"shop.example\" or \"*.shop.example\"";
            return Err(format!("\"{text}\" is not a host; write for example {example}"));
        }
        Ok(if suffix.is_some() { HostPattern::Suffix(name) } else { HostPattern::Exact(name) })
    }
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePattern {
    /// Exactly this.
    Exact(String),
    /// Anything that begins with this.
    Prefix(String),
}

impl ValuePattern {
    /// Whether the value is one of these.
    pub fn fits(&self, value: &[u8]) -> bool {
        match self {
            ValuePattern::Exact(text) => text.as_bytes() == value,
            ValuePattern::Prefix(text) => value.starts_with(text.as_bytes()),
        }
    }

    /// Whether all that fits `other` fits this.
    pub fn covers(&self, other: &ValuePattern) -> bool {
        match (self, other) {
            (_, ValuePattern::Exact(text)) => self.fits(text.as_bytes()),
            (ValuePattern::Prefix(ours), ValuePattern::Prefix(theirs)) => theirs.starts_with(ours),
            (ValuePattern::Exact(_), ValuePattern::Prefix(_)) => false,
        }
    }
}

impl FromStr for ValuePattern {
    type Err = String;
    fn from_str(text: &str) -> Result<ValuePattern, String> {
        check_length(text)?;
        Ok(match text.strip_suffix('*') {
            Some(prefix) => ValuePattern::Prefix(prefix.to_owned()),
            None => ValuePattern::Exact(text.to_owned()),
        })
    }
}

/// A gRPC service and perhaps its method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcPattern {
    /// With its package: `shop.Cart`.
    pub service: String,
    /// All of the service's methods where there is none.
    pub method: Option<String>,
}

impl GrpcPattern {
    /// The path of its requests: `/shop.Cart/Add`.
    pub fn path(&self) -> PathPattern {
        let method = self.method.clone().map_or(Segment::Param, Segment::Literal);
        PathPattern { segments: vec![Segment::Literal(self.service.clone()), method], open: false }
    }
}

impl FromStr for GrpcPattern {
    type Err = String;
    fn from_str(text: &str) -> Result<GrpcPattern, String> {
        check_length(text)?;
        let wrong = || {
            format!(
                "\"{text}\" is not a gRPC method; write \"package.Service/Method\" or \"package.Service/*\""
            )
        };
        let (service, method) = text.split_once('/').ok_or_else(wrong)?;
        let name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
        if !name(service) || method != "*" && !name(method) {
            return Err(wrong());
        }
        let method = (method != "*").then(|| method.to_owned());
        Ok(GrpcPattern { service: service.to_owned(), method })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn paths_fit_segment_by_segment() {
        for (pattern, fits, not) in [
            ("/", &["/"][..], &["", "*", "//", "/a"][..]),
            ("/a/{id}", &["/a/1", "/a/%20"], &["/a", "/a/", "/a/1/", "/b/1"]),
            ("/a/", &["/a/"], &["/a"]),
            ("/a/*", &["/a/", "/a/b", "/a/b/c/"], &["/a", "/ab"]),
            ("/{x}/b/{rest...}", &["/a/b/", "/a/b/c"], &["//b/c", "/a/b"]),
            ("/*", &["/", "/a/b", "//"], &["", "a"]),
        ] {
            assert!(fits.iter().all(|p| path(pattern).fits(p)), "{pattern}");
            assert!(!not.iter().any(|p| path(pattern).fits(p)), "{pattern}");
        }
        for bad in ["", "a", "/a?b", "/a b", "/{}", "/a*", "/*/a", "/{a}b", "/{a...}/b", "/{a b}"] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
        assert!("/a".repeat(33).parse::<PathPattern>().is_err());
    }

    #[test]
    fn hosts_fit_without_case_and_port() {
        for (pattern, fits, not) in [
            (
                "Shop.example",
                &["shop.example", "SHOP.EXAMPLE:8080", "shop.example."][..],
                &["a.shop.example", ""][..],
            ),
            (
                "*.shop.example",
                &["a.shop.example", "a.b.Shop.example:80"],
                &["shop.example", ".shop.example", "ashop.example"],
            ),
            ("[::1]", &["[::1]", "[::1]:80"], &["[::2]"]),
        ] {
            let pattern: HostPattern = pattern.parse().unwrap();
            assert!(fits.iter().all(|host| pattern.fits(host)), "{pattern:?}");
            assert!(!not.iter().any(|host| pattern.fits(host)), "{pattern:?}");
        }
        assert!(!HostPattern::Suffix(".ab".to_owned()).fits("éab"), "the cut falls within a character");
        for bad in ["", "*", "*.", "a:80", "a b", "*a.b", "a.*.b", "a."] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn grpc_names_become_paths() {
        let method: GrpcPattern = "shop.Cart/Add".parse().unwrap();
        assert_eq!(method.path(), path("/shop.Cart/Add"));
        let service: GrpcPattern = "shop.Cart/*".parse().unwrap();
        assert!(service.path().fits("/shop.Cart/Add") && !service.path().fits("/shop.Cart/"));
        for bad in ["", "shop.Cart", "/Add", "shop.Cart/", "a/b/c", "shop.Cart/A*"] {
            assert!(bad.parse::<GrpcPattern>().is_err(), "{bad}");
        }
    }
}
