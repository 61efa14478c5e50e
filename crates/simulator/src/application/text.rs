//! A case as a TOML file says it: what is written there, checked, and made into a [`Case`].

use std::collections::BTreeMap;

use plimsoll_core::Nanos;
use serde::Deserialize;

use super::case::{Case, Class, Comes, Is, Miss, ResourceSpec};
use super::steps::{Names, Step};

/// Most resources, classes, and tasks that come at one time.
const MAX_RESOURCES: usize = 64;
const MAX_CLASSES: usize = 64;
const MAX_COUNT: u32 = 4_096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseText {
    case: Header,
    /// An array, so that the order is the file's.
    resource: Vec<ResourceText>,
    class: Vec<ClassText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    id: String,
    title: String,
    length: Duration,
    warmup: Duration,
    connections: u32,
    #[serde(default)]
    backlog: u32,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum ResourceText {
    Cpu { name: String, cores: f64 },
    Io { name: String, bytes_per_s: Size, stream_bytes_per_s: Size },
    Lock { name: String },
    Queue { name: String, permits: u32 },
    Memory { name: String, pages: u32, miss: MissText },
    Heap { name: String, units: u64, pause: Duration, pause_per_unit: Duration, cpu: String },
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum MissText {
    Read {
        device: String,
        bytes: Size,
        #[serde(default)]
        evict: Size,
    },
    Compute {
        cpu: String,
        work: Duration,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: String,
    /// Requests a second.
    rate: Option<f64>,
    /// From when to when there is such a rate.
    during: Option<[Duration; 2]>,
    #[serde(default)]
    at: Vec<Duration>,
    count: Option<u32>,
    #[serde(default)]
    trigger: bool,
    #[serde(default)]
    background: bool,
    #[serde(default = "yes")]
    cancellable: bool,
    #[serde(default)]
    rerunnable: bool,
    deadline: Option<Duration>,
    #[serde(default)]
    cancel_after: Duration,
    steps: Vec<Step>,
    #[serde(default)]
    undo: Vec<Step>,
}

fn yes() -> bool {
    true
}

/// A duration such as "18ms".
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(try_from = "String")]
pub struct Duration(pub Nanos);

impl TryFrom<String> for Duration {
    type Error = String;
    fn try_from(text: String) -> Result<Duration, String> {
        text.parse().map(Duration)
    }
}

/// Bytes, such as "16KiB".
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(try_from = "String")]
pub struct Size(pub f64);

impl TryFrom<String> for Size {
    type Error = String;
    fn try_from(text: String) -> Result<Size, String> {
        let wrong =
            || format!("`{text}` is not a size; write a number and a unit, as in \"16KiB\" or \"100B\"");
        let split = text.find(char::is_alphabetic).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(split);
        let unit = match unit {
            "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        if number.is_finite() && (0.0..=1e15).contains(&(number * unit)) {
            return Ok(Size(number * unit));
        }
        Err(format!("`{text}` is out of range; a size is between 0 and a petabyte"))
    }
}

impl ResourceText {
    fn name(&self) -> &str {
        match self {
            ResourceText::Cpu { name, .. }
            | ResourceText::Io { name, .. }
            | ResourceText::Lock { name }
            | ResourceText::Queue { name, .. }
            | ResourceText::Memory { name, .. }
            | ResourceText::Heap { name, .. } => name,
        }
    }

    fn read(&self, names: &Names<'_>) -> Result<Is, String> {
        let some = |what: &str, value: f64| {
            let wrong = || format!("{what} is {value}; write a number above 0");
            if value > 0.0 && value.is_finite() { Ok(value) } else { Err(wrong()) }
        };
        Ok(match self {
            ResourceText::Cpu { cores, .. } => Is::Cpu { cores: some("cores", *cores)? },
            ResourceText::Io { bytes_per_s, stream_bytes_per_s, .. } => Is::Device {
                bytes_per_s: some("bytes_per_s", bytes_per_s.0)?,
                stream_bytes_per_s: some("stream_bytes_per_s", stream_bytes_per_s.0)?,
            },
            ResourceText::Lock { .. } => Is::Lock,
            ResourceText::Queue { permits, .. } => {
                some("permits", f64::from(*permits))?;
                Is::Pool { permits: *permits }
            }
            ResourceText::Memory { pages, miss, .. } => {
                some("pages", f64::from(*pages))?;
                let miss = match miss {
                    MissText::Read { device, bytes, evict } => {
                        Miss::Read { device: names.device(device)?, bytes: bytes.0, evict: evict.0 }
                    }
                    MissText::Compute { cpu, work } => {
                        Miss::Compute { cpu: names.cpu(cpu)?, work: work.0.0 as f64 }
                    }
                };
                Is::Pages { pages: *pages, miss }
            }
            ResourceText::Heap { units, pause, pause_per_unit, cpu, .. } => {
                some("units", *units as f64)?;
                let cpu = names.cpu(cpu)?;
                Is::Heap { units: *units, pause: pause.0, pause_per_unit: pause_per_unit.0, cpu }
            }
        })
    }
}

impl ClassText {
    fn read(self, names: &Names<'_>) -> Result<Class, String> {
        let comes = match (self.rate, self.at.is_empty()) {
            (Some(per_s), true) if per_s > 0.0 && per_s <= 1e6 => {
                let all = [Duration(Nanos::ZERO), Duration(Nanos::MAX)];
                let [Duration(from), Duration(until)] = self.during.unwrap_or(all);
                if from >= until {
                    return Err("during ends before it begins; write [from, until]".to_owned());
                }
                Comes::Rate { per_s, from, until }
            }
            (Some(_), true) => {
                return Err("rate is out of range; write requests a second, up to 1e6".to_owned());
            }
            (None, false) => {
                let times: Vec<Nanos> = self.at.iter().map(|at| at.0).collect();
                if !times.is_sorted() {
                    return Err("the times in at do not rise".to_owned());
                }
                let count = self.count.unwrap_or(1);
                if !(1..=MAX_COUNT).contains(&count) {
                    return Err(format!("count is {count}; write a number between 1 and {MAX_COUNT}"));
                }
                Comes::At { times, count }
            }
            _ => return Err("write either rate or at".to_owned()),
        };
        Ok(Class {
            name: self.name,
            comes,
            trigger: self.trigger,
            background: self.background,
            cancellable: self.cancellable,
            rerunnable: self.rerunnable,
            deadline: self.deadline.map(|deadline| deadline.0),
            cancel_after: self.cancel_after.0,
            program: names.program(&self.steps, &self.undo)?,
        })
    }
}

impl Case {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong, where, and what to write instead.
    pub fn parse(text: &str) -> Result<Case, String> {
        let CaseText { case, resource, class } = toml::from_str(text).map_err(|error| error.to_string())?;
        if !(1..=MAX_RESOURCES).contains(&resource.len()) || !(1..=MAX_CLASSES).contains(&class.len()) {
            return Err(format!("a case has 1 to {MAX_RESOURCES} resources and 1 to {MAX_CLASSES} classes"));
        }
        let mut places = BTreeMap::new();
        for (i, each) in resource.iter().enumerate() {
            if places.insert(each.name(), (i as u32, each.is_what())).is_some() {
                return Err(format!(
                    "resource `{}` is there twice; give each a name of its own",
                    each.name()
                ));
            }
        }
        let names = Names { places };
        let spec = |each: &ResourceText| {
            let is = each.read(&names).map_err(|error| format!("resource `{}`: {error}", each.name()))?;
            Ok(ResourceSpec { name: each.name().to_owned(), is })
        };
        let resources = resource.iter().map(spec).collect::<Result<_, String>>()?;
        let read = |class: ClassText| {
            let name = class.name.clone();
            class.read(&names).map_err(|error| format!("class `{name}`: {error}"))
        };
        let classes = class.into_iter().map(read).collect::<Result<Vec<_>, String>>()?;
        for (i, class) in classes.iter().enumerate() {
            if classes[..i].iter().any(|other| other.name == class.name) {
                return Err(format!("class `{}` is there twice; give each a name of its own", class.name));
            }
        }
        if case.warmup.0 >= case.length.0 || case.connections == 0 {
            return Err("a case has a warmup shorter than its length, and a connection at least".to_owned());
        }
        Ok(Case {
            id: case.id,
            title: case.title,
            length: case.length.0,
            warmup: case.warmup.0,
            connections: case.connections,
            backlog: case.backlog,
            resources,
            classes,
        })
    }
}

/// What can be done with a resource, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Worked on.
    Cpu,
    /// Read and written.
    Device,
    /// Taken and given back.
    Lock,
    /// Entered and left.
    Pool,
    /// Touched.
    Pages,
    /// Allocated.
    Heap,
}

impl ResourceText {
    fn is_what(&self) -> What {
        match self {
            ResourceText::Cpu { .. } => What::Cpu,
            ResourceText::Io { .. } => What::Device,
            ResourceText::Lock { .. } => What::Lock,
            ResourceText::Queue { .. } => What::Pool,
            ResourceText::Memory { .. } => What::Pages,
            ResourceText::Heap { .. } => What::Heap,
        }
    }
}
