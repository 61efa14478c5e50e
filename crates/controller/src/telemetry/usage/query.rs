//! What a Prometheus answers to a query: a vector of values, each with its labels.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Told, What};

#[derive(Deserialize)]
struct Answer {
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    metric: HashMap<String, String>,
    /// When, and what, as text: JSON has no NaN.
    value: (f64, String),
}

/// Reads an answer: of each value that has the label, the service and what the value says.
///
/// # Errors
/// Why it is none, in words.
pub fn parse(body: &[u8], label: &str, what: fn(f64) -> What) -> Result<Vec<Told>, String> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| format!("it answers with what is no result: {error}"))?;
    if let Some(error) = answer.error {
        return Err(error.chars().take(300).collect());
    }
    let data = answer.data.ok_or("it answers without data")?;
    if data.result_type != "vector" {
        return Err(format!("the query gives a {}; write one that gives a vector", data.result_type));
    }
    let rows: Vec<Row> = serde_json::from_value(data.result)
        .map_err(|error| format!("it answers with what is no vector: {error}"))?;
    let told = rows.into_iter().filter_map(|mut row| {
        let service = row.metric.remove(label)?;
        // What is no number is counted as nonsense by whoever takes it.
        let value = row.value.1.parse().unwrap_or(f64::NAN);
        // The time beside it is that of the question.
        Some(Told { service, instance: String::new(), what: what(value), is_new: None })
    });
    Ok(told.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_read_and_all_else_said() {
        let text = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"container":"cart","x":"y"},"value":[1.7e9,"0.5"]},
            {"metric":{"container":"nan"},"value":[1700000000,"NaN"]},{"metric":{},"value":[1700000000,"1"]}]}}"#;
        let told = parse(text.as_bytes(), "container", What::Waits).unwrap();
        assert_eq!((told.len(), &*told[0].service, told[0].what), (2, "cart", What::Waits(0.5)));
        assert!(matches!(told[1].what, What::Waits(value) if value.is_nan()));
        for (bad, says) in [
            ("", "no result"),
            (r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#, "parse error"),
            (r#"{"status":"success"}"#, "without data"),
            (r#"{"data":{"resultType":"scalar","result":[1.7e9,"0.5"]}}"#, "gives a scalar"),
            (r#"{"data":{"resultType":"vector","result":[7]}}"#, "no vector"),
        ] {
            let error = parse(bad.as_bytes(), "container", What::Waits).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
