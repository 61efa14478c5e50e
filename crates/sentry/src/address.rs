//! Whom a request is addressed to, in the words of the protocol that it goes on by.

use std::net::IpAddr;

use http::header::{HOST, HeaderValue};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Uri, Version};
use plimsoll_core::config;

use crate::connections::Link;
use crate::headers;
use crate::server::Server;
use crate::upload::UploadBody;

/// Makes a request one for this server, as what is spoken on the link wants it. Where no host was asked for, it is the
/// server's own.
pub fn address(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server, link: &Link) {
    if link.is_http2() {
        for_http2(request, host, server);
    } else {
        for_http1(request, host, server);
    }
}

/// HTTP/1 has the host in a header and the path alone in its first line.
fn for_http1(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server) {
    if request.uri().authority().is_some() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    if request.version() == Version::HTTP_2 {
        headers::join_cookies(request.headers_mut());
    }
    *request.version_mut() = Version::HTTP_11;
    let host = host.cloned().or_else(|| authority_of(server).as_ref().and_then(headers::host_of));
    if let Some(host) = host
        && request.headers().get(HOST) != Some(&host)
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// HTTP/2 has everything in its URI.
fn for_http2(request: &mut Request<UploadBody>, host: Option<&HeaderValue>, server: &Server) {
    request.headers_mut().remove(HOST);
    *request.version_mut() = Version::HTTP_2;
    let https = server.origin.scheme == config::Scheme::Https;
    let asked_for = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = Parts::default();
    parts.scheme = Some(if https { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = asked_for.or_else(|| authority_of(server));
    parts.path_and_query =
        Some(request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// What a server is called where the request does not say whom it wants.
fn authority_of(server: &Server) -> Option<Authority> {
    let origin = &server.origin;
    let text = match origin.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{}", origin.port),
        _ => format!("{}:{}", origin.host, origin.port),
    };
    Authority::try_from(text).ok()
}
