//! What a source is held to, from the config.

use plimsoll_cancellation::Terms;
use plimsoll_core::Slo;
use plimsoll_core::config::{App, CancelBudget, Mode};

use crate::ease::Sentry;

/// What a source is held to.
pub struct Promise {
    /// The name in the config.
    pub app: String,
    /// The name in the status, where several sources share one in the config.
    pub name: String,
    /// What kind of source it is.
    pub source: &'static str,
    /// The objective.
    pub slo: Slo,
    /// Whether tasks are cancelled.
    pub mode: Mode,
    /// How much.
    pub budget: CancelBudget,
    /// Who is told to ease off while nobody is to blame.
    pub sentry: Option<Sentry>,
}

impl Promise {
    /// What an application's ledger is held to, under this name in the status.
    pub fn of_app(app: &App, name: &str, sentry: Option<&Sentry>) -> Promise {
        Promise {
            app: app.name.clone(),
            name: name.to_owned(),
            source: "ledger",
            slo: app.slo.clone(),
            mode: app.mode,
            budget: app.budget.clone(),
            sentry: sentry.and_then(|sentry| sentry.of_pool(app.pool.as_deref()?)),
        }
    }
}

/// The engine's terms for a promise.
pub fn terms(slo: &Slo, budget: &CancelBudget) -> Terms {
    let mut terms = Terms::new(slo.clone());
    terms.budget = plimsoll_cancellation::budget::Terms {
        interval: budget.interval,
        rate_per_s: budget.rate.per_s,
        ratio: budget.ratio,
        burst: f64::from(budget.burst),
    };
    terms
}
