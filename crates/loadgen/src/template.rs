//! The requests of a mix, prepared so that making one costs little.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use plimsoll_core::Nanos;
use plimsoll_core::config::mix;

use crate::target::{HttpVersion, Target};

/// One request of the mix, addressed to the target.
pub(crate) struct Template {
    pub(crate) deadline: Option<Nanos>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    deadline_header: Option<DeadlineHeader>,
}

/// How the server is told the time that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeadlineHeader {
    name: HeaderName,
    /// `grpc-timeout` wants one; other headers carry bare milliseconds.
    unit: &'static str,
}

impl Template {
    /// Fails where the target's path and the request's together make none.
    pub(crate) fn new(
        request: &mix::Request,
        target: &Target,
        deadline_header: Option<&HeaderName>,
    ) -> Result<Template, String> {
        // Two halves that are paths make one, short of the longest that a URL may be.
        let path = PathAndQuery::from_maybe_shared(Bytes::from(format!("{}{}", target.prefix, request.path)))
            .map_err(|e| format!("the path of request `{}` behind that of the target: {e}", request.name))?;
        let mut headers: HeaderMap = HeaderMap::new();
        let uri = match target.version {
            HttpVersion::Http1 => {
                let host = HeaderValue::from_str(target.authority.as_str())
                    .map_err(|e| format!("the target's host makes no header: {e}"))?;
                headers.insert(header::HOST, host);
                Uri::from(path)
            }
            HttpVersion::Http2 => Uri::builder()
                .scheme(target.scheme.clone())
                .authority(target.authority.clone())
                .path_and_query(path)
                .build()
                .map_err(|e| format!("request `{}`: {e}", request.name))?,
        };
        for (name, value) in &request.headers {
            // Of a header that a request may have once only, the mix's replaces ours.
            if *name == header::HOST {
                headers.insert(name, value.clone());
            } else {
                headers.append(name, value.clone());
            }
        }
        Ok(Template {
            deadline: request.deadline,
            method: request.method.clone(),
            uri,
            headers,
            body: Bytes::from(request.body.clone()),
            deadline_header: deadline_header.map(|name| DeadlineHeader {
                name: name.clone(),
                unit: if name == "grpc-timeout" { "m" } else { "" },
            }),
        })
    }

    /// The request as sent when `late` has passed since it should have been.
    pub(crate) fn request(&self, late: Nanos) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let (Some(deadline), Some(header)) = (self.deadline, &self.deadline_header) {
            // A server may take zero for "none", so what has passed is told as one.
            let left_ms = deadline.since(late).0.div_ceil(1_000_000).max(1);
            let value = HeaderValue::try_from(format!("{left_ms}{}", header.unit));
            request.headers_mut().insert(&header.name, value.expect("digits and a letter"));
        }
        request
    }
}
