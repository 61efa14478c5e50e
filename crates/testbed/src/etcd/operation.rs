//! What is asked of an etcd, as a line of text: `range item-?1`, `range item- prefix sort=value limit=10`, `put item-?1 text`,
//! `fill item- 100000 size=200`. `?1` and `?2` stand for parameters.

use std::str::FromStr;

use plimsoll_sentry::etcd::message::RangeRequest;

/// One thing that is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Reads. The keys have their parameters still to be put in.
    Range(RangeRequest, bool),
    /// Writes a key.
    Put(String, String),
    /// Makes so many keys with this in front of their number, with values of so many bytes.
    Fill {
        /// What their names begin with.
        prefix: String,
        /// How many.
        keys: u64,
        /// Bytes of each value.
        size: usize,
    },
}

const FORMS: &str = "write `range KEY [prefix] [sort=key|version|create|mod|value] [descend] [limit=N] [count] [keys] [serializable]`, `put KEY VALUE` or \
     `fill PREFIX KEYS [size=BYTES]`";

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Operation, String> {
        let wrong = |why: String| format!("\"{text}\": {why}; {FORMS}");
        let (what, rest) =
            text.trim().split_once(' ').ok_or_else(|| wrong("something is missing".to_owned()))?;
        let mut words = rest.split_whitespace();
        let mut word = |what: &str| words.next().ok_or_else(|| wrong(format!("there is no {what}")));
        let operation = match what {
            "put" => Operation::Put(word("key")?.to_owned(), word("value")?.to_owned()),
            "fill" => {
                let (prefix, keys) = (word("prefix")?.to_owned(), word("number of keys")?);
                let keys = keys.parse().map_err(|_| wrong(format!("`{keys}` is no number of keys")))?;
                let size = match words.next() {
                    None => 100,
                    Some(size) => size
                        .strip_prefix("size=")
                        .and_then(|size| size.parse().ok())
                        .ok_or_else(|| wrong(format!("`{size}` is no size")))?,
                };
                Operation::Fill { prefix, keys, size }
            }
            "range" => {
                let mut range = RangeRequest { key: word("key")?.into(), ..RangeRequest::default() };
                let mut prefix = false;
                for option in words.by_ref() {
                    match option.split_once('=').unwrap_or((option, "")) {
                        ("prefix", "") => prefix = true,
                        ("descend", "") => range.sort_order = 2,
                        ("count", "") => range.count_only = true,
                        ("keys", "") => range.keys_only = true,
                        ("serializable", "") => range.serializable = true,
                        ("limit", limit) => {
                            range.limit =
                                limit.parse().map_err(|_| wrong(format!("`{option}` is no limit")))?;
                        }
                        ("sort", by) => {
                            let known = ["key", "version", "create", "mod", "value"];
                            let target = known.iter().position(|&known| known == by);
                            range.sort_target =
                                target.ok_or_else(|| wrong(format!("`{option}` is no order")))? as i32;
                            range.sort_order = range.sort_order.max(1);
                        }
                        _ => return Err(wrong(format!("`{option}` is unknown"))),
                    }
                }
                Operation::Range(range, prefix)
            }
            what => return Err(wrong(format!("`{what}` is unknown"))),
        };
        match words.next() {
            Some(word) => Err(wrong(format!("`{word}` is too much"))),
            None => Ok(operation),
        }
    }
}

/// The text with its parameters.
pub(super) fn with(text: &str, parameters: &[i64]) -> String {
    let number = |text: String, (i, parameter): (usize, &i64)| {
        text.replace(&format!("?{}", i + 1), &parameter.to_string())
    };
    parameters.iter().enumerate().fold(text.to_owned(), number)
}

/// The range with its parameters, and its end.
pub(super) fn range(range: &RangeRequest, prefix: bool, parameters: &[i64]) -> RangeRequest {
    let key = with(&String::from_utf8_lossy(&range.key), parameters).into_bytes();
    let range_end = if prefix { after(&key) } else { Vec::new() };
    RangeRequest { key, range_end, ..range.clone() }
}

/// The first key that does not begin so. One zero byte stands for no such key.
fn after(prefix: &[u8]) -> Vec<u8> {
    let Some(last) = prefix.iter().rposition(|&byte| byte < 0xff) else { return vec![0] };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_read_as_meant() {
        let Ok(Operation::Range(asked, true)) = "range item-?1 prefix sort=value limit=10 descend".parse()
        else {
            panic!("it is a range");
        };
        assert_eq!((asked.limit, asked.sort_order, asked.sort_target), (10, 2, 4));
        let asked = range(&asked, true, &[7]);
        assert_eq!((asked.key, asked.range_end), (b"item-7".to_vec(), b"item-8".to_vec()));
        assert_eq!("put a-?2 x".parse(), Ok(Operation::Put("a-?2".to_owned(), "x".to_owned())));
        assert_eq!(with("a-?2-?1", &[1, 2]), "a-2-1");
        let fill = Operation::Fill { prefix: "a-".to_owned(), keys: 9, size: 3 };
        assert_eq!("fill a- 9 size=3".parse(), Ok(fill));
        assert_eq!((after(b"a\xff"), after(b"\xff")), (b"b".to_vec(), vec![0]));
    }

    #[test]
    fn what_is_no_operation_says_so() {
        for (text, why) in [
            ("", "something is missing"),
            ("get a", "`get` is unknown"),
            ("range a sort=size", "is no order"),
            ("range a limit=many", "is no limit"),
            ("range a b", "`b` is unknown"),
            ("put a", "there is no value"),
            ("put a b c", "`c` is too much"),
            ("fill a many", "is no number"),
            ("fill a 1 2", "is no size"),
        ] {
            let error = text.parse::<Operation>().unwrap_err();
            assert!(error.contains(why) && error.contains("write `range"), "{error}");
        }
    }
}
