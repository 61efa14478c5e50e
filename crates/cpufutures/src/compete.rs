//! Who competes with whom: real time goes first, the rest shares what that leaves of its pool of CPUs.

use crate::pools::Pools;
use crate::share::{Runner, Share, Sharing, present};
use crate::task::{CpuSet, Group};
use crate::weights;

/// What real time leaves to all others at least (the kernel's fair server: 50 ms in every second).
const LEFT_BY_REAL_TIME: f64 = 0.05;
/// Of a real-time thread beside others, where it is about which CPUs are full.
const REAL_TIME_LOAD: f64 = 1e6;

/// A thread that wants a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub group: u32,
    pub set: u32,
    pub weight: f64,
    pub real_time: bool,
    /// The part of a CPU that it wants, above 0.
    pub demand: f64,
}

/// The CPUs of a host, shared. Kept between uses for the memory it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Competition {
    pools: Pools,
    pooled: Vec<Pooled>,
    loads: Vec<f64>,
    /// By group, the load in it, and what a unit of weight in it comes to at the root.
    inside: Vec<(f64, f64)>,
}

/// What competes in one pool.
#[derive(Clone, Debug, Default)]
struct Pooled {
    share: Share,
    /// Groups with somebody in them, and by group of the host where they are among them.
    groups: Vec<Sharing>,
    places: Vec<u32>,
    /// The contenders, by index, and what is handed on of them.
    who: Vec<u32>,
    runners: Vec<Runner>,
    speeds: Vec<f64>,
}

const NOWHERE: u32 = u32::MAX;

impl Competition {
    /// How fast each contender runs while it is eligible; `speeds` holds a first guess of each.
    pub fn speeds(
        &mut self,
        online: &CpuSet,
        sets: &[CpuSet],
        groups: &[Group],
        contenders: &[Contender],
        speeds: &mut [f64],
    ) {
        // Where the pools are depends on the loads, and these on the speeds.
        for _ in 0..2 {
            self.load(sets.len(), groups, contenders, speeds);
            self.pools = Pools::of(online, sets, &self.loads);
            self.pooled.resize_with(self.pools.cpus.len(), Pooled::default);
            for (pool, pooled) in self.pooled.iter_mut().enumerate() {
                pooled.who.clear();
                let here = (0..contenders.len())
                    .filter(|&at| self.pools.of_set[contenders[at].set as usize] == pool);
                pooled.who.extend(here.map(|at| at as u32));
                pooled.divide(self.pools.cpus[pool], groups, &self.inside, contenders, speeds);
            }
            if self.pooled.len() == 1 {
                break;
            }
        }
    }

    /// How fast one more thread would run; as [`Competition::speeds`] left it.
    pub fn speed_of_another(&self, groups: &[Group], contender: &Contender) -> f64 {
        let pool = self.pools.of_set.get(contender.set as usize).copied().unwrap_or(0);
        let Some(pooled) = self.pooled.get(pool) else { return 1.0 };
        if contender.real_time {
            return 1.0;
        }
        // A group that nobody is in competes as soon as somebody is.
        let (mut group, mut weight) = (contender.group as usize, contender.weight);
        while pooled.places.get(group).is_none_or(|&place| place == NOWHERE) && group > 0 {
            weight = f64::from(weights::of_group(&groups[group]));
            group = groups[group].parent as usize;
        }
        pooled.share.speed_of_another(pooled.places[group] as usize, weight)
    }

    /// The load on each set of CPUs, in weight as it counts at the root.
    fn load(&mut self, sets: usize, groups: &[Group], contenders: &[Contender], speeds: &[f64]) {
        let load = |(contender, &speed): (&Contender, &f64)| {
            let weight = if contender.real_time { REAL_TIME_LOAD } else { contender.weight };
            weight * present(contender.demand, speed)
        };
        self.inside.clear();
        self.inside.resize(groups.len(), (0.0, 0.0));
        for pair in contenders.iter().zip(speeds) {
            self.inside[pair.0.group as usize].0 += load(pair);
        }
        for group in (1..groups.len()).rev().filter(|&group| groups[group].parent as usize != group) {
            if self.inside[group].0 > 0.0 {
                self.inside[groups[group].parent as usize].0 += f64::from(weights::of_group(&groups[group]));
            }
        }
        self.inside[0].1 = 1.0;
        for (at, group) in groups.iter().enumerate().skip(1) {
            let (load, above) = (self.inside[at].0, self.inside[group.parent as usize].1);
            if load > 0.0 {
                self.inside[at].1 = above * f64::from(weights::of_group(group)) / load;
            }
        }
        self.loads.clear();
        self.loads.resize(sets, 0.0);
        for pair in contenders.iter().zip(speeds) {
            let unit = if pair.0.real_time { 1.0 } else { self.inside[pair.0.group as usize].1 };
            self.loads[pair.0.set as usize] += load(pair) * unit;
        }
    }
}

impl Pooled {
    fn divide(
        &mut self,
        cpus: f64,
        groups: &[Group],
        inside: &[(f64, f64)],
        contenders: &[Contender],
        speeds: &mut [f64],
    ) {
        let real_time: f64 = self.each(contenders).filter(|c| c.real_time).map(|c| c.demand).sum();
        let first = real_time.min(cpus * (1.0 - LEFT_BY_REAL_TIME));
        let alone = self.each(contenders).all(|contender| contender.real_time);
        self.place(groups, contenders);
        // A group has in a pool the part of its weight that it has of its load there.
        let mut here = vec![0.0; self.groups.len()];
        self.runners.clear();
        self.speeds.clear();
        for &at in &self.who {
            let (contender, speed) = (&contenders[at as usize], speeds[at as usize]);
            if contender.real_time {
                continue;
            }
            let group = self.places[contender.group as usize] as usize;
            here[group] +=
                contender.weight * present(contender.demand, speed) * inside[contender.group as usize].1;
            self.runners.push(Runner { group, weight: contender.weight, demand: contender.demand });
            self.speeds.push(speed);
        }
        for group in (1..self.groups.len()).rev() {
            here[self.groups[group].parent] += here[group];
        }
        for (group, &place) in
            self.places.iter().enumerate().filter(|&(_, &place)| place != NOWHERE && place != 0)
        {
            // All load in it, as it counts at the root.
            let all = inside[group].0 * inside[group].1;
            let part = if all > 0.0 { (here[place as usize] / all).clamp(0.0, 1.0) } else { 1.0 };
            let sharing = &mut self.groups[place as usize];
            sharing.weight *= part.max(1e-6);
            sharing.quota *= part.max(1e-6);
        }
        self.share.speeds(
            (cpus - first).max(f64::MIN_POSITIVE),
            &self.groups,
            &self.runners,
            &mut self.speeds,
        );
        let most = if alone { cpus } else { first };
        let mut next = self.speeds.iter();
        for &at in &self.who {
            speeds[at as usize] = if contenders[at as usize].real_time {
                // Threads of equal priority; those of different priorities are not told apart.
                (most / real_time).min(1.0)
            } else {
                next.next().copied().unwrap_or(1.0)
            };
        }
    }

    fn each<'a>(&'a self, contenders: &'a [Contender]) -> impl Iterator<Item = &'a Contender> {
        self.who.iter().map(|&at| &contenders[at as usize])
    }

    /// Finds the groups with somebody in them, parents before children.
    fn place(&mut self, groups: &[Group], contenders: &[Contender]) {
        self.places.clear();
        self.places.resize(groups.len(), NOWHERE);
        for &at in &self.who {
            let mut group = contenders[at as usize].group as usize;
            while self.places[group] == NOWHERE {
                self.places[group] = 0;
                group = groups[group].parent as usize;
            }
        }
        self.places[0] = 0;
        self.groups.clear();
        for (at, group) in groups.iter().enumerate() {
            if self.places[at] == NOWHERE {
                continue;
            }
            self.places[at] = self.groups.len() as u32;
            self.groups.push(Sharing {
                parent: self.places[group.parent as usize] as usize,
                weight: f64::from(weights::of_group(group)),
                quota: group.quota_cpus.unwrap_or(f64::INFINITY),
            });
        }
    }
}
