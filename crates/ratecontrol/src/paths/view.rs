//! What has been learnt, as of now.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::names::Names;
use super::operations::{Operations, Usage};
use crate::topology::OwnTime;

/// What is known of all APIs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths {
    /// Those by which requests enter the fleet, in order of their names.
    pub apis: Vec<ApiPaths>,
    /// Of the learning itself.
    pub figures: Figures,
}

/// What is known of an API.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiPaths {
    /// The service at which its requests enter.
    pub service: Arc<str>,
    /// What is asked of it: `GET /cart/{id}`.
    pub operation: Arc<str>,
    /// Requests that this is known by, those long ago counting less.
    pub requests: f64,
    /// Requests that came of late, those half a life ago counting half: unlike the former this can be held against that of other APIs.
    pub recent: f64,
    /// Requests that ended in an error, as those that this is known by.
    pub failed: f64,
    /// The ways that requests take, those that most take first.
    pub branches: Vec<PathBranch>,
    /// How long services work by themselves for its requests, as far as spans tell, in order of their names.
    pub own_times: Vec<(Arc<str>, OwnTime)>,
}

/// One way of an API's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PathBranch {
    /// The share of the API's requests that take it, in 0..1.
    pub share: f64,
    /// Rarer ways, added up: no request visits all of these.
    pub is_rest: bool,
    /// The services that are visited, in order of their names.
    pub visits: Vec<Visit>,
}

/// A service on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// Its name.
    pub service: Arc<str>,
    /// How often a request of this branch calls it, in the mean.
    pub calls: f64,
}

/// What became of what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Spans that were taken in.
    pub spans: u64,
    /// Spans that came twice.
    pub duplicates: u64,
    /// Spans that came after their trace was judged.
    pub late: u64,
    /// Spans of traces that were left out while there were too many.
    pub left_out: u64,
    /// Spans for which there was no room, or of traces with too many.
    pub no_room: u64,
    /// Spans of which it is not known whose request they are part of: where it entered is missing.
    pub unplaced: u64,
    /// Requests that were learnt from.
    pub requests: u64,
    /// Requests left aside: who called them is not known, and mostly that is somebody in the fleet.
    pub doubtful: u64,
    /// Requests and calls of operations that are too many; counted as `other`.
    pub turned_away: u64,
    /// Spans that wait for the rest of their traces.
    pub open_spans: usize,
    /// Traces that do.
    pub open_traces: usize,
    /// The share of traces that are taken in, in 0..1.
    pub taken_share: f64,
    /// Names that are kept.
    pub names: usize,
    /// Operations that are kept.
    pub operations: usize,
}

impl ApiPaths {
    /// The services that its requests may visit, and how often a request does in the mean of all branches.
    pub fn visits(&self) -> BTreeMap<&str, f64> {
        let mut all = BTreeMap::new();
        for branch in &self.branches {
            for visit in &branch.visits {
                *all.entry(&*visit.service).or_default() += branch.share * visit.calls;
            }
        }
        all
    }
}

/// What is known now.
pub fn view(operations: &Operations, names: &Names, figures: Figures) -> Paths {
    let seen = operations.iter().filter(|usage| usage.is_entry() && usage.api.weight() > 0.0);
    let mut apis: Vec<ApiPaths> = seen.map(|usage| api(usage, names)).collect();
    apis.sort_by(|a, b| (&a.service, &a.operation).cmp(&(&b.service, &b.operation)));
    Paths { apis, figures }
}

fn api(usage: &Usage, names: &Names) -> ApiPaths {
    let (known, weight) = (&usage.api, usage.api.weight());
    let branch = |of: f64, is_rest, calls: &mut dyn Iterator<Item = (u32, f64)>| {
        let visit = |(service, sum)| Visit { service: Arc::clone(names.text(service)), calls: sum / of };
        let mut visits: Vec<Visit> = calls.map(visit).collect();
        visits.sort_by(|a, b| a.service.cmp(&b.service));
        PathBranch { share: of / weight, is_rest, visits }
    };
    let each = known.branches.iter().map(|each| {
        branch(each.weight, false, &mut each.services.iter().copied().zip(each.calls.iter().copied()))
    });
    let mut branches: Vec<PathBranch> = each.collect();
    branches.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.visits.len().cmp(&b.visits.len())));
    if known.rest.weight > 0.0 {
        branches.push(branch(known.rest.weight, true, &mut known.rest.calls.iter().copied()));
    }
    let own_times = known.worked.iter().map(|&(service, calls, us)| {
        (Arc::clone(names.text(service)), OwnTime { mean_s: us / calls / 1e6, calls })
    });
    let mut own_times: Vec<_> = own_times.collect();
    own_times.sort_by(|(a, _), (b, _)| a.cmp(b));
    ApiPaths {
        service: Arc::clone(names.text(usage.operation.service)),
        operation: Arc::clone(names.text(usage.operation.name)),
        requests: weight,
        recent: usage.recent,
        failed: known.failed,
        branches,
        own_times,
    }
}
