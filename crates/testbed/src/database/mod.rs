//! What databases and servers of all kinds are overloaded with: a load that comes whether or not it is answered, tasks that follow a script, and figures.

pub mod fill;
pub mod http;
pub mod judge;
pub mod load;
pub mod loading;
pub mod request;
pub mod task;

use load::Kind;
use request::Outcome;
use task::How;

/// Where a server is and as whom to connect, for its kind of clients.
pub trait Database: Clone + Send + Sync + 'static {
    /// A connection of a load.
    type Client: Client;
    /// A connection of a task.
    type Session: Session;

    /// Connects, and prepares these statements.
    ///
    /// # Errors
    /// Why not.
    fn open(&self, kinds: &[Kind]) -> impl Future<Output = Result<Self::Client, String>>;

    /// Connects for a task of this name.
    ///
    /// # Errors
    /// Why not.
    fn begin(&self, task: &str) -> impl Future<Output = Result<Self::Session, String>> + Send;
}

/// A connection that asks one thing at a time.
pub trait Client {
    /// Whether it has broken.
    fn is_closed(&self) -> bool;

    /// Asks one thing of those that were prepared.
    fn ask(&mut self, kind: usize, parameters: &[i64]) -> impl Future<Output = Outcome>;
}

/// A connection that follows a script.
pub trait Session: Send + 'static {
    /// What the server knows it by: a process, a connection.
    fn id(&self) -> i32;

    /// Runs statements, or a request, to the end, or until somebody ends it.
    fn run(&mut self, text: &str) -> impl Future<Output = Result<(), How>> + Send;

    /// Waits, with nothing asked, until somebody ends the connection.
    fn closed(&mut self) -> impl Future<Output = How> + Send;
}
