//! The time of scenes of a server.

use super::stamp::Stamp;

/// The server's time as the scene's: never back, and without the steps of the server's clock.
#[derive(Debug, Default)]
pub struct ServerClock {
    /// The server's time, the scene's, and this host's, when they were last set side by side.
    base: Option<(Stamp, u64, u64)>,
    last: u64,
}

impl ServerClock {
    /// The scene's time when the server says `server` and this host's monotonic clock `local_ns`.
    pub fn at(&mut self, server: Stamp, local_ns: u64) -> u64 {
        const STEP_NS: u64 = 1_000_000_000;
        let (base, scene, local) = *self.base.get_or_insert((server, local_ns, local_ns));
        let (passed, here) = (server.since_ns(base), local_ns.saturating_sub(local));
        let now = match passed.abs_diff(here) > STEP_NS {
            true => {
                let now = scene + here;
                self.base = Some((server, now, local_ns));
                now
            }
            false => scene + passed,
        };
        self.last = now.max(self.last + 1);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenes_time_follows_the_servers_but_not_its_steps() {
        let mut clock = ServerClock::default();
        let second = 1_000_000;
        assert_eq!(clock.at(Stamp(5 * second), 10_000_000_000), 10_000_000_000);
        assert_eq!(clock.at(Stamp(6 * second), 11_000_500_000), 11_000_000_000);
        // Set back by an hour.
        assert_eq!(clock.at(Stamp(-3_600 * second), 12_000_000_000), 12_000_000_000);
        assert_eq!(clock.at(Stamp(-3_599 * second), 13_000_000_000), 13_000_000_000);
        assert_eq!(clock.at(Stamp(-3_599 * second), 13_000_000_000), 13_000_000_001, "never the same twice");
    }
}
