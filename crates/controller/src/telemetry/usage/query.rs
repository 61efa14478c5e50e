//! What a Prometheus answers to a query: a vector of values, each with its labels.
//!
//! It answers with what it scraped last, as often as it is asked. So it is asked for the times of that, too: a value that was not scraped anew is no
//! news.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

use super::{Told, What};

/// No Prometheus gives what it scraped longer ago: by default it looks back five minutes.
const OLDEST_S: f64 = 3_600.0;
/// Of what somebody else wrote no more characters than these are in an error.
const MOST_SAID: usize = 300;

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
    metric: BTreeMap<String, String>,
    /// When, and what, as text: JSON has no NaN.
    value: (f64, String),
}

/// When what is told of each instance of each service was scraped, in seconds since 1970.
pub type Times = HashMap<(String, String), f64>;

/// The query for the times of what another one gives.
pub fn of_times(query: &str) -> String {
    format!("timestamp({query})")
}

/// Reads an answer: of each value that has the label, the service and what the value says. Values of one service are of its instances, by what
/// other labels they have.
///
/// # Errors
/// Why it is none, in words.
pub fn parse(body: &[u8], label: &str, what: fn(f64) -> What) -> Result<Vec<Told>, String> {
    let told = rows(body)?.into_iter().filter_map(|row| {
        let what = what(row.number());
        let (service, instance) = row.whose(label)?;
        // The time beside it is that of the question.
        Some(Told { service, instance, what, is_new: None })
    });
    Ok(told.collect())
}

/// Reads an answer to [`of_times`]. What a query computes, as a rate, has the time of the question, which says nothing: there is no time of it. Nor is
/// there one where the answer is something else.
pub fn times(body: &[u8], label: &str) -> Times {
    let mut times = Times::new();
    for row in rows(body).unwrap_or_default() {
        let scraped_s = row.number();
        let is_time = scraped_s < row.value.0 && scraped_s > row.value.0 - OLDEST_S;
        times.extend(row.whose(label).filter(|_| is_time).map(|whose| (whose, scraped_s)));
    }
    times
}

/// Marks as new what was scraped since the times before, where those of now say when it was.
pub fn mark(told: &mut [Told], before: &Times, now: &Times) {
    for told in told {
        let whose = (told.service.clone(), told.instance.clone());
        told.is_new = now.get(&whose).map(|at_s| before.get(&whose) != Some(at_s));
    }
}

impl Row {
    /// What is no number is counted as nonsense by whoever takes it.
    fn number(&self) -> f64 {
        self.value.1.parse().unwrap_or(f64::NAN)
    }

    /// The service, and which of its instances, as all other labels tell.
    fn whose(mut self, label: &str) -> Option<(String, String)> {
        let service = self.metric.remove(label)?;
        // The times of a metric have no name.
        self.metric.remove("__name__");
        let others: Vec<String> = self.metric.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some((service, others.join(",")))
    }
}

fn rows(body: &[u8]) -> Result<Vec<Row>, String> {
    read(body).map_err(|error| error.chars().take(MOST_SAID).collect())
}

fn read(body: &[u8]) -> Result<Vec<Row>, String> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| format!("it answers with what is no result: {error}"))?;
    if let Some(error) = answer.error {
        return Err(error);
    }
    let data = answer.data.ok_or("it answers without data")?;
    if data.result_type != "vector" {
        return Err(format!("the query gives a {}; write one that gives a vector", data.result_type));
    }
    serde_json::from_value(data.result).map_err(|error| format!("it answers with what is no vector: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_scraped_anew_is_no_news() {
        let answer = |cart: &str| {
            format!(
                r#"{{"data":{{"resultType":"vector","result":[{{"metric":{{"s":"cart"}},"value":[1700000009.5,"{cart}"]}},
                {{"metric":{{"s":"rate"}},"value":[1700000009.5,"1700000009.5"]}}]}}}}"#
            )
        };
        let of = |service: &str| Told {
            service: service.to_owned(),
            instance: String::new(),
            what: What::Waits(1.0),
            is_new: None,
        };
        let mut told = ["cart", "rate", "other"].map(of);
        let mut before = Times::new();
        for (scraped, is_new) in [("1700000008.1", true), ("1700000008.1", false), ("1700000009.1", true)] {
            let now = times(answer(scraped).as_bytes(), "s");
            mark(&mut told, &before, &now);
            assert_eq!([&told[0], &told[1], &told[2]].map(|told| told.is_new), [Some(is_new), None, None]);
            before = now;
        }
        assert!(times(b"no answer", "s").is_empty());
    }

    #[test]
    fn however_much_somebody_writes_little_of_it_is_said_again() {
        let long = "x".repeat(100_000);
        for answer in [
            format!(r#"{{"error":"{long}"}}"#),
            format!(r#"{{"data":{{"resultType":"{long}","result":[]}}}}"#),
            format!(r#"{{"data":{{"resultType":"vector","result":"{long}"}}}}"#),
            format!(r#"{{"data":"{long}"}}"#),
        ] {
            let error = parse(answer.as_bytes(), "s", What::Waits).unwrap_err();
            assert!(error.len() <= MOST_SAID, "{} characters", error.len());
        }
    }

    #[test]
    fn several_rows_of_one_service_are_its_instances() {
        let row = |pod: &str, value: &str| {
            format!(
                r#"{{"metric":{{"__name__":"busy","pod":"{pod}","s":"cart"}},"value":[1700000009.5,"{value}"]}}"#
            )
        };
        let answer = |rows: [String; 2]| {
            format!(r#"{{"data":{{"resultType":"vector","result":[{}]}}}}"#, rows.join(","))
        };
        let mut told =
            parse(answer([row("a", "0.9"), row("b", "0.1")]).as_bytes(), "s", What::Waits).unwrap();
        let seen: Vec<_> = told.iter().map(|told| (&*told.service, &*told.instance, told.what)).collect();
        assert_eq!(seen, [("cart", "pod=a", What::Waits(0.9)), ("cart", "pod=b", What::Waits(0.1))]);
        let at = |b: &str| {
            let nameless = |row: String| row.replace(r#""__name__":"busy","#, "");
            times(answer([nameless(row("a", "1700000001")), nameless(row("b", b))]).as_bytes(), "s")
        };
        mark(&mut told, &at("1700000001"), &at("1700000002"));
        assert_eq!([told[0].is_new, told[1].is_new], [Some(false), Some(true)]);
    }

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
