//! `/futures`: how threads are, and when they are about to be slowed too much.

use std::convert::Infallible;
use std::sync::mpsc::{SyncSender, TrySendError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use plimsoll_herald::view::Report;
use plimsoll_sentry::admin::reading::{TEXT, respond};
use tokio::sync::oneshot;

use super::selection::{Query, Selection};
use super::subscribers::{LINES, Subscriber};
use super::{Question, Refusal};

/// Where it is.
pub const PATH: &str = "/futures";

/// An answer at once, or one line after the other.
pub type Body = Either<Full<Bytes>, Channel<Bytes, Infallible>>;

/// Whom the herald is asked through.
#[derive(Clone)]
pub struct Page(Result<SyncSender<Question>, String>);

impl Page {
    /// It is there.
    pub(super) fn open(questions: SyncSender<Question>) -> Page {
        Page(Ok(questions))
    }

    /// It is not, because of that.
    pub(super) fn closed(why: &str) -> Page {
        Page(Err(why.to_owned()))
    }

    /// Answers a request.
    pub async fn answer(&self, uri: &Uri) -> Response<Body> {
        self.ask(uri)
            .await
            .unwrap_or_else(|Refusal { status, words }| respond(status, TEXT, words + "\n").map(Either::Left))
    }

    /// The threads of the processes that listen on a TCP port of this host.
    ///
    /// # Errors
    /// Where that cannot be told, and why.
    pub async fn listening(&self, port: u16) -> Result<Report, Refusal> {
        self.put(|answer| Question::Report(Selection::listening(port), answer)).await?
    }

    async fn ask(&self, uri: &Uri) -> Result<Response<Body>, Refusal> {
        let Query { selection, bound } = Query::parse(uri)?;
        let Some(bound) = bound else {
            let report = self.put(|answer| Question::Report(selection, answer)).await??;
            let json = serde_json::to_vec(&report)
                .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
            return Ok(respond(StatusCode::OK, "application/json", json).map(Either::Left));
        };
        let (lines, body) = Channel::new(LINES);
        let subscriber = Box::new(Subscriber::new(selection, bound, lines));
        self.put(|answer| Question::Subscribe(subscriber, answer)).await??;
        let mut response = respond(StatusCode::OK, TEXT, Bytes::new()).map(|_| Either::Right(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(response)
    }

    /// Asks, and waits for the answer: as long as a reading may take.
    async fn put<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Result<T, Refusal> {
        let unavailable = |why: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
        let questions = self.0.as_ref().map_err(|why| unavailable(why))?;
        let (answer, answered) = oneshot::channel();
        questions.try_send(question(answer)).map_err(|error| match error {
            TrySendError::Full(_) => unavailable("too many questions at once; ask again later"),
            TrySendError::Disconnected(_) => unavailable("the herald has ended"),
        })?;
        answered.await.map_err(|_| unavailable("the herald has ended"))
    }
}
