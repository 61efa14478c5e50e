//! What a policy answers. A refusal is a value: which mechanism, which limit, the estimate and the objective
//! it was held against, and how long to wait. It is counted, logged and sent to the client as it stands.

use std::fmt;

use crate::{Nanos, Percentile, Statistic};

/// The answer to "may this request go on?".
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It may, and why.
    Admit(Grant),
    /// It may not, and why.
    Refuse(Refusal),
}

impl Verdict {
    /// Whether the request may go on.
    pub fn is_admit(&self) -> bool {
        matches!(self, Verdict::Admit(_))
    }
}

/// Why a request was let in. Claims about objectives are made for [`Grant::Estimate`] alone; the others are
/// counted apart, because the estimate itself said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// The policy expects it to meet its limits.
    Estimate,
    /// Acceptance allowance let it in against the estimate (Bouncer, Algorithm 2).
    Allowance,
    /// Helping the underserved let it in against the estimate (Bouncer, Algorithm 3).
    Underserved,
    /// Measures a class that the estimate would lock out.
    Probe,
    /// Within the rate that its class was promised (Cataclysm, section 3.1).
    Promise,
}

impl Grant {
    /// Every grant, in the order of the metrics.
    pub const ALL: [Grant; 5] =
        [Grant::Estimate, Grant::Allowance, Grant::Underserved, Grant::Probe, Grant::Promise];

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Grant::Estimate => "estimate",
            Grant::Allowance => "allowance",
            Grant::Underserved => "underserved",
            Grant::Probe => "probe",
            Grant::Promise => "promise",
        }
    }
}

macro_rules! mechanisms {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mechanism { $($(#[$doc])* $variant,)* }

        impl Mechanism {
            /// Every mechanism, in the order of the metrics.
            pub const ALL: &[Mechanism] = &[$(Mechanism::$variant),*];

            /// The name in the `plimsoll-reason` header, metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Mechanism::$variant => $name,)* }
            }
        }
    };
}
mechanisms! {
    /// Percentile estimates against the class's objective.
    Bouncer = "bouncer",
    /// The queue is at the policy's own length limit.
    MaxQl = "maxql",
    /// The expected wait is above the policy's limit.
    MaxQwt = "maxqwt",
    /// The demand is above the share that may be accepted.
    AcceptFraction = "accept-fraction",
    /// Requests have been standing in the queue for too long.
    Codel = "codel",
    /// Additive-increase, multiplicative-decrease concurrency limit.
    Aimd = "aimd",
    /// Vegas concurrency limit.
    Vegas = "vegas",
    /// Gradient concurrency limit.
    Gradient2 = "gradient2",
    /// More important classes, or smaller requests, take what there is.
    Policing = "policing",
    /// The queue is full, whatever the policy thinks.
    MaxQueue = "max-queue",
    /// The request's own deadline has passed, or will have before it could be answered.
    Deadline = "deadline",
    /// One client takes more than its share of its class.
    FairShare = "fair-share",
    /// More connections than the configured limit.
    Connections = "connections",
    /// More of the class than may enter the fleet.
    Rate = "rate",
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which limit of the mechanism was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// An objective on this percentile.
    Percentile(Percentile),
    /// An objective on the mean.
    Mean,
    /// Requests waiting.
    QueueLength,
    /// Requests waiting while nothing is known yet about how long they take.
    ColdStart,
    /// Expected or actual time in the queue.
    QueueWait,
    /// The share of arrivals that may be accepted.
    Fraction,
    /// Requests waiting or in service.
    Concurrency,
    /// The request's deadline.
    Deadline,
    /// Admissions of one client.
    ClientShare,
    /// Open connections.
    Connections,
    /// Requests a second that may enter.
    Rate,
}

impl From<Statistic> for Limit {
    fn from(statistic: Statistic) -> Limit {
        match statistic {
            Statistic::Percentile(percentile) => Limit::Percentile(percentile),
            Statistic::Mean => Limit::Mean,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Limit::Percentile(p) => return fmt::Display::fmt(p, f),
            Limit::Mean => "mean",
            Limit::QueueLength => "queue-length",
            Limit::ColdStart => "cold-start",
            Limit::QueueWait => "queue-wait",
            Limit::Fraction => "fraction",
            Limit::Concurrency => "concurrency",
            Limit::Deadline => "deadline",
            Limit::ClientShare => "client-share",
            Limit::Connections => "connections",
            Limit::Rate => "rate",
        };
        f.write_str(name)
    }
}

/// An estimate or an objective, in the limit's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A span of time.
    Time(Nanos),
    /// A number of things.
    Count(u64),
    /// A share of a whole, in 0..1.
    Share(f64),
    /// How often something happens, a second.
    Rate(f64),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Time(t) => fmt::Display::fmt(t, f),
            Quantity::Count(n) => write!(f, "{n}"),
            Quantity::Share(s) => write!(f, "{s:.3}"),
            Quantity::Rate(per_s) => write!(f, "{per_s:.1}/s"),
        }
    }
}

/// Why not, and what would have had to be different.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// What refused.
    pub mechanism: Mechanism,
    /// Which of its limits.
    pub limit: Limit,
    /// What the request was expected to need.
    pub estimate: Quantity,
    /// What it was allowed to need.
    pub objective: Quantity,
    /// How long the condition is expected to last; a host rounds and jitters it for the client.
    pub retry_after: Nanos,
}

/// The text of the `plimsoll-reason` header: `bouncer; limit=p90; estimate=61ms; objective=50ms`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { mechanism, limit, estimate, objective, .. } = self;
        write!(f, "{mechanism}; limit={limit}; estimate={estimate}; objective={objective}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_the_header_says() {
        let refusal = Refusal {
            mechanism: Mechanism::Bouncer,
            limit: Limit::Percentile(Percentile::P90),
            estimate: Quantity::Time(Nanos::from_millis(61)),
            objective: Quantity::Time(Nanos::from_millis(50)),
            retry_after: Nanos::from_secs(1),
        };
        assert_eq!(refusal.to_string(), "bouncer; limit=p90; estimate=61ms; objective=50ms");
    }
}
