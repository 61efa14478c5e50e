//! Drives one provider in a task of its own, so that one that hangs holds up nobody else.

use std::rc::Rc;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::provider::{Provider, Reality, Traffic};

/// Longest step; then it is given up as failed.
const LONGEST: Duration = Duration::from_secs(30);
/// From one look at whether a failed provider may be tried again to the next.
const WAIT: Duration = Duration::from_millis(500);

/// A provider at work.
pub struct Actuator {
    orders: watch::Sender<Option<u32>>,
    state: watch::Receiver<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    present: Option<u32>,
    reality: Reality,
}

impl Actuator {
    /// Puts a provider to work. `changed` is told whenever there is something new.
    pub fn start<P: Provider + 'static>(
        name: String,
        provider: P,
        traffic: watch::Receiver<Traffic>,
        changed: Rc<Notify>,
    ) -> Actuator {
        let (orders, received) = watch::channel(None);
        let (published, state) = watch::channel(State::default());
        tokio::task::spawn_local(async move {
            let worker = Worker {
                name,
                provider,
                traffic,
                published,
                changed,
                backoff: Backoff::default(),
                errors: 0,
            };
            worker.run(received).await;
        });
        Actuator { orders, state }
    }

    /// How many servers there were when it started; nothing until that is known.
    pub fn present(&self) -> Option<u32> {
        self.state.borrow().present
    }

    /// What there is.
    pub fn reality(&self) -> Reality {
        self.state.borrow().reality.clone()
    }

    /// So many servers there should be.
    pub fn order(&self, servers: u32) {
        self.orders.send_if_modified(|order| order.replace(servers) != Some(servers));
    }

    /// How many there should be, once somebody said.
    pub fn ordered(&self) -> Option<u32> {
        *self.orders.borrow()
    }
}

struct Worker<P> {
    name: String,
    provider: P,
    traffic: watch::Receiver<Traffic>,
    published: watch::Sender<State>,
    changed: Rc<Notify>,
    backoff: Backoff,
    /// Steps that failed; what fails within one the provider counts itself.
    errors: u64,
}

impl<P: Provider> Worker<P> {
    /// Until nobody gives orders any more.
    async fn run(mut self, mut orders: watch::Receiver<Option<u32>>) {
        loop {
            let now = clock::now();
            let mut pause = WAIT;
            if self.backoff.allows(now) {
                let order = *orders.borrow_and_update();
                self.act(order, now).await;
                pause = P::EVERY;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = orders.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn act(&mut self, order: Option<u32>, now: Nanos) {
        let mut state = self.published.borrow().clone();
        let overdue = || format!("hung for {} s, given up", LONGEST.as_secs());
        let result = match (state.present, order) {
            (None, _) => {
                let present = timeout(LONGEST, self.provider.present()).await;
                present.unwrap_or_else(|_| Err(overdue())).map(|present| state.present = Some(present))
            }
            (Some(_), None) => return,
            (Some(_), Some(wanted)) => {
                let traffic = self.traffic.borrow().clone();
                let step = timeout(LONGEST, self.provider.step(wanted, &traffic, now)).await;
                step.unwrap_or_else(|_| Err(overdue())).map(|reality| {
                    state.reality = Reality { failures: reality.failures + self.errors, ..reality }
                })
            }
        };
        match result {
            Ok(()) => self.backoff.succeeded(),
            Err(error) => {
                log::warn!(pool:% = self.name, error:%; "provider failed");
                // From when it failed: it may have taken long.
                self.backoff.failed(clock::now());
                self.errors += 1;
                state.reality.failures += 1;
                state.reality.trouble = Some(error);
            }
        }
        let news = self.published.send_if_modified(|published| {
            let news = published.present != state.present || published.reality != state.reality;
            *published = state;
            news
        });
        if news {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::LocalSet;
    use tokio::time::{Instant, sleep, sleep_until};

    use super::*;

    /// Says how many there are, and never how a step went.
    struct Hangs;

    impl Provider for Hangs {
        const EVERY: Duration = Duration::from_millis(200);

        async fn present(&mut self) -> Result<u32, String> {
            Ok(2)
        }

        async fn step(&mut self, _: u32, _: &Traffic, _: Nanos) -> Result<Reality, String> {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_hangs_is_given_up_and_said() {
        let run = async {
            let (_traffic, known) = watch::channel(Traffic::default());
            let changed = Rc::new(Notify::new());
            let actuator = Actuator::start("test".to_owned(), Hangs, known, Rc::clone(&changed));
            changed.notified().await;
            assert_eq!(actuator.present(), Some(2));
            actuator.order(3);
            let start = Instant::now();
            sleep(LONGEST - Duration::from_secs(1)).await;
            assert_eq!(actuator.reality(), Reality::default(), "it has its time");
            sleep_until(start + LONGEST + Hangs::EVERY * 2).await;
            let reality = actuator.reality();
            assert_eq!(reality.failures, 1);
            assert_eq!(reality.trouble.as_deref(), Some("hung for 30 s, given up"));
        };
        LocalSet::new().run_until(run).await;
    }
}
