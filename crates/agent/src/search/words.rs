//! What a task does, as it may be told: what users search for stays out of it.

use plimsoll_core::text::shortened;
use serde_json::Value;

use crate::server::Told;
use crate::server::chains::Pid;

/// Longest text that is told, in characters.
const LONGEST: usize = 300;
/// Keys of a query whose values are the names of fields, as are keys.
const NAMES: [&str; 2] = ["field", "fields"];
/// How clients say whose a task is.
const WHOSE: &str = "X-Opaque-Id";

/// What is asked of one task.
pub fn of_task(node: &str, id: Pid) -> String {
    format!("/_tasks/{node}:{id}?filter_path=task.action,task.description,task.headers")
}

/// The answer, masked.
pub fn told(answer: &Value) -> Told {
    let task = &answer["task"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let action = text(&task["action"]);
    let action = action.strip_prefix("indices:").unwrap_or(&action);
    Told {
        statement: Some(shortened(&format!("{action}: {}", masked(&text(&task["description"]))), LONGEST)),
        client: Some(text(&task["headers"][WHOSE])),
        ..Told::default()
    }
}

/// A task's description without what its user has written: of a query its form remains.
///
/// It is words and things in brackets, and for a search the query, as in `indices[items], ..., source[{"query":...}]`.
fn masked(description: &str) -> String {
    let (before, source) = description.split_at(description.find('{').unwrap_or(description.len()));
    let before = first_in_brackets(before);
    let mut values = serde_json::Deserializer::from_str(source).into_iter::<Value>();
    match values.next() {
        Some(Ok(mut query)) => {
            mask(&mut query);
            // Question marks that stand for values need no quotes.
            format!("{before} {}", query.to_string().replace("\"?\"", "?"))
        }
        Some(Err(_)) => format!("{before} {{...}}"),
        None => before.to_owned(),
    }
}

/// Of what is no query, the first thing in brackets, which is an index or a count: another may be the id of a document.
fn first_in_brackets(text: &str) -> &str {
    text.find(']').map_or("", |end| &text[..=end])
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if !(NAMES.contains(&key.as_str()) && is_name(value)) {
                    mask(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        value => *value = Value::from("?"),
    }
}

fn is_name(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(list) => list.iter().all(Value::is_string),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_query_its_form_is_told() {
        for (description, shown) in [
            (
                "indices[items], types[], search_type[QUERY_THEN_FETCH], source[{\"size\":0,\"query\":{\"term\":{\"user\":\"hush\"}},\
                 \"aggs\":{\"by\":{\"terms\":{\"field\":\"user\",\"size\":10}}}}], preference[hush]",
                "indices[items] {\"aggs\":{\"by\":{\"terms\":{\"field\":\"user\",\"size\":?}}},\"query\":{\"term\":{\"user\":?}},\"size\":?}",
            ),
            ("indices[items], source[{\"query\":{\"query_string\":{\"query\":\"hush", "indices[items] {...}"),
            (
                "update-by-query [items] updated with Script{source='ctx.hush'}",
                "update-by-query [items] {...}",
            ),
            ("requests[1000], indices[items]", "requests[1000]"),
            ("[items][hush]: routing [hush]", "[items]"),
            ("hush", ""),
            ("", ""),
        ] {
            assert_eq!(masked(description), shown, "{description}");
        }
    }

    #[test]
    fn whose_it_is_is_told() {
        let answer = serde_json::json!({ "task": {
            "action": "indices:data/read/search", "description": "indices[items], source[{\"size\":5}]",
            "headers": { "X-Opaque-Id": "report" },
        } });
        let told = told(&answer);
        assert_eq!(told.statement.as_deref(), Some("data/read/search: indices[items] {\"size\":?}"));
        assert_eq!(told.client.as_deref(), Some("report"));
        assert_eq!(self::told(&Value::Null).client.as_deref(), Some(""));
        assert_eq!(shortened(&"x".repeat(1_000), LONGEST).chars().count(), LONGEST + 1);
    }

    proptest::proptest! {
        #[test]
        fn anything_can_be_masked(description in ".*") {
            masked(&description);
        }
    }
}
