//! `--policy NAME[,key=value...]`: the admission table on a command line.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::admission::Admission;
use super::report::Report;
use super::value::{Node, Value};

impl Admission {
    /// Reads `maxqwt,limit=15ms` as the file's `{ policy = "maxqwt", limit = "15ms" }`: the same keys, where a dash
    /// counts as an underscore, and `limit.slow=5ms` is the limit of a class.
    ///
    /// # Errors
    /// All that is wrong with it, beginning with the argument itself.
    pub fn from_args(text: &str) -> Result<Admission, String> {
        let mut report = Report::default();
        let mut parts = text.split(',');
        let mut table = DeTable::new();
        insert(&mut table, "policy", parts.next().unwrap_or(""));
        for part in parts {
            if let Err(error) = add(&mut table, part) {
                report.error(0..0, error);
            }
        }
        let value = Spanned::new(0..0, DeValue::Table(table));
        let admission = Admission::read(Node::new("policy", &value), &mut report);
        let errors: Vec<String> = report.error_messages().collect();
        match admission {
            Some(admission) if errors.is_empty() => Ok(admission),
            _ => Err(format!("policy \"{text}\": {}", errors.join("; "))),
        }
    }
}

fn add<'a>(table: &mut DeTable<'a>, part: &'a str) -> Result<(), String> {
    let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not key=value"))?;
    let (key, class) = match key.split_once('.') {
        Some((key, class)) => (key, Some(class)),
        None => (key, None),
    };
    let key = key.trim().replace('-', "_");
    let fresh = match (class, table.get_mut(key.as_str()).map(Spanned::get_mut)) {
        (None, None) => insert(table, key, value),
        (Some(class), None) => {
            let mut classes = DeTable::new();
            insert(&mut classes, class, value);
            table.insert(spanned(key.into()), spanned(DeValue::Table(classes))).is_none()
        }
        (Some(class), Some(DeValue::Table(classes))) => insert(classes, class, value),
        (_, Some(_)) => false,
    };
    if fresh { Ok(()) } else { Err(format!("`{part}` sets again what is set already; remove one of them")) }
}

/// Whether the key is new.
fn insert<'a>(table: &mut DeTable<'a>, key: impl Into<DeString<'a>>, text: &'a str) -> bool {
    // A number is one, everything else is a string without its quotes.
    let number =
        DeValue::parse(text).ok().filter(|value| value.get_ref().is_integer() || value.get_ref().is_float());
    let value = number.map_or_else(|| DeValue::String(text.trim().into()), Spanned::into_inner);
    table.insert(spanned(key.into()), spanned(value)).is_none()
}

/// An argument has no lines, so places in it are not told.
fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;
    use crate::config::{Mode, Override, Policy, WaitLimit};

    #[test]
    fn every_policy_of_the_contract_reads() {
        let ms = Nanos::from_millis;
        for (text, policy) in [
            ("bouncer", Policy::Bouncer(Override::Never)),
            ("bouncer,allowance=0.1", Policy::Bouncer(Override::Allowance(0.1))),
            ("bouncer,underserved=1", Policy::Bouncer(Override::Underserved(1.0))),
            ("maxql,limit=400", Policy::MaxQl { limit: 400 }),
            ("maxqwt,limit=15ms", Policy::MaxQwt { limit: WaitLimit::All(ms(15)) }),
            ("accept-fraction,max-util=0.8", Policy::AcceptFraction { max_util: 0.8 }),
            ("accept-fraction", Policy::AcceptFraction { max_util: 0.95 }),
            ("codel", Policy::Codel),
            ("aimd", Policy::Aimd),
            ("vegas", Policy::Vegas),
            ("gradient2", Policy::Gradient2),
            ("none", Policy::None),
        ] {
            assert_eq!(Admission::from_args(text), Ok(Admission { policy, mode: Mode::Enforce }));
        }
        let per_class =
            Admission::from_args("maxqwt,mode=shadow,limit.slow-ones=5ms,limit.default=20ms").unwrap();
        assert_eq!(per_class.mode, Mode::Shadow);
        let Policy::MaxQwt { limit: WaitLimit::PerClass(mut limits) } = per_class.policy else {
            panic!("{:?}", per_class.policy)
        };
        limits.sort();
        assert_eq!(limits, [("default".to_owned(), ms(20)), ("slow-ones".to_owned(), ms(5))]);
    }

    #[test]
    fn errors_name_the_argument() {
        for (text, part) in [
            ("", "unknown value \"\""),
            ("bouncr", "did you mean `bouncer`?"),
            ("bouncer,alowance=0.1", "did you mean `allowance`?"),
            ("bouncer,allowance=1.5", "from 0.0 to 1.0"),
            ("bouncer,allowance", "`allowance` is not key=value"),
            ("bouncer,allowance=0.1,underserved=1", "exclude each other"),
            ("bouncer,limit=3", "write policy = \"maxql\" or \"maxqwt\""),
            ("maxql", "limit = 400"),
            ("maxql,limit=15ms", "limit = 400"),
            ("maxql,limit=400,limit=400", "set already"),
            ("maxqwt,limit=15ms,limit.slow=5ms", "set already"),
            ("maxqwt,limit.slow=5 parsec", "duration"),
            ("maxql,policy=maxqwt,limit=4", "set already"),
        ] {
            let error = Admission::from_args(text).unwrap_err();
            assert!(error.starts_with(&format!("policy \"{text}\": ")) && error.contains(part), "{error}");
        }
    }
}
