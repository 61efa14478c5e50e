//! One value of a file: how it is read, what it is called in the docs, and its JSON Schema.

use std::fmt::Display;

use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{Report, Span};
use super::table::Field;

/// Most entries of one list.
pub const MAX_LIST: usize = 1024;

/// A value of the document together with the key it was written under.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// The key; for an element of a list, the list's.
    pub key: &'a str,
    /// The value and its place.
    pub value: &'a Spanned<DeValue<'a>>,
    /// What one might write, as TOML; empty where there is no better example than the type's.
    pub example: &'a str,
}

impl<'a> Node<'a> {
    /// Where the value stands.
    pub fn span(&self) -> Span {
        self.value.span()
    }

    /// The value under a path of keys, or what comes nearest to it.
    pub fn find(&self, path: &[&str]) -> &'a Spanned<DeValue<'a>> {
        let step = |value: &'a Spanned<DeValue<'a>>, key: &&str| value.get_ref().get(*key).ok_or(value);
        path.iter().try_fold(self.value, step).unwrap_or_else(|nearest| nearest)
    }

    /// Where the value under a path of keys stands, or what comes nearest to it.
    pub fn at(&self, path: &[&str]) -> Span {
        self.find(path).span()
    }

    /// Reports that the value is wrong: why, and what to write instead.
    pub fn fail<T>(&self, report: &mut Report, message: impl Display) -> Option<T> {
        report.error(self.span(), format!("`{}`: {message}", self.key));
        None
    }

    /// The table, or an error that names what was wanted.
    pub fn table<T: Value>(&self, report: &mut Report) -> Option<&'a DeTable<'a>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.mismatch::<T>(report);
                None
            }
        }
    }

    /// Another value of the same key, for example an element of its list.
    pub fn with(&self, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node { value, ..*self }
    }

    /// Reports that the value is of the wrong type.
    pub fn mismatch<T: Value>(&self, report: &mut Report) -> Option<T> {
        let wanted = T::kind();
        let found = match self.value.get_ref() {
            DeValue::Integer(n) => format!("the number {n}"),
            DeValue::Float(n) => format!("the number {n}"),
            DeValue::Boolean(b) => format!("{b}"),
            DeValue::Array(_) => "a list".to_owned(),
            other => format!("a {}", other.type_str()),
        };
        let example = if self.example.is_empty() { T::EXAMPLE } else { self.example };
        let key = self.key;
        let hint =
            if example.is_empty() { String::new() } else { format!("; write for example {key} = {example}") };
        self.fail(report, format!("{found} is not {wanted}{hint}"))
    }
}

/// How a Rust type is written in a file.
pub trait Value: Sized {
    /// A value as TOML, for messages; empty where the docs must do.
    const EXAMPLE: &'static str = "";

    /// Whether it stands for tables that the user names: `[pool.NAME]`.
    const NAMED: bool = false;

    /// What the docs and messages call it, with its article: `a duration`.
    fn kind() -> String;

    /// The JSON Schema of one value.
    fn schema() -> Json;

    /// The keys, where the value is a table with known ones.
    fn fields() -> &'static [Field] {
        &[]
    }

    /// Reads the value; where it is wrong, says why in the report and returns nothing.
    fn read(node: Node<'_>, report: &mut Report) -> Option<Self>;

    /// What a key that is not written means; nothing where the key must be written.
    fn absent() -> Option<Self> {
        None
    }
}

/// A value that is read in its written form first, then checked and turned into what the program uses.
pub trait Derived: Sized {
    /// The form in the file.
    type Written: Value;

    /// Checks what one key alone cannot show; says what is wrong in the report and then returns nothing.
    fn derive(written: Self::Written, node: Node<'_>, report: &mut Report) -> Option<Self>;
}

impl<T: Derived> Value for T {
    const EXAMPLE: &'static str = T::Written::EXAMPLE;
    fn kind() -> String {
        T::Written::kind()
    }
    fn schema() -> Json {
        T::Written::schema()
    }
    fn fields() -> &'static [Field] {
        T::Written::fields()
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<T> {
        let written = T::Written::read(node, report)?;
        T::derive(written, node, report)
    }
}

/// Reads a string; the error of `parse` says what is wrong with it and what to write.
pub fn read_text<T: Value, E: Display>(
    node: Node<'_>,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let Some(text) = node.value.get_ref().as_str() else { return node.mismatch(report) };
    parse(text).map_or_else(|error| node.fail(report, error), Some)
}

/// Implements [`Value`] for types that are written as a string: what they are called, an example, the rest of
/// their JSON Schema, and a function that reads them.
macro_rules! text {
    ($($type:ty: $kind:literal, $example:literal, { $($schema:tt)* }, $parse:expr;)+) => {$(
        impl $crate::config::value::Value for $type {
            const EXAMPLE: &'static str = concat!("\"", $example, "\"");
            fn kind() -> String {
                $kind.to_owned()
            }
            fn schema() -> serde_json::Value {
                serde_json::json!({ "type": "string", $($schema)* })
            }
            fn read(
                node: $crate::config::value::Node<'_>,
                report: &mut $crate::config::report::Report,
            ) -> Option<Self> {
                $crate::config::value::read_text(node, report, $parse)
            }
        }
    )+};
}
pub(super) use text;

impl<T: Value> Value for Option<T> {
    const EXAMPLE: &'static str = T::EXAMPLE;
    fn kind() -> String {
        T::kind()
    }
    fn schema() -> Json {
        T::schema()
    }
    fn fields() -> &'static [Field] {
        T::fields()
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Option<T>> {
        T::read(node, report).map(Some)
    }
    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

impl<T: Value> Value for Vec<T> {
    fn kind() -> String {
        let one = T::kind();
        format!("a list, each {one}")
    }
    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema(), "maxItems": MAX_LIST })
    }
    fn fields() -> &'static [Field] {
        T::fields()
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Vec<T>> {
        let Some(list) = node.value.get_ref().as_array() else { return node.mismatch(report) };
        if list.len() > MAX_LIST {
            return node
                .fail(report, format!("{} entries are too many; write at most {MAX_LIST}", list.len()));
        }
        // Read to the end, so that every wrong entry is reported, not only the first.
        let read: Vec<Option<T>> = list.iter().map(|value| T::read(node.with(value), report)).collect();
        read.into_iter().collect()
    }
}

/// Tables that the user names: `[pool.NAME]`. In the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables<T>(pub Vec<(String, T)>);

impl<T: Value> Value for Tables<T> {
    const NAMED: bool = true;
    fn kind() -> String {
        "a table of named tables".to_owned()
    }
    fn schema() -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9_.-]{1,64}$" },
            "maxProperties": crate::MAX_CLASSES,
            "additionalProperties": T::schema(),
        })
    }
    fn fields() -> &'static [Field] {
        T::fields()
    }
    fn read(node: Node<'_>, report: &mut Report) -> Option<Tables<T>> {
        let mut entries: Vec<_> = node.table::<Self>(report)?.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        if let Some((name, _)) = entries.get(crate::MAX_CLASSES) {
            let (key, max) = (node.key, crate::MAX_CLASSES);
            report.error(name.span(), format!("more than {max} tables [{key}.NAME]; merge some of them"));
            return None;
        }
        let read: Vec<Option<(String, T)>> = entries
            .into_iter()
            .map(|(name, value)| {
                let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                let valid = (1..=64).contains(&name.get_ref().len()) && name.get_ref().chars().all(fits);
                if !valid {
                    let message = "a name is 1 to 64 letters, digits, `_`, `-` or `.`; write for example";
                    report.error(name.span(), format!("{message} [{}.shop]", node.key));
                }
                let read = T::read(Node { key: name.get_ref(), value, example: "" }, report);
                read.filter(|_| valid).map(|table| (name.get_ref().to_string(), table))
            })
            .collect();
        read.into_iter().collect::<Option<_>>().map(Tables)
    }
    fn absent() -> Option<Tables<T>> {
        Some(Tables(Vec::new()))
    }
}
