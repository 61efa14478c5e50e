//! `path = [...]` of an API: the services that a request takes, one after the other or several at once.

use serde_json::json;
use toml::de::DeValue;

use crate::config::report::Report;
use crate::config::value::{Node, Shape, Value};

/// Most services that are called at once.
const MAX_WIDTH: usize = 64;

/// A step of a path as written: one service, or several that are called at once and all have to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage(pub Vec<String>);

impl Value for Stage {
    const SHAPE: Shape = Shape::new(
        || "a service or a list of services that are called at once".to_owned(),
        || "\"frontend\"".to_owned(),
        || {
            let name = json!({ "type": "string" });
            json!({ "anyOf": [name, { "type": "array", "items": name, "minItems": 1, "maxItems": MAX_WIDTH }] })
        },
    );
    fn read(node: Node<'_>, report: &mut Report) -> Option<Stage> {
        match node.value.get_ref() {
            DeValue::String(name) => Some(Stage(vec![name.to_string()])),
            DeValue::Array(list) if (1..=MAX_WIDTH).contains(&list.len()) => {
                let names: Vec<_> =
                    list.iter().map(|value| String::read(Node::new(node.key, value), report)).collect();
                names.into_iter().collect::<Option<_>>().map(Stage)
            }
            DeValue::Array(list) => {
                let found = list.len();
                node.fail(report, format!("{found} services are called at once; write 1 to {MAX_WIDTH}"))
            }
            _ => node.mismatch(report),
        }
    }
}
