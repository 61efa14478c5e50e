//! Which APIs have to be decided together: those that share an overloaded service, and those that share one with any of them (section
//! 4.2, Eq. 2). A decision in one cluster changes nothing for an overloaded service of another.

use crate::topology::{ApiId, ServiceId, Topology};

/// The clusters of one step.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    /// A union-find forest over APIs.
    parent: Vec<u32>,
    /// API to cluster; [`NONE`] for those in none.
    of: Vec<u32>,
    apis: Vec<ApiId>,
    apis_from: Vec<u32>,
    services: Vec<ServiceId>,
    services_from: Vec<u32>,
    scratch: Vec<(u32, u32)>,
}

const NONE: u32 = u32::MAX;

/// One cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster<'a> {
    /// Its number in this step.
    pub number: u32,
    /// Its APIs, in order.
    pub apis: &'a [ApiId],
    /// The overloaded services on their paths, in order.
    pub services: &'a [ServiceId],
}

impl Clusters {
    /// Clusters APIs by the services given, which are the overloaded ones; all APIs that call any of them in one cluster if `apart` is
    /// false (the paper's ablation, section 6.2). Memory is reused.
    pub(crate) fn build(&mut self, topology: &Topology, overloaded: &[ServiceId], apart: bool) {
        let apis = topology.apis().len();
        self.parent.clear();
        self.parent.extend(0..apis as u32);
        let mut first_of_all = None;
        for &service in overloaded {
            let mut users = topology.users(service).iter().map(|&(api, _)| api.0);
            let Some(mut first) = users.next() else { continue };
            if !apart {
                first = *first_of_all.get_or_insert(first);
                let me = topology.users(service)[0].0.0;
                self.join(first, me);
            }
            users.for_each(|user| self.join(first, user));
        }
        // Number the clusters by their first service, so that the same overloads give the same numbers.
        self.of.clear();
        self.of.resize(apis, NONE);
        self.scratch.clear();
        let mut clusters = 0;
        for &service in overloaded {
            let Some(&(user, _)) = topology.users(service).first() else { continue };
            let root = self.root(user.0);
            if self.of[root as usize] == NONE {
                self.of[root as usize] = clusters;
                clusters += 1;
            }
            self.scratch.push((self.of[root as usize], service.0));
        }
        self.scratch.sort_unstable();
        gather(&self.scratch, clusters, &mut self.services, &mut self.services_from, ServiceId);
        for &service in overloaded {
            for &(api, _) in topology.users(service) {
                let root = self.root(api.0);
                self.of[api.index()] = self.of[root as usize];
            }
        }
        self.scratch.clear();
        let members = self.of.iter().enumerate().filter(|(_, cluster)| **cluster != NONE);
        self.scratch.extend(members.map(|(api, &cluster)| (cluster, api as u32)));
        self.scratch.sort_unstable();
        gather(&self.scratch, clusters, &mut self.apis, &mut self.apis_from, ApiId);
    }

    fn root(&mut self, mut api: u32) -> u32 {
        while self.parent[api as usize] != api {
            let above = self.parent[self.parent[api as usize] as usize];
            self.parent[api as usize] = above; // halves the path for whoever comes next
            api = above;
        }
        api
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.services_from.len().saturating_sub(1)
    }

    /// Whether there are none: nothing is overloaded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the cluster that an API is in; none if no service on its path is overloaded.
    pub fn of(&self, api: ApiId) -> Option<u32> {
        self.of.get(api.index()).copied().filter(|&cluster| cluster != NONE)
    }

    /// A cluster by its number.
    pub fn get(&self, number: u32) -> Cluster<'_> {
        let range = |from: &[u32]| from[number as usize] as usize..from[number as usize + 1] as usize;
        let (apis, services) = (range(&self.apis_from), range(&self.services_from));
        Cluster { number, apis: &self.apis[apis], services: &self.services[services] }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Cluster<'_>> {
        (0..self.len() as u32).map(|number| self.get(number))
    }
}

/// From sorted pairs of cluster and member to members by cluster.
fn gather<T>(
    pairs: &[(u32, u32)],
    clusters: u32,
    members: &mut Vec<T>,
    from: &mut Vec<u32>,
    of: impl Fn(u32) -> T,
) {
    members.clear();
    from.clear();
    for cluster in 0..clusters {
        from.push(members.len() as u32);
        let rest = &pairs[members.len()..];
        members.extend(rest.iter().take_while(|pair| pair.0 == cluster).map(|pair| of(pair.1)));
    }
    from.push(members.len() as u32);
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Nanos;
    use proptest::prelude::*;

    use super::*;
    use crate::topology::Api;

    fn fleet(paths: &[Vec<u32>]) -> Topology {
        let api = |path: &Vec<u32>| Api::along(path.iter().copied(), Nanos::from_secs(1), 1);
        Topology::new(12, paths.iter().map(api).collect())
    }

    /// Whether two APIs are to be decided together, found by spreading from one to all who share something with it until nobody is new.
    fn together(paths: &[Vec<u32>], overloaded: &[ServiceId], a: usize, b: usize) -> bool {
        let touches = |api: usize, service: &ServiceId| paths[api].contains(&service.0);
        let mut reached = vec![false; paths.len()];
        reached[a] = overloaded.iter().any(|service| touches(a, service));
        loop {
            let spread: Vec<bool> = (0..paths.len())
                .map(|api| {
                    reached[api]
                        || overloaded.iter().any(|service| {
                            touches(api, service)
                                && (0..paths.len()).any(|other| reached[other] && touches(other, service))
                        })
                })
                .collect();
            if spread == reached {
                return reached[b];
            }
            reached = spread;
        }
    }

    proptest! {
        #[test]
        fn clusters_are_the_connected_components(
            paths in prop::collection::vec(prop::collection::vec(0u32..12, 0..4), 1..12),
            overloaded in prop::collection::btree_set(0u32..12, 0..6),
        ) {
            let overloaded: Vec<ServiceId> = overloaded.into_iter().map(ServiceId).collect();
            let topology = fleet(&paths);
            let mut clusters = Clusters::default();
            clusters.build(&topology, &overloaded, true);
            for a in 0..paths.len() {
                let of = clusters.of(ApiId(a as u32));
                prop_assert_eq!(of.is_some(), together(&paths, &overloaded, a, a));
                for b in 0..paths.len() {
                    let same = of.is_some() && of == clusters.of(ApiId(b as u32));
                    prop_assert_eq!(same, together(&paths, &overloaded, a, b), "{} and {}", a, b);
                }
            }
            // Members are listed once, under their own cluster.
            let mut apis: Vec<ApiId> = clusters.iter().flat_map(|cluster| cluster.apis.to_vec()).collect();
            prop_assert!(clusters.iter().all(|cluster| cluster.apis.iter().all(|&api| clusters.of(api) == Some(cluster.number))));
            apis.sort();
            let expected: Vec<ApiId> = (0..paths.len() as u32).map(ApiId).filter(|&api| clusters.of(api).is_some()).collect();
            prop_assert_eq!(apis, expected);
            let mut services: Vec<ServiceId> = clusters.iter().flat_map(|cluster| cluster.services.to_vec()).collect();
            services.sort();
            let used: Vec<ServiceId> = overloaded.iter().copied().filter(|&s| !topology.users(s).is_empty()).collect();
            prop_assert_eq!(services, used);
        }

        #[test]
        fn without_clustering_there_is_one_at_most(
            paths in prop::collection::vec(prop::collection::vec(0u32..12, 0..4), 1..12),
            overloaded in prop::collection::btree_set(0u32..12, 0..6),
        ) {
            let overloaded: Vec<ServiceId> = overloaded.into_iter().map(ServiceId).collect();
            let topology = fleet(&paths);
            let mut clusters = Clusters::default();
            clusters.build(&topology, &overloaded, false);
            let any = overloaded.iter().any(|&service| !topology.users(service).is_empty());
            prop_assert_eq!(clusters.len(), usize::from(any));
            for cluster in clusters.iter() {
                let touched = paths.iter().filter(|path| path.iter().any(|s| overloaded.contains(&ServiceId(*s)))).count();
                prop_assert_eq!(cluster.apis.len(), touched);
            }
        }
    }
}
