//! What shares a CPU by weight: tasks, and groups of them. One queue of a CPU and a group.

use plimsoll_cpufutures::weights;

/// Number of an entity among all.
pub type EntityId = usize;

/// A task, or what a group has on one CPU. Times are in nanoseconds, virtual ones in those of a weight of 1,024.
#[derive(Clone, Debug)]
pub struct Entity {
    /// What it counts beside the others in its queue.
    pub weight: f64,
    /// How far it is, in virtual time.
    pub vruntime: f64,
    /// When it is to have had its slice.
    pub deadline: f64,
    /// How far it was behind the others when it went, in virtual time; below zero if it was ahead.
    pub lag: f64,
}

impl Entity {
    /// One that was never in a queue.
    pub fn new(weight: f64) -> Entity {
        Entity { weight, vruntime: 0.0, deadline: 0.0, lag: 0.0 }
    }

    /// A time of its own in virtual time.
    pub fn virtually(&self, ns: f64) -> f64 {
        ns * f64::from(weights::NORMAL) / self.weight
    }
}

/// The ready and the running entities of a group on a CPU.
#[derive(Clone, Debug, Default)]
pub struct EntityQueue {
    /// Which they are, the running one among them.
    pub members: Vec<EntityId>,
    /// How far it was when it was the last to go.
    pub left_at: f64,
}

impl EntityQueue {
    /// The sum of their weights.
    pub fn load(&self, entities: &[Entity]) -> f64 {
        self.members.iter().map(|&id| entities[id].weight).sum()
    }

    /// How far they are on average, by weight: those who are not further are owed time.
    pub fn average(&self, entities: &[Entity]) -> f64 {
        let weights = self.load(entities);
        if weights <= 0.0 {
            return self.left_at;
        }
        // Against the first, so that large numbers do not swallow small differences.
        let base = entities[self.members[0]].vruntime;
        let sum: f64 =
            self.members.iter().map(|&id| entities[id].weight * (entities[id].vruntime - base)).sum();
        base + sum / weights
    }

    /// Lets an entity in, as far behind or ahead as it was when it went, and with a slice of `slice` nanoseconds. A new one has half a slice
    /// to begin with.
    pub fn enter(&mut self, id: EntityId, slice: f64, new: bool, entities: &mut [Entity]) {
        let (average, load) = (self.average(entities), self.load(entities));
        let entity = &mut entities[id];
        // Its coming moves the average towards itself, so it has to be put further off to be as far from it as it was.
        let lag = if load > 0.0 { entity.lag * (load + entity.weight) / load } else { 0.0 };
        entity.vruntime = average - lag;
        let first = if new { 0.5 } else { 1.0 };
        entity.deadline = entity.vruntime + entity.virtually(slice * first);
        self.members.push(id);
    }

    /// Lets an entity go and remembers how far behind or ahead it was, two slices at most.
    pub fn leave(&mut self, id: EntityId, slice: f64, entities: &mut [Entity]) {
        let average = self.average(entities);
        let entity = &mut entities[id];
        let most = entity.virtually(2.0 * slice);
        entity.lag = (average - entity.vruntime).clamp(-most, most);
        self.members.retain(|&member| member != id);
        if self.members.is_empty() {
            self.left_at = average;
        }
    }

    /// Gives a member another weight. What it is owed in real time stays.
    pub fn reweigh(&mut self, id: EntityId, weight: f64, entities: &mut [Entity]) {
        let average = self.average(entities);
        let entity = &mut entities[id];
        let scale = entity.weight / weight;
        let to_go = entity.deadline - entity.vruntime;
        entity.vruntime = average - (average - entity.vruntime) * scale;
        entity.deadline = entity.vruntime + to_go * scale;
        entity.weight = weight;
    }

    /// Of those who are owed time, the one that is to have its slice first.
    pub fn best(&self, entities: &[Entity]) -> Option<EntityId> {
        let average = self.average(entities);
        // Rounding must not leave nobody.
        let least = self.members.iter().map(|&id| entities[id].vruntime).fold(f64::INFINITY, f64::min);
        let owed = |&id: &EntityId| entities[id].vruntime <= average.max(least);
        let first = |a: &EntityId, b: &EntityId| {
            entities[*a].deadline.total_cmp(&entities[*b].deadline).then(a.cmp(b))
        };
        self.members.iter().copied().filter(owed).min_by(first)
    }
}
