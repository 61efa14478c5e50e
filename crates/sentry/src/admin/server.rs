//! The sentry's admin address: whose requests have a body that is read, and how long that may be.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::accept::{self, Limits, PATIENCE};
use super::change::{LONGEST_BODY, Refused};
use super::{Admin, routes};

/// Scrapers, people and probes are few.
const LIMITS: Limits = Limits { connections: 64, lifetime: Duration::from_secs(600) };

/// Serves this listener until the future is dropped; connections end with the runtime.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    accept::serve(listener, LIMITS, move |request| answer(Arc::clone(&admin), request)).await;
}

async fn answer(admin: Arc<Admin>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = if routes::wants_body(&admin, &parts) { read(body).await } else { Ok(Bytes::new()) };
    routes::answer(&admin, &parts, &body)
}

async fn read(body: Incoming) -> Result<Bytes, Refused> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    match tokio::time::timeout(PATIENCE, Limited::new(body, LONGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {LONGEST_BODY} bytes")))
        }
        Ok(Err(error)) => Err(bad(error.to_string())),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned())),
    }
}
