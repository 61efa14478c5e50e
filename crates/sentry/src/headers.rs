//! What a gateway does to the headers of a message that it passes on: what concerned one connection stays on it, and
//! the next in line learns who asked (RFC 9110, section 7.6; RFC 7239).

use std::cell::RefCell;
use std::fmt::Write;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Version, uri::Authority};
use plimsoll_core::config::Sentry;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What concerns one connection only, besides what `connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("http2-settings"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what concerned the connection that a message came on.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(CONNECTION).iter();
    match (lines.next().cloned(), lines.next().is_some()) {
        (None, _) => {}
        (Some(only), false) => {
            headers.remove(CONNECTION);
            strip_named(headers, &only);
        }
        (Some(_), true) => {
            let lines: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
            headers.remove(CONNECTION);
            lines.iter().for_each(|line| strip_named(headers, line));
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Removes the headers that a `connection` header names. What a message cannot be understood without is never one
/// connection's own, whatever its sender says.
fn strip_named(headers: &mut HeaderMap, connection: &HeaderValue) {
    let Ok(names) = connection.to_str() else { return };
    for name in names.split(',').map(str::trim) {
        // The usual ones cost no look-up.
        let usual = name.eq_ignore_ascii_case("keep-alive") || name.eq_ignore_ascii_case("close");
        if usual || name.eq_ignore_ascii_case("host") || name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        headers.remove(name);
    }
}

/// Whether a comma-separated header holds this token, in any of its lines.
pub fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let of = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
    };
    headers.get_all(name).iter().any(of)
}

/// Makes the headers of a request those of a request of ours. What says who asked is added by [`Forwarder::add`].
pub fn prepare_request(headers: &mut HeaderMap) {
    // Without it a server may not send the trailers that gRPC needs.
    let trailers = headers.contains_key(TE) && has_token(headers, &TE, "trailers");
    strip_hop_by_hop(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(TE);
    }
    // Whoever says this is not cancelled: a sentry's to say.
    headers.remove(crate::rerun::RERUN);
    // The body is asked for when the server reads it, whatever the client said about waiting.
    headers.remove(http::header::EXPECT);
}

/// HTTP/2 clients may split their cookies; HTTP/1 knows one line only (RFC 9113, section 8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Makes the headers of a response those of a response of ours.
pub fn prepare_response(headers: &mut HeaderMap) {
    // A length beside a transfer coding is a lie of one of them; the coding is what the body was read by.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
}

/// The address of the client, past the proxies that the config trusts.
pub fn client_address(config: &Sentry, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let peer = peer.to_canonical();
    if !config.trusts(peer) {
        return peer;
    }
    let hops = headers.get_all(X_FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = hops.flat_map(|line| line.split(',')).map(str::trim).collect();
    // From the nearest: the first that is not trusted is the last that can be believed.
    let mut client = peer;
    for hop in hops.into_iter().rev() {
        let Ok(address) = hop.parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !config.trusts(client) {
            break;
        }
    }
    client
}

/// Says who asked, on one client connection. What stays the same from request to request is made once.
#[derive(Debug)]
pub struct Forwarder {
    address: HeaderValue,
    proto: &'static str,
    trusted: bool,
    /// The host of the last request, and `forwarded` for it.
    last: RefCell<Option<(HeaderValue, HeaderValue)>>,
}

impl Forwarder {
    /// For a peer with this address; `trusted` if what it says about those behind it is kept.
    pub fn new(peer: IpAddr, tls: bool, trusted: bool) -> Forwarder {
        let address = peer.to_canonical().to_string();
        Forwarder {
            address: HeaderValue::try_from(address).unwrap_or(HeaderValue::from_static("unknown")),
            proto: if tls { "https" } else { "http" },
            trusted,
            last: RefCell::default(),
        }
    }

    /// Adds `x-forwarded-*`, `forwarded` and `via` to a request for `host` that came by this version of HTTP.
    pub fn add(&self, headers: &mut HeaderMap, host: Option<&HeaderValue>, version: Version) {
        append(headers, X_FORWARDED_FOR, &self.address);
        // Of what was asked for and how, the first in line knows; whom nobody vouches for is the first in line.
        let keep = |headers: &HeaderMap, name: &HeaderName| self.trusted && headers.contains_key(name);
        if !keep(headers, &X_FORWARDED_PROTO) {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(self.proto));
        }
        if let Some(host) = host {
            if !keep(headers, &X_FORWARDED_HOST) {
                headers.insert(X_FORWARDED_HOST, host.clone());
            }
        } else if !self.trusted {
            headers.remove(X_FORWARDED_HOST);
        }
        append(headers, FORWARDED, &self.forwarded(host));
        let via = if version == Version::HTTP_2 { "2 plimsoll" } else { "1.1 plimsoll" };
        append(headers, VIA, &HeaderValue::from_static(via));
    }

    fn forwarded(&self, host: Option<&HeaderValue>) -> HeaderValue {
        static NO_HOST: HeaderValue = HeaderValue::from_static("");
        let host = host.unwrap_or(&NO_HOST);
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((known, forwarded)) if known == host => forwarded.clone(),
            _ => {
                let forwarded = self.describe(host);
                *last = Some((host.clone(), forwarded.clone()));
                forwarded
            }
        }
    }

    fn describe(&self, host: &HeaderValue) -> HeaderValue {
        let mut text = String::with_capacity(64);
        let address = self.address.to_str().unwrap_or("unknown");
        // Writing to a String does not fail. IPv6 has colons, which only a quoted value may have; and brackets.
        let _ = if address.contains(':') {
            write!(text, "for=\"[{address}]\"")
        } else {
            write!(text, "for={address}")
        };
        let _ = write!(text, ";proto={}", self.proto);
        if let Ok(host) = host.to_str()
            && !host.is_empty()
            && !host.contains(['"', '\\'])
        {
            let _ = write!(text, ";host=\"{host}\"");
        }
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("for=unknown"))
    }
}

/// Adds to the end of a list header.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value.clone());
        }
        // A list may as well go on in another line, and does so without copying.
        Entry::Occupied(mut entry) => entry.append(value.clone()),
    }
}

/// The value of `host` for this authority.
pub fn host_of(authority: &Authority) -> Option<HeaderValue> {
    // What a user name would do here is nobody's business.
    let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
    HeaderValue::from_str(host).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn all(headers: &HeaderMap, name: &str) -> String {
        headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_concerns_one_connection_stays_on_it() {
        let mut headers = map(&[
            ("connection", "close, X-Internal"),
            ("connection", "x-other, Host, content-length"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("te", "gzip, trailers"),
            ("trailer", "x-checksum"),
            ("expect", "100-continue"),
            ("x-internal", "1"),
            ("x-other", "2"),
            ("x-end-to-end", "3"),
            ("host", "shop"),
            ("content-length", "3"),
        ]);
        prepare_request(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "te", "trailer", "x-end-to-end"]);
        assert_eq!(headers["te"], "trailers");

        let mut headers = map(&[("te", "gzip")]);
        prepare_request(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn responses_lose_what_concerned_the_servers_connection() {
        let mut headers = map(&[
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("etag", "x"),
        ]);
        prepare_response(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["etag"]);
    }

    #[test]
    fn the_server_learns_who_asked() {
        let forwarder = Forwarder::new("192.0.2.7".parse().unwrap(), true, false);
        let host = HeaderValue::from_static("shop.example");
        for _ in 0..2 {
            let mut headers =
                map(&[("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "ftp"), ("via", "1.0 cache")]);
            forwarder.add(&mut headers, Some(&host), Version::HTTP_11);
            assert_eq!(all(&headers, "x-forwarded-for"), "10.0.0.1, 192.0.2.7");
            assert_eq!(all(&headers, "x-forwarded-proto"), "https", "not what a stranger says");
            assert_eq!(all(&headers, "x-forwarded-host"), "shop.example");
            assert_eq!(all(&headers, "forwarded"), "for=192.0.2.7;proto=https;host=\"shop.example\"");
            assert_eq!(all(&headers, "via"), "1.0 cache, 1.1 plimsoll");
        }
        let six = Forwarder::new("2001:db8::1".parse().unwrap(), false, true);
        let mut headers = map(&[("x-forwarded-proto", "https"), ("x-forwarded-host", "public")]);
        six.add(&mut headers, Some(&HeaderValue::from_static("a\"b")), Version::HTTP_2);
        assert_eq!(all(&headers, "forwarded"), "for=\"[2001:db8::1]\";proto=http");
        assert_eq!(all(&headers, "x-forwarded-proto"), "https", "a trusted proxy knows better");
        assert_eq!(all(&headers, "x-forwarded-host"), "public");
        assert_eq!(all(&headers, "via"), "2 plimsoll");
    }

    #[test]
    fn trusted_proxies_are_looked_past() {
        let text =
            "[sentry]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[pool.p]\nservers = [\"a:1\"]\n[class.default]\n";
        let config =
            plimsoll_core::config::parse::<plimsoll_core::config::Config>(text, "test").unwrap().0.sentry;
        let stranger: IpAddr = "192.0.2.7".parse().unwrap();
        let proxy: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let chain = map(&[("x-forwarded-for", "1.1.1.1, 198.51.100.9"), ("x-forwarded-for", "10.9.9.9")]);
        assert_eq!(client_address(&config, stranger, &chain), stranger);
        assert_eq!(client_address(&config, proxy, &chain).to_string(), "198.51.100.9");
        let lies = map(&[("x-forwarded-for", "what, 10.2.2.2")]);
        assert_eq!(client_address(&config, proxy, &lies).to_string(), "10.2.2.2");
        assert_eq!(client_address(&config, proxy, &HeaderMap::new()).to_string(), "10.0.0.1");
    }

    #[test]
    fn cookies_become_one_line() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        join_cookies(&mut headers);
        assert_eq!(headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }
}
