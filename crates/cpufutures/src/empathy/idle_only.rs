//! Only on cycles that nobody wants (section 5.2): pauses the job when others are slowed by it nevertheless.
//!
//! What the kernel has, an idle group or `SCHED_IDLE`, mostly suffices, and a paused job loses cycles that nobody else wants. That
//! others wait is no reason to pause it: they wait for each other, too. What they lose to it is what they want and do not get where
//! they want all that there is. So the job is paused only if, in the last tick, others could have used all CPUs and lacked what it ran,
//! and over the last second they got less than they desire. It is let go on as soon as a CPU is idle without it, and otherwise by the minimal
//! interference mode: at first after an eighth of a second, then ever more rarely, up to a second.

use plimsoll_core::Nanos;

use super::Seen;

/// The part of what others get that the job may take from them: the least interference that counts.
const HARM: f64 = 0.01;
/// And what it must be at least, in milliseconds a second: less cannot be told from chance.
const LEAST_HARM_MS_PER_S: f64 = 5.0;
/// What is desired and got is about the last second.
const MEMORY: Nanos = Nanos::from_secs(1);
/// Others want all CPUs where they could have used this part of them: ticks do not end when counters are read.
const ALL: f64 = 0.95;
/// How long a job is paused for the first time,
const FIRST_PAUSE: Nanos = Nanos::from_millis(125);
/// and at most.
const LONGEST_PAUSE: Nanos = Nanos::from_secs(1);

/// The controller.
#[derive(Clone, Debug)]
pub struct IdleOnly {
    pause: Nanos,
    /// When the job is to go on, while it is paused; when it did, while it runs.
    at: Nanos,
    running: bool,
    /// When it was last seen to be paused.
    paused_at: Option<Nanos>,
}

impl Default for IdleOnly {
    /// The job runs from now on.
    fn default() -> IdleOnly {
        IdleOnly { pause: Nanos::ZERO, at: Nanos::ZERO, running: true, paused_at: None }
    }
}

impl IdleOnly {
    /// Whether the job is to run until the next look.
    pub fn runs(&mut self, now: Nanos, seen: &Seen) -> bool {
        if seen.length == Nanos::ZERO {
            return true;
        }
        let on_trial = self.paused_at.is_some_and(|at| now.since(at) < MEMORY);
        if seen.paused {
            self.paused_at = Some(now);
        }
        if !self.running {
            // Idle cycles are nobody else's.
            if now >= self.at || (seen.paused && !others_want_all(seen)) {
                (self.running, self.at) = (true, now);
            }
        } else if does_harm(seen, on_trial) {
            self.pause = Nanos(self.pause.0 * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            (self.running, self.at) = (false, now + self.pause);
        } else if now.since(self.at) >= LONGEST_PAUSE {
            self.pause = Nanos::ZERO; // it went well for long enough
        }
        self.running
    }
}

/// Whether the others could have used all CPUs since the last look.
fn others_want_all(seen: &Seen) -> bool {
    (seen.others_ran + seen.others_waited).0 as f64 * 1e3 >= ALL * seen.cpus_ms_per_s * seen.length.0 as f64
}

/// Whether the job takes more from others than can be borne. While it is only let go on for a trial, the last second is still one in
/// which it was paused.
fn does_harm(seen: &Seen, on_trial: bool) -> bool {
    let per_s = |time: Nanos| time.0 as f64 * 1e3 / seen.length.0 as f64;
    let bearable = (HARM * per_s(seen.others_ran)).max(LEAST_HARM_MS_PER_S);
    // It can have taken no more than it had, nor more than others lacked.
    let lately = per_s(seen.job_ran).min(per_s(seen.others_waited));
    let lacked = seen.others_desired_ms_per_s - seen.others_actual_ms_per_s;
    let taken = seen.job_actual_ms_per_s.min(lacked);
    others_want_all(seen) && lately > bearable && (on_trial || taken > bearable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Nanos::from_millis(100);

    /// One CPU, on which others want `wanted` milliseconds of a tick and get all but `taken` of that, and the job has what is left. They
    /// wait for each other for `waited` besides.
    fn seen(paused: bool, wanted: u64, taken: u64, waited: u64) -> Seen {
        let taken = if paused { 0 } else { taken };
        let (others, job) = (wanted - taken, if paused { 0 } else { 100 - wanted + taken });
        Seen {
            length: TICK,
            job_ran: Nanos::from_millis(job),
            others_ran: Nanos::from_millis(others),
            others_waited: Nanos::from_millis(waited + taken),
            cpus_ms_per_s: 1e3,
            job_actual_ms_per_s: 10.0 * job as f64,
            others_desired_ms_per_s: 10.0 * wanted as f64,
            others_actual_ms_per_s: 10.0 * others as f64,
            paused,
            ..Seen::default()
        }
    }

    /// The ticks in which the job ran.
    fn ran(ticks: u64, mut look: impl FnMut(u64, bool) -> Seen) -> Vec<u64> {
        let mut control = IdleOnly::default();
        let mut runs = true;
        (0..ticks)
            .filter(|&tick| {
                let before = runs;
                runs = control.runs(Nanos(TICK.0 * (tick + 1)), &look(tick, !before));
                before
            })
            .collect()
    }

    #[test]
    fn a_job_that_harms_nobody_is_never_paused() {
        // Others wait for each other, but leave half of the CPU; or want all of it, and the job takes next to nothing.
        assert_eq!(ran(100, |_, paused| seen(paused, 50, 0, 30)).len(), 100);
        assert_eq!(ran(100, |_, paused| seen(paused, 100, 0, 300)).len(), 100);
        assert_eq!(ran(100, |_, paused| seen(paused, 0, 0, 0)).len(), 100);
    }

    #[test]
    fn one_that_does_is_paused_and_tried_ever_more_rarely() {
        let ran = ran(200, |_, paused| seen(paused, 100, 5, 300));
        assert!(ran.len() < 25 && ran.len() > 15, "{ran:?}");
        let last = ran.windows(2).last().unwrap();
        assert!((10..=12).contains(&(last[1] - last[0])), "once a second in the end: {ran:?}");
    }

    #[test]
    fn it_goes_on_as_soon_as_a_cpu_is_idle() {
        let ran = ran(200, |tick, paused| match tick / 50 % 2 {
            0 => seen(paused, 100, 5, 300),
            _ => seen(paused, 40, 0, 10),
        });
        for light in [50, 150] {
            let late = ran.iter().filter(|&&tick| (light..light + 50).contains(&tick)).count();
            assert!(late >= 48, "{late} from {light} on: {ran:?}");
        }
        assert!(ran.iter().filter(|&&tick| tick < 50).count() < 12, "{ran:?}");
    }
}
