//! Where the load goes: address, protocol and encryption, looked up once.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, Scheme};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls;

/// The version of HTTP spoken to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, one request at a time a connection.
    Http1,
    /// HTTP/2, by prior knowledge on plain connections and by ALPN on encrypted ones.
    Http2,
}

/// A target that requests can be made for and connections opened to.
pub(crate) struct Target {
    pub(crate) version: HttpVersion,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// What to put before the paths of a mix, without a slash at its end.
    pub(crate) prefix: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Target {
    /// Looks the host up and prepares TLS. The error says what is wrong with the URL or the name.
    pub(crate) async fn resolve(url: &Uri, version: HttpVersion, insecure: bool) -> Result<Target, String> {
        let wrong = |why: &str| format!("target `{url}`: {why}");
        let scheme = url.scheme().ok_or_else(|| wrong("write a URL, as in \"http://127.0.0.1:8080\""))?;
        let authority = url.authority().ok_or_else(|| wrong("no host"))?;
        // An IPv6 address stands in brackets in a URL and without them everywhere else.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let encrypted = match scheme.as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("the scheme is neither http nor https")),
        };
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let addresses: Vec<SocketAddr> =
            tokio::net::lookup_host((host, port)).await.map_err(|e| wrong(&e.to_string()))?.collect();
        if addresses.is_empty() {
            return Err(wrong("the name has no address"));
        }
        let tls = if encrypted {
            let name = ServerName::try_from(host.to_owned()).map_err(|e| wrong(&e.to_string()))?;
            Some((TlsConnector::from(Arc::new(tls::config(version, insecure)?)), name))
        } else {
            None
        };
        Ok(Target {
            version,
            scheme: scheme.clone(),
            authority: authority.clone(),
            prefix: url.path().trim_end_matches('/').to_owned(),
            addresses,
            tls,
        })
    }
}
