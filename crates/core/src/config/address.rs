//! Addresses: where to listen, whom to forward to, whom to trust.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::uri::Authority;
use ipnet::IpNet;
use serde_json::json;

use super::report::Report;
use super::value::{MAX_LIST, Node, Shape, Value, text};

text! {
    SocketAddr: "an address and a port", "127.0.0.1:8080", {}, |text| {
        text.parse().map_err(|_| socket_error(text))
    };
    Server: "a server", "127.0.0.1:9001", {}, str::parse;
    // A single address is a network of one.
    IpNet: "an address or a network", "10.0.0.0/8", {}, |text| {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| format!("\"{text}\" is not an address or a network; write for example \"10.0.0.0/8\""))
    };
}

fn socket_error(text: &str) -> String {
    match text.rsplit_once(':') {
        Some(("", port)) => format!("\"{text}\" lacks the address; write \"0.0.0.0:{port}\" for all of them"),
        Some(("localhost", port)) => format!("\"{text}\" is a name; write \"127.0.0.1:{port}\""),
        Some((_, port)) => port_error(port).unwrap_or_else(|| {
            format!("\"{text}\" is not an IP address and a port; write for example \"127.0.0.1:8080\"")
        }),
        None => format!("\"{text}\" lacks the port; write for example \"127.0.0.1:8080\""),
    }
}

/// Why this is not a port, where that is all that is wrong.
fn port_error(port: &str) -> Option<String> {
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    (digits && port.parse::<u16>().is_err())
        .then(|| format!("port {port} is above 65535; write a port from 1 to 65535"))
}

/// One or several addresses to listen on.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen(pub Vec<SocketAddr>);

impl Value for Listen {
    const SHAPE: Shape = Shape::new(
        || "an address and a port, or a list of them".to_owned(),
        SocketAddr::SHAPE.example,
        || {
            let one = (SocketAddr::SHAPE.schema)();
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": MAX_LIST }] })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Listen> {
        if !node.value.get_ref().is_array() {
            return SocketAddr::read(node, report).map(|address| Listen(vec![address]));
        }
        let addresses = Vec::<SocketAddr>::read(node, report)?;
        if addresses.is_empty() {
            return node.fail(report, "an empty list; write for example \"127.0.0.1:8080\"");
        }
        Some(Listen(addresses))
    }
}

/// Whether a server is spoken to in the clear or over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// A server of a pool. Written "host:port", "http://host" or "https://host:port".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// A name or an IP address; IPv6 without its brackets.
    pub host: String,
    /// The port, that of the scheme where a URL has none.
    pub port: u16,
}

impl FromStr for Server {
    type Err = String;
    fn from_str(text: &str) -> Result<Server, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a server; write \"host:port\", \"http://host:port\" or \"https://host:port\""
            )
        };
        let (scheme, rest, default_port) = match text.split_once("://") {
            None => (Scheme::Http, text, None),
            Some(("http", rest)) => (Scheme::Http, rest, Some(80)),
            Some(("https", rest)) => (Scheme::Https, rest, Some(443)),
            Some(_) => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(format!(
                "\"{text}\" has more than a host and a port; remove the rest (requests keep their own path)"
            ));
        }
        let authority: Authority = rest.parse().map_err(|_| wrong())?;
        let host = authority.host();
        let port = match rest[host.len()..].strip_prefix(':') {
            None => default_port.ok_or_else(|| format!("\"{text}\" lacks the port; write \"{text}:80\""))?,
            Some(port) => match port.parse() {
                Ok(0) => return Err(format!("\"{text}\" has port 0; write a port from 1 to 65535")),
                Ok(port) => port,
                Err(_) => return Err(port_error(port).unwrap_or_else(wrong)),
            },
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Server { scheme, host: host.to_owned(), port })
    }
}

/// As a URL, which reads back as the same server.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { scheme, host, port } = self;
        let scheme = if *scheme == Scheme::Https { "https" } else { "http" };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_read_and_print() {
        for (text, url) in [
            ("127.0.0.1:9001", "http://127.0.0.1:9001"),
            ("http://shop", "http://shop:80"),
            ("https://shop.example/", "https://shop.example:443"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("[::1]:80", "http://[::1]:80"),
        ] {
            let server: Server = text.parse().unwrap();
            assert_eq!(server.to_string(), url);
            assert_eq!(server.to_string().parse::<Server>().unwrap(), server);
        }
        for bad in [
            "",
            "shop",
            ":80",
            "shop:",
            "shop:70000",
            "shop:0",
            "ftp://shop:21",
            "http://a/b",
            "http://u@a:1",
            "::1:80",
            "[]:80",
        ] {
            assert!(bad.parse::<Server>().is_err(), "{bad}");
        }
    }
}
