//! One more connection to a server, for when no other is to be had: a server whose connections are all taken is one that needs its agent, and
//! an agent that lost its connection then would have to wait until the trouble is over.
//!
//! It is made in calm, a step at each look, and asked nothing but now and then whether it still stands.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::Nanos;
use tokio::time::timeout;

use super::Adapter;

/// How often it is seen to that there is one, and that it stands.
const OFTEN: Nanos = Nanos::from_secs(60);
/// How long a look may be held up by what is still to be done until it is there,
const STEP: Duration = Duration::from_millis(20);
/// and how long it may take to say that it stands.
const PATIENCE: Duration = Duration::from_secs(1);

type Opening<A> = Pin<Box<dyn Future<Output = Result<A, String>>>>;

/// A connection in reserve.
pub struct Reserve<A> {
    kept: Option<A>,
    opening: Option<Opening<A>>,
    due: Nanos,
}

impl<A: Adapter> Reserve<A> {
    /// None yet.
    pub fn new() -> Reserve<A> {
        Reserve { kept: None, opening: None, due: Nanos::ZERO }
    }

    /// Takes it, to be used. Whether it still stands shows.
    pub fn take(&mut self) -> Option<A> {
        self.kept.take()
    }

    /// Sees to it that there is one. That none can be had is no trouble as long as it is not needed.
    pub async fn see_to(&mut self, target: &Rc<A::Target>, now: Nanos) {
        if let Some(opening) = &mut self.opening {
            let Ok(opened) = timeout(STEP, opening).await else { return };
            self.opening = None;
            match opened {
                Ok(adapter) => self.kept = Some(adapter),
                Err(why) => log::info!(why:%; "no connection could be had in reserve"),
            }
        }
        if now < self.due {
            return;
        }
        self.due = now + OFTEN;
        if let Some(kept) = &mut self.kept
            && !matches!(timeout(PATIENCE, kept.keep()).await, Ok(Ok(())))
        {
            self.kept = None;
        }
        if self.kept.is_none() {
            let target = Rc::clone(target);
            self.opening = Some(Box::pin(async move { A::connect(&target, now).await }));
        }
    }
}
