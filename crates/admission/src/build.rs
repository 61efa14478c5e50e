//! From the config's words to a gate.

use plimsoll_core::Nanos;
use plimsoll_core::config::{Override, Policy as Configured, WaitLimit};

use crate::accept_fraction::AcceptFraction;
use crate::allowance::Allowance;
use crate::bouncer::Bouncer;
use crate::codel::{self, Codel};
use crate::limit::{Aimd, Gradient2, Limit, Limited, Vegas};
use crate::maxql::MaxQl;
use crate::maxqwt::MaxQwt;
use crate::policy::Policy;
use crate::underserved::Underserved;
use crate::{Gate, GateSpec, Open, Slots};

/// Where the self-finding limits begin, as their originals do.
const INITIAL_LIMIT: u32 = 20;
/// What AIMD takes for a timeout where no class has an objective.
const AIMD_TIMEOUT: Nanos = Nanos::from_secs(5);

/// A gate that runs the configured policy. `class_names` are in the order of `spec.slos`; limits that the policy has a class
/// are looked up by them.
pub fn gate(spec: GateSpec, policy: &Configured, class_names: &[&str]) -> Gate {
    let policy = self::policy(&spec, policy, class_names);
    Gate::new(spec, policy)
}

fn policy(spec: &GateSpec, policy: &Configured, class_names: &[&str]) -> Box<dyn Policy> {
    let (classes, start) = (spec.slos.len(), spec.start);
    let (Slots::Fixed(slots) | Slots::Adaptive { max: slots, .. }) = spec.slots;
    let most = f64::from(slots) + f64::from(spec.max_queue);
    let limited = |limit: Box<dyn Limit>| Box::new(Limited::new(limit, INITIAL_LIMIT));
    let initial = f64::from(INITIAL_LIMIT);
    match policy {
        Configured::Bouncer(Override::Never) => Box::new(Bouncer::new(classes)),
        Configured::Bouncer(Override::Allowance(share)) => Box::new(Allowance::new(*share, classes, start)),
        Configured::Bouncer(Override::Underserved(alpha)) => {
            Box::new(Underserved::new(*alpha, classes, start))
        }
        Configured::MaxQl { limit } => Box::new(MaxQl::new(*limit)),
        Configured::MaxQwt { limit } => Box::new(MaxQwt::new(wait_limits(limit, class_names), start)),
        Configured::AcceptFraction { max_util } => Box::new(AcceptFraction::new(*max_util, start)),
        Configured::Codel => Box::new(Codel::new(codel::TARGET, codel::INTERVAL)),
        Configured::Aimd => limited(Box::new(Aimd::new(initial, most, loosest_limit(spec)))),
        Configured::Vegas => limited(Box::new(Vegas::new(initial, most))),
        Configured::Gradient2 => limited(Box::new(Gradient2::policy(initial, most))),
        Configured::None => Box::new(Open),
    }
}

fn wait_limits(limit: &WaitLimit, class_names: &[&str]) -> Vec<Nanos> {
    let of = |name: &str| match limit {
        WaitLimit::All(limit) => *limit,
        WaitLimit::PerClass(limits) => {
            let named = |wanted: &str| limits.iter().find(|(n, _)| n == wanted).map(|&(_, limit)| limit);
            named(name).or_else(|| named("default")).unwrap_or(Nanos::MAX)
        }
    };
    class_names.iter().map(|name| of(name)).collect()
}

/// The loosest objective of all classes: what takes longer than that has failed everyone.
fn loosest_limit(spec: &GateSpec) -> Nanos {
    let limits = spec.slos.iter().flat_map(|slo| slo.targets()).map(|&(_, limit)| limit);
    limits.max().unwrap_or(AIMD_TIMEOUT)
}
