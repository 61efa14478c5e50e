//! A layer that makes a task of every request, and answers in place of one that is cancelled.
//!
//! A request that is cancelled is dropped where it waits, as futures are, with the locks and permits that it holds. What it has handed to
//! other threads goes on, unless it was given a [`Token`](crate::Token).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::cancel::{Cancellation, Cancelled};
use crate::current::Scope;
use crate::{App, TaskBuilder};

#[cfg(feature = "http")]
pub mod http;

/// Makes a task of every request.
///
/// `label` says what a request is; `answer` is what is answered in place of one that is cancelled, given why it was. With the feature `http`, the
/// module `http` has both for HTTP.
///
/// ```
/// # use plimsoll_sdk::{App, Cancellation, tower::Account};
/// # let app = App::unaccounted();
/// struct Request { path: String }
/// struct Response { status: u16, body: String }
///
/// let layer = Account::new(
///     app,
///     |request: &Request| format!("GET {}", request.path),
///     |why: &Cancellation| Response { status: 503, body: format!("cancelled: {why}") },
/// )
/// .with(|task, request: &Request| if request.path == "/feed" { task.background() } else { task });
/// ```
#[derive(Clone, Debug)]
pub struct Account<L, A, B = AsItIs> {
    app: App,
    label: L,
    answer: A,
    builder: B,
}

impl<L, A> Account<L, A> {
    /// For this application.
    pub fn new(app: App, label: L, answer: A) -> Account<L, A> {
        Account { app, label, answer, builder: AsItIs }
    }

    /// With more to say of the task that a request is: its key, a deadline, that it is here [again](TaskBuilder::again).
    pub fn with<Request, B>(self, builder: B) -> Account<L, A, B>
    where
        B: for<'a> Fn(TaskBuilder<'a>, &Request) -> TaskBuilder<'a>,
    {
        Account { app: self.app, label: self.label, answer: self.answer, builder }
    }
}

/// Nothing more is to be said of a task.
#[derive(Clone, Copy, Debug)]
pub struct AsItIs;

/// Who says more of the task that a request is: a function, or nobody.
trait Describe<Request> {
    fn describe<'a>(&self, task: TaskBuilder<'a>, request: &Request) -> TaskBuilder<'a>;
}

impl<Request> Describe<Request> for AsItIs {
    fn describe<'a>(&self, task: TaskBuilder<'a>, _: &Request) -> TaskBuilder<'a> {
        task
    }
}

impl<Request, B> Describe<Request> for B
where
    B: for<'a> Fn(TaskBuilder<'a>, &Request) -> TaskBuilder<'a>,
{
    fn describe<'a>(&self, task: TaskBuilder<'a>, request: &Request) -> TaskBuilder<'a> {
        self(task, request)
    }
}

impl<S, L: Clone, A: Clone, B: Clone> Layer<S> for Account<L, A, B> {
    type Service = AccountService<S, L, A, B>;

    fn layer(&self, inner: S) -> Self::Service {
        AccountService { inner, account: self.clone() }
    }
}

/// A service whose requests are tasks.
#[derive(Clone, Debug)]
pub struct AccountService<S, L, A, B = AsItIs> {
    inner: S,
    account: Account<L, A, B>,
}

impl<Request, S, L, A, B> Service<Request> for AccountService<S, L, A, B>
where
    S: Service<Request>,
    L: Fn(&Request) -> String,
    A: Fn(&Cancellation) -> S::Response + Clone,
    B: Describe<Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answer<S::Future, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let label = (self.account.label)(&request);
        let task = self.account.app.task(&label).cancellable();
        let task = self.account.builder.describe(task, &request).begin();
        let cancelled = task.token().cancelled();
        // What a service does before its future is polled is done for the task as well.
        let work = task.run(|| self.inner.call(request));
        Answer { work: Some(task.scope(work)), cancelled, answer: self.account.answer.clone() }
    }
}

/// The answer to a request, or what is answered in its place.
#[must_use = "a future does nothing unless it is polled"]
pub struct Answer<F, A> {
    work: Option<Scope<F>>,
    cancelled: Cancelled,
    answer: A,
}

// Nothing in it is pinned: the work has a place of its own.
impl<F, A> Unpin for Answer<F, A> {}

impl<F, A, Response, Error> Future for Answer<F, A>
where
    F: Future<Output = Result<Response, Error>>,
    A: Fn(&Cancellation) -> Response,
{
    type Output = Result<Response, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // First: what is cancelled gets no further.
        if Pin::new(&mut this.cancelled).poll(context).is_ready()
            && let Some(cancellation) = this.cancelled.0.cancellation()
        {
            this.work = None;
            return Poll::Ready(Ok((this.answer)(cancellation)));
        }
        match &mut this.work {
            Some(work) => Pin::new(work).poll(context),
            None => Poll::Pending,
        }
    }
}

impl<F, A> std::fmt::Debug for Answer<F, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}
