//! What is known of one operation's requests: which services they visit, how many of them visit which, and how long those work for them.

use plimsoll_core::Nanos;

use super::judge::Visited;
use super::names::NameId;
use super::own::Worked;

/// So many requests at least are what an API is known by, however long ago they were.
const LAST_REQUESTS: f64 = 200.0;
/// A branch is forgotten when fewer of an API's requests take it.
const FAINTEST: f64 = 0.001;

/// Requests that visited the same services.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    /// In order.
    pub services: Box<[NameId]>,
    /// By service, calls of all these requests.
    pub calls: Box<[f64]>,
    /// Requests, those long ago counting less.
    pub weight: f64,
}

/// Requests of branches that are too many: who visited what, and how often.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// Requests.
    pub weight: f64,
    /// In order of the services: calls.
    pub calls: Vec<(NameId, f64)>,
}

/// What is known of an operation.
#[derive(Clone, Debug, Default)]
pub struct Api {
    /// The ways that its requests take.
    pub branches: Vec<Branch>,
    /// Those of them that are too many.
    pub rest: Rest,
    /// In order of the services: calls whose time is known, those long ago counting less, and microseconds that the service worked in them.
    pub worked: Vec<(NameId, f64, f64)>,
    /// Requests that ended in an error, since they count no more than others.
    pub failed: f64,
    /// What is known is from requests that ended well.
    succeeded: bool,
    /// Requests since the past was last made fainter, and when that was.
    fresh: u32,
    faded: Nanos,
}

/// What an API may take.
pub struct Room<'a> {
    /// Branches of one API.
    pub branches: usize,
    /// Services in branches that may still be added, of all APIs together.
    pub visits: &'a mut usize,
}

impl Api {
    /// Counts a request.
    ///
    /// One that failed stopped somewhere; where it would have gone nobody knows. Under overload most requests end early, and would
    /// take the overloaded service off the path. So they say something only while nothing better is known.
    pub fn count(&mut self, visited: &[Visited], worked: &[Worked], failed: bool, room: Room<'_>) {
        self.failed += f64::from(u8::from(failed));
        if failed && self.succeeded {
            return;
        }
        if !failed && !self.succeeded {
            *room.visits += self.size();
            (self.branches, self.rest, self.succeeded) = (Vec::new(), Rest::default(), true);
            self.worked.clear();
        }
        self.fresh = self.fresh.saturating_add(1);
        for &(service, calls, us) in worked {
            let of = match self.worked.binary_search_by_key(&service, |(known, ..)| *known) {
                Ok(at) => &mut self.worked[at],
                Err(at) if *room.visits > 0 => {
                    *room.visits -= 1;
                    self.worked.insert(at, (service, 0.0, 0.0));
                    &mut self.worked[at]
                }
                Err(_) => continue,
            };
            (of.1, of.2) = (of.1 + f64::from(calls), of.2 + us as f64);
        }
        let same = |branch: &&mut Branch| {
            branch.services.iter().copied().eq(visited.iter().map(|(service, _)| *service))
        };
        if let Some(branch) = self.branches.iter_mut().find(same) {
            branch.weight += 1.0;
            branch.calls.iter_mut().zip(visited).for_each(|(sum, (_, calls))| *sum += f64::from(*calls));
            return;
        }
        if self.branches.len() < room.branches && visited.len() <= *room.visits {
            *room.visits -= visited.len();
            self.branches.push(Branch {
                services: visited.iter().map(|(service, _)| *service).collect(),
                calls: visited.iter().map(|(_, calls)| f64::from(*calls)).collect(),
                weight: 1.0,
            });
            return;
        }
        self.rest.weight += 1.0;
        for &(service, calls) in visited {
            match self.rest.calls.binary_search_by_key(&service, |(known, _)| *known) {
                Ok(at) => self.rest.calls[at].1 += f64::from(calls),
                Err(at) if *room.visits > 0 => {
                    *room.visits -= 1;
                    self.rest.calls.insert(at, (service, f64::from(calls)));
                }
                Err(_) => {}
            }
        }
    }

    /// Makes the past count less beside what came since; an API of which nothing came is left as it is. Returns the room that is free
    /// again.
    pub fn fade(&mut self, now: Nanos, half_life: Nanos) -> usize {
        let fresh = f64::from(std::mem::take(&mut self.fresh));
        if fresh == 0.0 {
            return 0;
        }
        let by_time = (-now.since(self.faded).as_secs_f64() / half_life.as_secs_f64()).exp2();
        let by_count = (1.0 - 1.0 / LAST_REQUESTS).powf(fresh);
        self.faded = now;
        let factor = by_time.max(by_count);
        self.failed *= factor;
        for branch in &mut self.branches {
            branch.weight *= factor;
            branch.calls.iter_mut().for_each(|sum| *sum *= factor);
        }
        self.rest.weight *= factor;
        self.rest.calls.iter_mut().for_each(|(_, sum)| *sum *= factor);
        self.worked.iter_mut().for_each(|(_, calls, us)| (*calls, *us) = (*calls * factor, *us * factor));

        let (before, faintest) = (self.size(), self.weight() * FAINTEST);
        self.branches.retain(|branch| branch.weight >= faintest);
        if self.rest.weight < faintest {
            self.rest = Rest::default();
        }
        self.rest.calls.retain(|(_, sum)| *sum >= faintest);
        self.worked.retain(|(_, calls, _)| *calls >= faintest);
        before - self.size()
    }

    /// All requests, those long ago counting less.
    pub fn weight(&self) -> f64 {
        self.branches.iter().map(|branch| branch.weight).sum::<f64>() + self.rest.weight
    }

    /// Services in all branches, and those whose times are known.
    pub fn size(&self) -> usize {
        let branches = self.branches.iter().map(|branch| branch.services.len()).sum::<usize>();
        branches + self.rest.calls.len() + self.worked.len()
    }

    /// Every name in it.
    pub fn names(&self) -> impl Iterator<Item = NameId> {
        let branches = self.branches.iter().flat_map(|branch| branch.services.iter().copied());
        let rest = self.rest.calls.iter().map(|(service, _)| *service);
        branches.chain(rest).chain(self.worked.iter().map(|(service, ..)| *service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Nanos = Nanos::from_secs(60);

    fn count(api: &mut Api, visited: &[Visited], failed: bool) {
        let mut visits = 1_000;
        api.count(visited, &[], failed, Room { branches: 2, visits: &mut visits });
    }

    fn shares(api: &Api) -> Vec<f64> {
        api.branches.iter().map(|branch| branch.weight / api.weight()).collect()
    }

    #[test]
    fn branches_have_shares_and_those_too_many_are_added_up() {
        let mut api = Api::default();
        for _ in 0..6 {
            count(&mut api, &[(1, 1), (2, 3)], false);
        }
        (0..3).for_each(|_| count(&mut api, &[(1, 1)], false));
        for other in 5..8 {
            count(&mut api, &[(1, 2), (other, 1)], false);
        }
        assert_eq!(shares(&api), [0.5, 0.25]);
        assert_eq!(&*api.branches[0].calls, [6.0, 18.0]);
        assert_eq!((api.rest.weight, api.rest.calls.len()), (3.0, 4));
        assert_eq!(api.rest.calls[0], (1, 6.0));
    }

    #[test]
    fn a_path_that_is_seen_no_more_is_forgotten_and_the_room_given_back() {
        let (mut api, mut visits) = (Api::default(), 10);
        for _ in 0..100 {
            api.count(&[(1, 1), (2, 1)], &[], false, Room { branches: 4, visits: &mut visits });
        }
        let mut half_at = None;
        for second in 1..=1_200 {
            for _ in 0..100 {
                api.count(&[(1, 1), (3, 1)], &[], false, Room { branches: 4, visits: &mut visits });
            }
            visits += api.fade(Nanos::from_secs(second), HALF);
            if half_at.is_none() && shares(&api)[0] < 0.01 {
                half_at = Some(second);
            }
        }
        assert_eq!((api.branches.len(), &*api.branches[0].services, visits), (1, &[1, 3][..], 8));
        assert!(half_at.is_some_and(|second| second < 90), "{half_at:?}");
    }

    #[test]
    fn a_rare_api_goes_by_its_last_requests_and_none_at_all_change_nothing() {
        let mut api = Api::default();
        for hour in 0..100u64 {
            let visited = if hour % 4 == 0 { [(1, 1), (2, 1)] } else { [(1, 1), (3, 1)] };
            count(&mut api, &visited, false);
            api.fade(Nanos::from_secs(hour * 3_600), HALF);
        }
        assert!((shares(&api)[0] - 0.25).abs() < 0.05, "{:?}", shares(&api));
        let before = api.weight();
        api.fade(Nanos::from_secs(1_000 * 3_600), HALF);
        assert_eq!(api.weight(), before);
    }

    #[test]
    fn what_failed_says_where_requests_go_only_while_nothing_better_is_known() {
        let mut api = Api::default();
        count(&mut api, &[(1, 1)], true);
        assert_eq!(api.branches.len(), 1);
        count(&mut api, &[(1, 1), (2, 1)], false);
        (0..50).for_each(|_| count(&mut api, &[(1, 1)], true));
        assert_eq!((api.branches.len(), &*api.branches[0].services, api.failed), (1, &[1, 2][..], 51.0));
    }
}
