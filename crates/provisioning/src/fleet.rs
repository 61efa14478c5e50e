//! All applications together: each plans for itself, and where the plans want more servers than there are, they are divided so that
//! most is earned (Cataclysm, section 4.1).

use plimsoll_core::Nanos;

use crate::demand::Demand;
use crate::planner::{Observation, Plan, Planner, Reason};
use crate::share::{Application, divide};

/// What another division must earn more than one that takes servers from nobody, so that two applications that are worth about
/// the same do not pass one server to and fro.
const WORTH_MOVING: f64 = 1.05;

/// Applications that share servers.
pub struct Fleet {
    planners: Vec<Planner>,
    /// Servers of all together.
    most: u32,
}

impl Fleet {
    /// Applications that share so many servers: at least what all of them must have.
    pub fn new(planners: Vec<Planner>, most: u32) -> Fleet {
        let least = planners.iter().map(|planner| planner.bounds().least).sum();
        Fleet { planners, most: most.max(least) }
    }

    /// Each application's planner, for what was measured of it.
    pub fn planner(&mut self, index: usize) -> &mut Planner {
        &mut self.planners[index]
    }

    /// The plan of each application after what it asked for; nothing where nobody said.
    pub fn plan(&mut self, at: Nanos, demands: &[Option<Demand>]) -> Vec<Plan> {
        let had: Vec<u32> = self.planners.iter().map(Planner::servers).collect();
        let mut plans: Vec<Plan> = self
            .planners
            .iter_mut()
            .zip(demands)
            .map(|(planner, demand)| match demand {
                Some(Demand { load, refused, target, .. }) => {
                    planner.plan(&Observation { at, load: *load, refused: *refused, target: *target })
                }
                None => Plan { servers: planner.servers(), reason: Reason::Unseen },
            })
            .collect();
        if plans.iter().map(|plan| plan.servers).sum::<u32>() > self.most {
            let shares = self.divide(&plans, &had, demands);
            for ((planner, plan), share) in self.planners.iter_mut().zip(&mut plans).zip(shares) {
                if share < plan.servers {
                    planner.settle(share);
                    *plan = Plan { servers: planner.servers(), reason: Reason::Outbid };
                }
            }
        }
        plans
    }

    /// Whose the servers are: nobody gets more than it wants.
    fn divide(&self, plans: &[Plan], had: &[u32], demands: &[Option<Demand>]) -> Vec<u32> {
        let applications: Vec<Application> = (0..plans.len())
            .map(|i| {
                let bounds = self.planners[i].bounds();
                let most = plans[i].servers;
                // Of whom nothing is known, nothing is taken.
                let Some(demand) = &demands[i] else {
                    return Application {
                        revenue: Vec::new(),
                        least: had[i] as usize,
                        most: had[i] as usize,
                    };
                };
                let revenue = (0..=most).map(|n| demand.earns(n.saturating_mul(bounds.slots))).collect();
                Application { revenue, least: bounds.least as usize, most: most as usize }
            })
            .collect();
        let keeping: Vec<Application> = (0..plans.len())
            .map(|i| Application { least: had[i].min(plans[i].servers) as usize, ..applications[i].clone() })
            .collect();
        let best = divide(&applications, self.most as usize);
        let kept = divide(&keeping, self.most as usize);
        let earn = |shares: &[usize]| -> f64 {
            applications.iter().zip(shares).map(|(application, &own)| application.earns(own)).sum()
        };
        let shares = match (best, kept) {
            (Ok(best), Ok(kept)) if earn(&best) > WORTH_MOVING * earn(&kept) => best,
            (_, Ok(kept)) => kept,
            (Ok(best), Err(_)) => best,
            // More are there of whom nothing is known than there may be: what is, stays.
            (Err(_), Err(_)) => return had.to_vec(),
        };
        shares.into_iter().map(|share| share as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Slo, Statistic};

    use super::*;
    use crate::demand::ClassLoad;
    use crate::planner::{Bounds, Pace};

    const BOUNDS: Bounds = Bounds { least: 3, most: 11, slots: 4 };
    const PACE: Pace =
        Pace { step: u32::MAX, gap: Nanos::from_secs(300), period: Nanos::from_secs(300), refused: 0.05 };

    fn fleet() -> Fleet {
        Fleet::new((0..2).map(|_| Planner::new(BOUNDS, PACE, 0, 3)).collect(), 11)
    }

    fn demand(per_s: f64, refused: f64, revenue: f64) -> Option<Demand> {
        let slo = Slo::new([(Statistic::Mean, Nanos::from_millis(100))]).unwrap();
        let class = ClassLoad {
            per_s,
            refused_per_s: per_s * refused,
            service: Some((0.05, 1.0)),
            revenue,
            slo: &slo,
        };
        Some(Demand::of(&[class], None))
    }

    fn servers(plans: &[Plan]) -> Vec<u32> {
        plans.iter().map(|plan| plan.servers).collect()
    }

    #[test]
    fn who_asks_gets_what_is_free() {
        let mut fleet = fleet();
        let plans = fleet.plan(Nanos::ZERO, &[demand(50.0, 0.0, 1.0), demand(440.0, 0.5, 1.0)]);
        assert_eq!(plans[0].servers, 3);
        assert_eq!(plans[1], Plan { servers: plans[1].servers, reason: Reason::Refusals });
        assert!((6..=8).contains(&plans[1].servers), "{plans:?}");
    }

    #[test]
    fn who_earns_more_gets_what_both_want() {
        let mut fleet = fleet();
        let plans = fleet.plan(Nanos::ZERO, &[demand(900.0, 0.8, 1.0), demand(900.0, 0.8, 5.0)]);
        assert_eq!(servers(&plans), [3, 8]);
        assert_eq!(plans[0].reason, Reason::Outbid);
    }

    #[test]
    fn nothing_is_taken_for_a_little_more_revenue_and_much_is_for_much() {
        let mut fleet = fleet();
        let both = |revenue| [demand(900.0, 0.8, 1.0), demand(900.0, 0.8, revenue)];
        let first = servers(&fleet.plan(Nanos::ZERO, &both(1.0)));
        assert_eq!(first.iter().sum::<u32>(), 11);
        let later = Nanos::from_secs(400);
        assert_eq!(servers(&fleet.plan(later, &both(1.01))), first);
        assert_eq!(servers(&fleet.plan(later + later, &both(9.0))), [3, 8]);
    }

    #[test]
    fn of_whom_nothing_is_known_keeps_what_it_has() {
        let mut fleet = fleet();
        fleet.planner(0).settle(5);
        let plans = fleet.plan(Nanos::ZERO, &[None, demand(2_000.0, 0.9, 9.0)]);
        assert_eq!(servers(&plans), [5, 6]);
        assert_eq!(plans[0].reason, Reason::Unseen);
    }
}
