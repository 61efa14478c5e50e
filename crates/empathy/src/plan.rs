//! What the job is held back by: chosen once, from what is allowed here, best first.
//!
//! | means | needs | acts |
//! | --- | --- | --- |
//! | control group | root, or a group that was delegated | on all at once, whatever the job starts; finest |
//! | `SCHED_IDLE` | nothing; to take it back `CAP_SYS_NICE` or `RLIMIT_NICE` | within the job's group or session alone |
//! | autogroup | nothing, down to nice 0 | on a session, where autogroups are switched on |
//! | nice | `CAP_SYS_NICE` or `RLIMIT_NICE` to raise it again | within the job's group or session alone; by steps of a quarter |
//! | freezer | root, or a group that was delegated | on all at once |
//! | stop | nothing | process by process, and the job's parents see it |

use std::fmt;

use crate::levers::autogroup;
use crate::levers::group::Group;
use crate::levers::hierarchy::Purpose;
use crate::levers::scheduling::Scheduling;
use crate::process;
use crate::rights::Raise;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Want {
    /// The job runs on cycles that nobody else wants.
    IdleOnly,
    /// The job is never slowed more than so many times, and takes no more than it needs for that.
    MaxSlowdown(f64),
}

/// What the job's share of the CPUs is set by.
#[derive(Clone, Debug)]
pub enum Share {
    /// The weight of a group of its own.
    Group(Group),
    /// The weight of its session.
    Autogroup {
        /// The best nice value that may be given to it.
        lowest: i32,
    },
    /// The nice values of its threads.
    Nice {
        /// The best that may be given to them.
        lowest: i32,
    },
    /// Nothing: it has its equal share whenever it runs.
    Equal,
}

/// What the job is paused by.
#[derive(Clone, Debug)]
pub enum Pause {
    /// Freezing a group of its own, which may be the one that sets its share.
    Group(Group),
    /// `SIGSTOP` and `SIGCONT`.
    Stop,
}

/// The means.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What sets its share.
    pub share: Share,
    /// Whether its threads get `SCHED_IDLE`.
    pub idle_policy: bool,
    /// Whether it is started in a session of its own.
    pub own_session: bool,
    /// What pauses it.
    pub pause: Pause,
    /// Better means, and why they are not used.
    pub missing: Vec<String>,
}

/// What is allowed here, and what the job is.
#[derive(Clone, Debug)]
pub struct Facts {
    /// A group for the job's share, or what is missing.
    pub share: Result<Group, String>,
    /// A group to freeze, or what is missing.
    pub freezer: Result<Group, String>,
    /// Whether sessions are groups, and that of the job is one.
    pub autogroups: bool,
    /// The priorities that this process may give.
    pub raise: Raise,
    /// How the job's first thread is scheduled.
    pub scheduling: Scheduling,
    /// Whether the job runs already.
    pub running: bool,
    /// Whether it has a session of its own, or may get one: it needs no terminal.
    pub own_session: bool,
}

impl Facts {
    /// Those of a running job, or of one that will be started by this process.
    ///
    /// # Errors
    /// Where it has gone.
    pub fn find(running: Option<i32>) -> Result<Facts, String> {
        let own = std::process::id() as i32;
        let pid = running.unwrap_or(own);
        let gone = || format!("there is no process {pid}");
        let stat = process::stat(pid).ok_or_else(gone)?;
        let share = Group::planned(pid, Purpose::Share);
        let freezer = match &share {
            Ok(group) if group.freezes() => Ok(group.clone()),
            _ => Group::planned(pid, Purpose::Freeze),
        };
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        Ok(Facts {
            share,
            freezer,
            autogroups: autogroup::enabled() && Group::is_outermost(pid),
            raise: Raise::of(pid),
            scheduling: Scheduling::of(pid).map_err(|_| gone())?,
            running: running.is_some(),
            own_session: if running.is_some() { stat.session == pid } else { !has_terminal },
        })
    }
}

impl Plan {
    /// The best that is allowed.
    pub fn choose(want: Want, facts: Facts) -> Plan {
        let mut missing = Vec::new();
        let idle_only = want == Want::IdleOnly;
        // What was set must be taken back from a job that ran before; one that we start may keep it.
        let may_raise = facts.raise.can_put_back(&facts.scheduling);
        let needs_rights =
            || format!("CAP_SYS_NICE or RLIMIT_NICE of {} (`ulimit -e`)", 20 - facts.scheduling.nice.min(0));
        let share = match facts.share {
            Ok(group) => Share::Group(group),
            Err(why) => {
                missing.push(format!("a control group: {why}"));
                if facts.autogroups && (facts.own_session || !facts.running) {
                    Share::Autogroup { lowest: facts.raise.lowest_nice.min(0) }
                } else if idle_only {
                    if facts.autogroups {
                        missing.push("the weight of its session: the job shares it with others".into());
                    }
                    Share::Equal
                } else if may_raise {
                    Share::Nice { lowest: facts.raise.lowest_nice }
                } else {
                    missing.push(format!("nice: raising it again needs {}", needs_rights()));
                    Share::Equal
                }
            }
        };
        // A group's weight does not count for real-time threads.
        let in_group = matches!(share, Share::Group(_)) && facts.scheduling.is_fair();
        let mut idle_policy = idle_only && !(facts.running && in_group);
        if idle_policy && facts.running && !may_raise {
            missing.push(format!(
                "SCHED_IDLE: taking it back from a job that ran before needs {}",
                needs_rights()
            ));
            idle_policy = false;
        }
        let own_session = !facts.running && facts.own_session && matches!(share, Share::Autogroup { .. });
        let pause = match facts.freezer {
            Ok(group) => Pause::Group(group),
            Err(why) => {
                missing.push(format!("the freezer: {why}"));
                Pause::Stop
            }
        };
        Plan { share, idle_policy, own_session, pause, missing }
    }

    /// The groups that must be made.
    pub fn groups(&self) -> Vec<(&Group, Purpose)> {
        let share = if let Share::Group(group) = &self.share { Some(group) } else { None };
        let freezer = match &self.pause {
            Pause::Group(group) if share.is_none_or(|share| share.dir() != group.dir()) => Some(group),
            _ => None,
        };
        let share = share.map(|group| (group, Purpose::Share));
        share.into_iter().chain(freezer.map(|group| (group, Purpose::Freeze))).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.share {
            Share::Group(group) => write!(f, "the weight of control group {}", group.dir().display())?,
            Share::Autogroup { .. } if self.own_session => write!(f, "the weight of a session of its own")?,
            Share::Autogroup { .. } => write!(f, "the weight of its whole session")?,
            Share::Nice { lowest } => write!(f, "nice {lowest} to 19")?,
            Share::Equal if self.idle_policy => {}
            Share::Equal => write!(f, "pauses alone")?,
        }
        if self.idle_policy {
            write!(f, "{}SCHED_IDLE", if matches!(self.share, Share::Equal) { "" } else { ", " })?;
        }
        match &self.pause {
            Pause::Group(group) => write!(f, "; paused by freezing {}", group.dir().display()),
            Pause::Stop => write!(f, "; paused by SIGSTOP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            share: Err("no right to write to /cg".into()),
            freezer: Err("no right to write to /cg".into()),
            autogroups: false,
            raise: Raise { lowest_nice: 20, realtime: 0 },
            scheduling: Scheduling { policy: libc::SCHED_OTHER, realtime: 0, nice: 0 },
            running: false,
            own_session: false,
        }
    }

    const AS_IT_WAS: Raise = Raise { lowest_nice: 0, realtime: 0 };
    const ALL: Raise = Raise { lowest_nice: -20, realtime: 99 };
    const SLOWDOWN: Want = Want::MaxSlowdown(5.0);

    #[test]
    fn without_any_right_there_is_sched_idle_and_stopping() {
        let plan = Plan::choose(Want::IdleOnly, facts());
        assert!(plan.idle_policy && matches!((&plan.share, &plan.pause), (Share::Equal, Pause::Stop)));
        assert_eq!(plan.to_string(), "SCHED_IDLE; paused by SIGSTOP");
        assert_eq!(plan.missing.len(), 2, "{:?}", plan.missing);

        // It could not be taken back from a job that is not ours to start.
        let plan = Plan::choose(Want::IdleOnly, Facts { running: true, ..facts() });
        assert!(!plan.idle_policy);
        assert_eq!(plan.to_string(), "pauses alone; paused by SIGSTOP");
        assert!(plan.missing.iter().any(|missing| missing.contains("CAP_SYS_NICE")), "{:?}", plan.missing);
        let plan = Plan::choose(Want::IdleOnly, Facts { running: true, raise: AS_IT_WAS, ..facts() });
        assert!(plan.idle_policy);
        let scheduling = Scheduling { policy: libc::SCHED_FIFO, realtime: 50, nice: 0 };
        let realtime = |raise| Facts { running: true, raise, scheduling, ..facts() };
        assert!(!Plan::choose(Want::IdleOnly, realtime(AS_IT_WAS)).idle_policy);
        assert!(Plan::choose(Want::IdleOnly, realtime(ALL)).idle_policy);

        let plan = Plan::choose(SLOWDOWN, facts());
        assert!(!plan.idle_policy && matches!(plan.share, Share::Equal));
        assert!(
            plan.missing.iter().any(|missing| missing.contains("raising it again")),
            "{:?}",
            plan.missing
        );
    }

    #[test]
    fn a_session_is_used_where_it_counts_and_where_it_is_the_jobs() {
        let on = Facts { autogroups: true, own_session: true, ..facts() };
        for want in [Want::IdleOnly, SLOWDOWN] {
            let plan = Plan::choose(want, on.clone());
            assert!(plan.own_session && matches!(plan.share, Share::Autogroup { lowest: 0 }));
        }
        // A terminal keeps the job in its session, which is weighed as a whole.
        let plan = Plan::choose(Want::IdleOnly, Facts { own_session: false, ..on.clone() });
        assert!(!plan.own_session && matches!(plan.share, Share::Autogroup { .. }) && plan.idle_policy);
        // But that of a job that runs already belongs to others too.
        let plan = Plan::choose(Want::IdleOnly, Facts { own_session: false, running: true, ..on.clone() });
        assert!(matches!(plan.share, Share::Equal));
        let plan = Plan::choose(SLOWDOWN, Facts { raise: ALL, ..on });
        assert!(matches!(plan.share, Share::Autogroup { lowest: -20 }));
        let plan = Plan::choose(SLOWDOWN, Facts { raise: ALL, ..facts() });
        assert!(matches!(plan.share, Share::Nice { lowest: -20 }));
    }
}
