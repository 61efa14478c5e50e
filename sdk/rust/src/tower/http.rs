//! What requests and answers of HTTP say about cancellation.
//!
//! A request that is cancelled is answered 503, `cancelled: REASON`, with `plimsoll-cancelled: RESOURCE`. A gateway may send it a second time, with
//! `plimsoll-rerun: 1`: it is not cancelled then.
//!
//! ```
//! # use plimsoll_sdk::App;
//! # let app = App::unaccounted();
//! # type Incoming = String;
//! use http::{Request, Response};
//! use plimsoll_sdk::tower::{Account, http as about};
//!
//! let layer = Account::new(app, about::label::<Incoming>, about::answer::<String>).with(about::again::<Incoming>);
//! ```
//!
//! Who has more to say of a request's task says it in a function of its own: `.with(|task, request: &Request<_>| about::again(task, request).key(7))`.

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};

use crate::{Cancellation, TaskBuilder};

/// In the answer to a request that was cancelled: the name of the resource that it held up.
pub const CANCELLED: HeaderName = HeaderName::from_static("plimsoll-cancelled");
/// `1` in a request that is sent a second time because it was cancelled.
pub const RERUN: HeaderName = HeaderName::from_static("plimsoll-rerun");

/// What a request is called: `GET /report`.
pub fn label<B>(request: &Request<B>) -> String {
    format!("{} {}", request.method(), request.uri().path())
}

/// A request that is sent a second time is a task that is here [again](TaskBuilder::again).
pub fn again<'a, B>(task: TaskBuilder<'a>, request: &Request<B>) -> TaskBuilder<'a> {
    match request.headers().get(RERUN) {
        Some(value) if value == "1" => task.again(),
        _ => task,
    }
}

/// What a request that is cancelled is answered.
pub fn answer<B: From<String>>(cancellation: &Cancellation) -> Response<B> {
    let mut answer = Response::new(B::from(format!("cancelled: {cancellation}\n")));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // A header carries printable ASCII.
    let name: String = cancellation
        .resource_name()
        .chars()
        .map(|c| if (' '..='~').contains(&c) { c } else { '?' })
        .collect();
    if let Ok(name) = HeaderValue::try_from(name) {
        answer.headers_mut().insert(CANCELLED, name);
    }
    answer
}
