//! One value of a file: how it is read, and what docs, messages and the JSON Schema say of it.

use std::fmt::Display;

use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::report::{Report, Span};
use super::table::Field;

/// Most entries of one list.
pub const MAX_LIST: usize = 1024;

/// How a Rust type is written in a file.
pub trait Value: Sized {
    /// What docs, messages and the JSON Schema say of it.
    const SHAPE: Shape;

    /// Reads the value; where it is wrong, says why in the report and returns nothing.
    fn read(node: Node<'_>, report: &mut Report) -> Option<Self>;

    /// What a key that is not written means; nothing unless the shape is optional.
    fn absent() -> Option<Self> {
        None
    }
}

/// What docs, messages and the JSON Schema say of a type.
#[derive(Clone, Copy)]
pub struct Shape {
    /// What it is called, with its article: `a duration`.
    pub kind: fn() -> String,
    /// A value as TOML.
    pub example: fn() -> String,
    /// The JSON Schema of a value.
    pub schema: fn() -> Json,
    /// The keys, where the value is a table with known ones or a list of such.
    pub fields: &'static [Field],
    /// Whether it stands for tables that the user names: `[pool.NAME]`.
    pub named: bool,
    /// Whether the key may be left out without a default.
    pub optional: bool,
}

impl Shape {
    /// The shape of a required value without keys of its own.
    pub const fn new(kind: fn() -> String, example: fn() -> String, schema: fn() -> Json) -> Shape {
        Shape { kind, example, schema, fields: &[], named: false, optional: false }
    }
}

/// A value of the document together with the key it was written under.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// The key; for an element of a list, the list's.
    pub key: &'a str,
    /// The value and its place.
    pub value: &'a Spanned<DeValue<'a>>,
    /// What the definition of the key says, where it has one.
    pub field: Option<&'static Field>,
}

impl<'a> Node<'a> {
    /// A value whose key the user chose.
    pub fn new(key: &'a str, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node { key, value, field: None }
    }

    /// Where the value stands.
    pub fn span(&self) -> Span {
        self.value.span()
    }

    /// The text, where the value is a string.
    pub fn text(&self) -> Option<&'a str> {
        self.value.get_ref().as_str()
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

    /// The keys and values in the order of the file, where the value is a table.
    pub fn entries<T: Value>(&self, report: &mut Report) -> Option<Vec<(Spanned<&'a str>, Node<'a>)>> {
        let table = self.table::<T>(report)?;
        let entry = |(key, value): (&'a Spanned<DeString<'a>>, _)| {
            let name: &'a str = key.get_ref();
            (Spanned::new(key.span(), name), Node::new(name, value))
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        Some(entries)
    }

    /// The table, or an error that names what was wanted.
    pub fn table<T: Value>(&self, report: &mut Report) -> Option<&'a DeTable<'a>> {
        if let DeValue::Table(table) = self.value.get_ref() {
            return Some(table);
        }
        self.mismatch::<T>(report);
        None
    }

    /// Reports that the value is wrong: why, and what to write instead.
    pub fn fail<T>(&self, report: &mut Report, message: impl Display) -> Option<T> {
        report.error(self.span(), format!("`{}`: {message}", self.key));
        None
    }

    /// Reports that the value is of the wrong type.
    pub fn mismatch<T: Value>(&self, report: &mut Report) -> Option<T> {
        // The default is the better example, unless it shows nothing.
        let default = self.field.and_then(|field| field.default).filter(|toml| !["{}", "[]"].contains(toml));
        let example = default.map_or_else(T::SHAPE.example, str::to_owned);
        self.fail(
            report,
            format!("{} is not {}; write for example {example}", self.found(), self.wanted::<T>()),
        )
    }

    /// Reports that the value is too low or too high.
    pub fn out_of_range<T: Value>(&self, report: &mut Report) -> Option<T> {
        self.fail(report, format!("{} is out of range; write {}", self.found(), self.wanted::<T>()))
    }

    fn wanted<T: Value>(&self) -> String {
        let range = self.field.and_then(|field| field.range);
        (T::SHAPE.kind)() + &range.map(|(low, high)| format!(" from {low} to {high}")).unwrap_or_default()
    }

    fn found(&self) -> String {
        match self.value.get_ref() {
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Integer(n) => n.to_string(),
            DeValue::Float(n) => n.to_string(),
            DeValue::Boolean(b) => b.to_string(),
            other => format!("a {}", other.type_str()),
        }
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
    const SHAPE: Shape = T::Written::SHAPE;
    fn read(node: Node<'_>, report: &mut Report) -> Option<T> {
        let written = T::Written::read(node, report)?;
        T::derive(written, node, report)
    }
}

/// Implements [`Value`] for types that are written as a string: what they are called, an example, the rest of
/// their JSON Schema, and a function that reads them, whose error says what to write.
macro_rules! text {
    ($($type:ty: $kind:literal, $example:literal, { $($schema:tt)* }, $parse:expr;)+) => {$(
        impl $crate::config::value::Value for $type {
            const SHAPE: $crate::config::value::Shape = $crate::config::value::Shape::new(
                || $kind.to_owned(),
                || concat!("\"", $example, "\"").to_owned(),
                || serde_json::json!({ "type": "string", $($schema)* }),
            );
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

/// Reads a string with `parse`.
pub fn read_text<T: Value, E: Display>(
    node: Node<'_>,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let Some(text) = node.text() else { return node.mismatch(report) };
    parse(text).map_or_else(|error| node.fail(report, error), Some)
}

impl<T: Value> Value for Option<T> {
    const SHAPE: Shape = Shape { optional: true, ..T::SHAPE };
    fn read(node: Node<'_>, report: &mut Report) -> Option<Option<T>> {
        T::read(node, report).map(Some)
    }
    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

impl<T: Value> Value for Vec<T> {
    const SHAPE: Shape = Shape {
        fields: T::SHAPE.fields,
        ..Shape::new(
            || format!("a list, each {}", (T::SHAPE.kind)()),
            || format!("[{}]", (T::SHAPE.example)()),
            || json!({ "type": "array", "items": (T::SHAPE.schema)(), "maxItems": MAX_LIST }),
        )
    };
    fn read(node: Node<'_>, report: &mut Report) -> Option<Vec<T>> {
        let Some(list) = node.value.get_ref().as_array() else { return node.mismatch(report) };
        if list.len() > MAX_LIST {
            let message = format!("{} entries are too many; write at most {MAX_LIST}", list.len());
            return node.fail(report, message);
        }
        // Read to the end, so that every wrong entry is reported, not only the first.
        let read: Vec<_> = list.iter().map(|value| T::read(Node::new(node.key, value), report)).collect();
        read.into_iter().collect()
    }
}

/// Tables that the user names: `[pool.NAME]`. In the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables<T>(pub Vec<(String, T)>);

impl<T: Value> Value for Tables<T> {
    const SHAPE: Shape = Shape {
        fields: T::SHAPE.fields,
        named: true,
        optional: true,
        ..Shape::new(
            || format!("a table of names, each {}", (T::SHAPE.kind)()),
            || format!("{{ name = {} }}", (T::SHAPE.example)()),
            || {
                json!({
                    "type": "object",
                    "propertyNames": { "pattern": "^[A-Za-z0-9_.-]{1,64}$" },
                    "maxProperties": crate::MAX_CLASSES,
                    "additionalProperties": (T::SHAPE.schema)(),
                })
            },
        )
    };
    fn read(node: Node<'_>, report: &mut Report) -> Option<Tables<T>> {
        let entries = node.entries::<Self>(report)?;
        if let Some((name, _)) = entries.get(crate::MAX_CLASSES) {
            let (key, max) = (node.key, crate::MAX_CLASSES);
            report.error(name.span(), format!("more than {max} tables [{key}.NAME]; merge some of them"));
            return None;
        }
        let named = |(name, entry): (Spanned<&str>, Node<'_>)| {
            let table = T::read(entry, report);
            let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            if (1..=64).contains(&name.get_ref().len()) && name.get_ref().chars().all(fits) {
                return table.map(|table| (name.get_ref().to_string(), table));
            }
            let message = "a name is 1 to 64 letters, digits, `_`, `-` or `.`; write for example";
            report.error(name.span(), format!("{message} [{}.shop]", node.key));
            None
        };
        let read: Vec<_> = entries.into_iter().map(named).collect();
        read.into_iter().collect::<Option<_>>().map(Tables)
    }
    fn absent() -> Option<Tables<T>> {
        Some(Tables(Vec::new()))
    }
}
