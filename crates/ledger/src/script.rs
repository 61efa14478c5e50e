//! What an application does, a step a line: the scripts of the test vectors, read and played.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use crate::layout::{BACKGROUND, Kind, Shape};
use crate::writer::{Account, Begin, Create, TaskRef, Writer};

/// A step of a script.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "`sdk/vectors/README.md` says what they mean")]
pub enum Step {
    Ledger { app: String, shape: Shape, pid: u64, pid_started: u64, created_ns: u64 },
    Now(u64),
    Clock(u64),
    Exact(bool),
    Beat(u64),
    Resource { kind: Kind, capacity: u64, name: String },
    Task { task: String, key: u64, flags: u32, tid: u32, deadline_ns: u64, label: String },
    Progress { task: String, done: u64, total: u64 },
    Wait { task: String, resource: String },
    Unwait { task: String, resource: String },
    Get { task: String, resource: String, n: u64 },
    Free { task: String, resource: String, n: u64 },
    Slow { task: String, resource: String, n: u64, delay_ns: u64 },
    End { task: String, lane: u32, cancelled: bool },
}

/// The words of a line, from its first on.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        if word.is_empty() { Err("a word is missing".to_owned()) } else { Ok(word) }
    }

    fn text(&mut self) -> String {
        std::mem::take(&mut self.0).to_owned()
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("{word} is no number, or too large"))
    }

    fn name(&mut self) -> Result<String, String> {
        self.word().map(str::to_owned)
    }
}

/// The steps of a script, each with its line; or which line is wrong, and why.
pub fn parse(script: &str) -> Result<Vec<(usize, Step)>, String> {
    let lines = script.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(i, line)| {
            let mut words = Words(line);
            let step = step(&mut words).and_then(|step| match words.0 {
                "" => Ok(step),
                more => Err(format!("{more} is too much")),
            });
            step.map(|step| (i + 1, step)).map_err(|why| format!("line {}: {why}", i + 1))
        })
        .collect()
}

fn step(words: &mut Words<'_>) -> Result<Step, String> {
    Ok(match words.word()? {
        "ledger" => Step::Ledger {
            app: words.name()?,
            shape: Shape {
                resources: words.number()?,
                lanes: words.number()?,
                tasks: words.number()?,
                accounts: words.number()?,
            },
            pid: words.number()?,
            pid_started: words.number()?,
            created_ns: words.number()?,
        },
        "now" => Step::Now(words.number()?),
        "clock" => Step::Clock(words.number()?),
        "exact" => Step::Exact(words.number::<u8>()? == 1),
        "beat" => Step::Beat(words.number()?),
        "resource" => {
            Step::Resource { kind: words.word()?.parse()?, capacity: words.number()?, name: words.text() }
        }
        "task" => Step::Task {
            task: words.name()?,
            key: words.number()?,
            flags: words.number()?,
            tid: words.number()?,
            deadline_ns: words.number()?,
            label: words.text(),
        },
        "progress" => Step::Progress { task: words.name()?, done: words.number()?, total: words.number()? },
        "wait" => Step::Wait { task: words.name()?, resource: words.name()? },
        "unwait" => Step::Unwait { task: words.name()?, resource: words.name()? },
        "get" => Step::Get { task: words.name()?, resource: words.name()?, n: words.number()? },
        "free" => Step::Free { task: words.name()?, resource: words.name()?, n: words.number()? },
        "slow" => Step::Slow {
            task: words.name()?,
            resource: words.name()?,
            n: words.number()?,
            delay_ns: words.number()?,
        },
        "end" => Step::End {
            task: words.name()?,
            lane: words.number()?,
            cancelled: match words.text().as_str() {
                "" => false,
                "cancelled" => true,
                other => return Err(format!("{other} is not `cancelled`")),
            },
        },
        other => return Err(format!("{other} is no step")),
    })
}

/// Plays a script into a ledger in this directory, which it leaves there.
pub fn play(script: &str, directory: &Path) -> Result<Writer, String> {
    let steps = parse(script)?;
    let Some(((_, Step::Ledger { app, shape, pid, pid_started, created_ns }), steps)) = steps.split_first()
    else {
        return Err("the first step is not `ledger`".to_owned());
    };
    let (shape, pid, pid_started, created_ns) = (*shape, *pid, *pid_started, *created_ns);
    let create = Create { directory, app, shape, pid, pid_started, created_ns, mode: 0o600 };
    let writer = Writer::create(&create).map_err(|why| why.to_string())?;
    let mut player =
        Player { writer: &writer, now_ns: 0, resources: BTreeMap::new(), tasks: BTreeMap::new() };
    for (line, step) in steps {
        player.play(step).map_err(|why| format!("line {line}: {why}"))?;
    }
    Ok(writer)
}

struct Player<'w> {
    writer: &'w Writer,
    now_ns: u64,
    resources: BTreeMap<&'w str, Option<u16>>,
    tasks: BTreeMap<&'w str, Played<'w>>,
}

struct Played<'w> {
    task: Option<TaskRef>,
    flags: u32,
    started_ns: u64,
    accounts: BTreeMap<u16, Option<Account<'w>>>,
}

impl<'w> Player<'w> {
    fn play<'s: 'w>(&mut self, step: &'s Step) -> Result<(), String> {
        let (writer, exact) = (self.writer, self.now_ns);
        let now = || writer.stamp(|| exact);
        match step {
            Step::Ledger { .. } => return Err("a second ledger".to_owned()),
            Step::Now(ns) => self.now_ns = *ns,
            Step::Clock(ns) => writer.tick(*ns),
            Step::Exact(exact) => writer.set_flags(u64::from(*exact)),
            Step::Beat(ns) => writer.beat(*ns),
            Step::Resource { kind, capacity, name } => {
                self.resources.insert(name, writer.resource(*kind, *capacity, name));
            }
            Step::Task { task, key, flags, tid, deadline_ns, label } => {
                let (key, flags, tid, deadline_ns, started_ns) =
                    (*key, *flags, *tid, *deadline_ns, self.now_ns);
                let began = writer.begin(&Begin { key, flags, tid, started_ns, deadline_ns, label });
                let played = Played { task: began, flags, started_ns, accounts: BTreeMap::new() };
                if self.tasks.insert(task, played).is_some() {
                    return Err(format!("{task} lives already"));
                }
            }
            Step::Progress { task, done, total } => {
                if let Some(task) = self.task(task)?.task {
                    writer.progress(task, *done, *total);
                }
            }
            Step::Wait { task, resource } => self.at(task, resource, |account| account.wait(now))?,
            Step::Unwait { task, resource } => self.at(task, resource, |account| account.unwait(now))?,
            Step::Get { task, resource, n } => self.at(task, resource, |account| account.get(*n, now))?,
            Step::Free { task, resource, n } => self.at(task, resource, |account| account.free(*n, now))?,
            Step::Slow { task, resource, n, delay_ns } => {
                self.at(task, resource, |account| account.slow(*n, *delay_ns))?;
            }
            Step::End { task, lane, cancelled } => {
                let ended = self.tasks.remove(task.as_str()).ok_or_else(|| format!("no task {task}"))?;
                for account in ended.accounts.into_values().flatten() {
                    account.end(now());
                }
                if let Some(task) = ended.task {
                    writer.end(task);
                }
                if ended.flags & BACKGROUND == 0 {
                    writer.complete(*lane, self.now_ns.saturating_sub(ended.started_ns), *cancelled);
                }
            }
        }
        Ok(())
    }

    fn task(&mut self, task: &str) -> Result<&mut Played<'w>, String> {
        self.tasks.get_mut(task).ok_or_else(|| format!("no task {task}"))
    }

    /// Does something at a task's account of a resource, where there is one to be had.
    fn at(&mut self, task: &str, resource: &str, event: impl FnOnce(Account<'w>)) -> Result<(), String> {
        let writer = self.writer;
        let index = *self.resources.get(resource).ok_or_else(|| format!("no resource {resource}"))?;
        let played = self.task(task)?;
        if let (Some(task), Some(index)) = (played.task, index)
            && let Some(account) = played.accounts.entry(index).or_insert_with(|| writer.account(task, index))
        {
            event(*account);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_line_is_wrong() {
        let wrong = |script: &str| play(script, tempfile::tempdir().unwrap().path()).err().unwrap();
        let first = "ledger a 1 1 1 1 1 1 1\n";
        assert_eq!(wrong("now 1"), "the first step is not `ledger`");
        assert_eq!(wrong(&format!("{first}nap 1")), "line 2: nap is no step");
        assert_eq!(wrong(&format!("{first}# well\nnow")), "line 3: a word is missing");
        assert_eq!(wrong(&format!("{first}now x")), "line 2: x is no number, or too large");
        assert_eq!(wrong(&format!("{first}now 1 2")), "line 2: 2 is too much");
        assert_eq!(
            wrong(&format!("{first}resource BOX 1 b")),
            "line 2: BOX is no kind of resource: LOCK, MEMORY, QUEUE, CPU or IO"
        );
        assert_eq!(wrong(&format!("{first}end t 0")), "line 2: no task t");
        assert!(wrong("ledger a 0 1 1 1 1 1 1").contains("0 resources"));
        assert!(wrong("ledger a/b 1 1 1 1 1 1 1").contains("a/b"));
    }
}
