//! `table!` and `choice!`: one definition a key. From it come the struct, the reader with its errors, the
//! reference docs and the JSON Schema.

use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::report::{Report, Span};
use super::suggest::{did_you_mean, one_of};
use super::value::{Node, Shape, Value};

/// What is known of a key besides its Rust type.
#[derive(Clone, Copy)]
pub struct Field {
    /// As the user writes it.
    pub key: &'static str,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
    /// What it means when left out, as TOML.
    pub default: Option<&'static str>,
    /// Lowest and highest value, as TOML.
    pub range: Option<(&'static str, &'static str)>,
    /// It belongs to some values of another key only: that key, and those values.
    pub only: Option<(&'static str, &'static [&'static str])>,
    /// The shape of its type.
    pub shape: Shape,
}

impl Field {
    /// Whether leaving it out is an error.
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !self.shape.optional
    }
}

/// A table being read.
pub struct Keys<'a> {
    node: Node<'a>,
    table: &'a DeTable<'a>,
    fields: &'static [Field],
}

impl<'a> Keys<'a> {
    /// Takes a table apart, with an error for every key that does not belong in it.
    pub fn open<T: Value>(node: Node<'a>, report: &mut Report) -> Option<Keys<'a>> {
        let keys = Keys { node, table: node.table::<T>(report)?, fields: T::SHAPE.fields };
        for (key, _) in keys.table {
            match keys.fields.iter().find(|field| field.key == key.get_ref()) {
                Some(field) => keys.check_belongs(field, key.span(), report),
                None => {
                    let known: Vec<&str> = keys.fields.iter().map(|field| field.key).collect();
                    let hint = did_you_mean(key.get_ref(), &known);
                    report.error(key.span(), format!("unknown key `{}`; {hint}", key.get_ref()));
                }
            }
        }
        Some(keys)
    }

    /// An error where the key is one of another policy, distribution or process than the table's.
    fn check_belongs(&self, field: &Field, span: Span, report: &mut Report) {
        let Some((selector, takers)) = field.only else { return };
        let selector_field = self.field(selector);
        let written = match self.table.get(selector) {
            Some(value) => value.get_ref().as_str(),
            None => selector_field.default.map(|toml| toml.trim_matches('"')),
        };
        // A choice that does not exist is an error of its own, and what belongs to it nobody knows.
        let choices = (selector_field.shape.schema)();
        let exists =
            |written: &&str| choices["enum"].as_array().is_some_and(|all| all.contains(&json!(written)));
        if let Some(written) = written.filter(exists).filter(|written| !takers.contains(written)) {
            let key = field.key;
            let takers = one_of(&takers.iter().map(|taker| format!("\"{taker}\"")).collect::<Vec<_>>());
            let message = format!("`{key}` means nothing to {selector} = \"{written}\"; remove it, or write");
            report.error(span, format!("{message} {selector} = {takers}"));
        }
    }

    fn field(&self, key: &str) -> &'static Field {
        self.fields.iter().find(|field| field.key == key).expect("the macro names its own keys")
    }

    fn written(&self, field: &'static Field) -> Option<Node<'a>> {
        self.table.get(field.key).map(|value| Node { key: field.key, value, field: Some(field) })
    }

    /// The value of a key, or its default.
    pub fn get<T: Value>(&self, key: &str, report: &mut Report) -> Option<T> {
        let field = self.field(key);
        match (self.written(field), field.default) {
            (Some(node), _) => T::read(node, report),
            (None, Some(toml)) => Some(literal(toml)),
            (None, None) => T::absent().or_else(|| {
                let example = (T::SHAPE.example)();
                report.error(
                    self.node.span(),
                    format!("`{key}` is missing; add for example {key} = {example}"),
                );
                None
            }),
        }
    }

    /// Like [`Keys::get`], with an error where the value is out of the key's range.
    pub fn get_within<T: Value + PartialOrd>(&self, key: &str, report: &mut Report) -> Option<T> {
        let value: T = self.get(key, report)?;
        let field = self.field(key);
        match (field.range, self.written(field)) {
            (Some((low, high)), Some(node)) if value < literal(low) || literal::<T>(high) < value => {
                node.out_of_range(report)
            }
            _ => Some(value),
        }
    }
}

/// Reads a default or a bound of this program's own.
///
/// # Panics
/// Where it cannot be read; a test reads all there are.
pub fn literal<T: Value>(toml: &str) -> T {
    let mut report = Report::default();
    let value = DeValue::parse(toml).ok().and_then(|value| T::read(Node::new("", &value), &mut report));
    value.unwrap_or_else(|| panic!("{toml} cannot be read: {report:?}"))
}

/// A table with its first key, or all that it must have.
pub fn table_example(fields: &[Field]) -> String {
    let required = fields.iter().any(Field::is_required);
    let shown = fields.iter().filter(|field| field.is_required() || !required);
    let entries: Vec<String> = shown
        .map(|field| {
            let value = field.default.map_or_else(field.shape.example, str::to_owned);
            format!("{} = {value}", field.key)
        })
        .take(if required { usize::MAX } else { 1 })
        .collect();
    format!("{{ {} }}", entries.join(", "))
}

/// The JSON Schema of a table.
pub fn table_schema(doc: &[&str], fields: &[Field]) -> Json {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = (field.shape.schema)();
        schema["description"] = json!(joined(field.doc));
        if let Some(default) = field.default.and_then(to_json) {
            schema["default"] = default;
        }
        if let Some((low, high)) = field.range {
            for (bound, toml) in [("minimum", low), ("maximum", high)] {
                if let Some(number) = to_json(toml).filter(Json::is_number) {
                    schema[bound] = number;
                }
            }
        }
        properties.insert(field.key.to_owned(), schema);
    }
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required()).map(|field| field.key).collect();
    json!({
        "type": "object",
        "description": joined(doc),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Documentation lines as one paragraph.
pub fn joined(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn to_json(toml: &str) -> Option<Json> {
    fn convert(value: &DeValue<'_>) -> Json {
        match value {
            DeValue::String(text) => json!(text),
            DeValue::Integer(n) => n.as_str().parse::<i64>().map_or(Json::Null, |n| json!(n)),
            DeValue::Float(n) => n.as_str().parse::<f64>().map_or(Json::Null, |n| json!(n)),
            DeValue::Boolean(b) => json!(b),
            DeValue::Datetime(d) => json!(d.to_string()),
            DeValue::Array(list) => list.iter().map(|v| convert(v.get_ref())).collect(),
            DeValue::Table(table) => {
                table.iter().map(|(k, v)| (k.get_ref().to_string(), convert(v.get_ref()))).collect()
            }
        }
    }
    DeValue::parse(toml).ok().map(|value| convert(value.get_ref()))
}

/// Defines a table of the file. A key is written
///
/// ```text
/// /// What it means, its unit, why this default.
/// field: Type as "key" [low..=high] = default where selector = "value" | "value",
/// ```
///
/// where all but the documentation, the name and the type may be left out: `as` for a key that is no Rust name,
/// the default and the bounds as TOML, and `where` for a key that belongs to some values of another key only.
/// `struct Pool(name)` gives the struct a field that whoever reads `[pool.NAME]` fills.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident $(($label:ident))? {
            $(
                $(#[doc = $field_doc:literal])+
                $field:ident: $type:ty
                $(as $key:literal)?
                $([$low:tt..=$high:tt])?
                $(= $default:tt)?
                $(where $selector:ident = $($taker:literal)|+)?
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(
                /// The NAME in its header.
                pub $label: String,
            )?
            $(
                $(#[doc = $field_doc])+
                pub $field: $type,
            )*
        }

        impl $crate::config::value::Value for $name {
            const SHAPE: $crate::config::value::Shape = {
                use $crate::config::table::{Field, first, option, table_example, table_schema};
                use $crate::config::value::Shape;
                const FIELDS: &[Field] = &[$(Field {
                    key: first!($($key,)? stringify!($field)),
                    doc: &[$($field_doc),+],
                    default: option!($(stringify!($default))?),
                    range: option!($((stringify!($low), stringify!($high)))?),
                    only: option!($((stringify!($selector), &[$($taker),+] as &[&str]))?),
                    shape: <$type as $crate::config::value::Value>::SHAPE,
                }),*];
                Shape {
                    fields: FIELDS,
                    ..Shape::new(
                        || "a table".to_owned(),
                        || table_example(FIELDS),
                        || table_schema(&[$($doc),+], FIELDS),
                    )
                }
            };
            fn read(
                node: $crate::config::value::Node<'_>,
                report: &mut $crate::config::report::Report,
            ) -> Option<Self> {
                use $crate::config::table::{Keys, first};
                let keys = Keys::open::<Self>(node, report)?;
                // All keys are read before the first `?`, so that every wrong one is reported.
                $(
                    let key = first!($($key,)? stringify!($field));
                    let $field: Option<$type> = first!(
                        $({ let _ = stringify!($low); keys.get_within(key, report) },)?
                        keys.get(key, report)
                    );
                )*
                Some($name { $($label: String::new(),)? $($field: $field?),* })
            }
        }
    };
}
pub(super) use table;

/// The first of one or two expressions.
macro_rules! first {
    ($only:expr) => {
        $only
    };
    ($first:expr, $second:expr) => {
        $first
    };
}
pub(super) use first;

/// `None`, or `Some` of what is given.
macro_rules! option {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}
pub(super) use option;

/// Defines an enum that is written as one of a few words.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        $vis:vis enum $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal),* $(,)? }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[doc = $variant_doc])+ $variant),* }

        impl $name {
            /// Every choice, in the order of the docs.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// As the file writes it.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                let found = $name::ALL.iter().find(|choice| choice.as_str() == text);
                found.copied().ok_or_else(|| {
                    let hint = $crate::config::suggest::did_you_mean(text, &[$($text),*]);
                    format!("unknown value \"{text}\"; {hint}")
                })
            }
        }

        impl $crate::config::value::Value for $name {
            const SHAPE: $crate::config::value::Shape = $crate::config::value::Shape::new(
                || $crate::config::suggest::one_of(&[$(concat!("\"", $text, "\"")),*]),
                || format!("\"{}\"", $name::ALL[0]),
                || serde_json::json!({ "enum": [$($text),*] }),
            );
            fn read(
                node: $crate::config::value::Node<'_>,
                report: &mut $crate::config::report::Report,
            ) -> Option<Self> {
                $crate::config::value::read_text(node, report, str::parse)
            }
        }
    };
}
pub(super) use choice;
