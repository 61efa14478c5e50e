//! What the servers here say of themselves with every answer: an ORCA load report, as docs/nucleus.md asks for.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderName, HeaderValue};
use hyper::Response;
use plimsoll_core::Nanos;
use prost::Message;
use serde::Serialize;

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Names and numbers.
    Text,
    /// The message as JSON.
    Json,
    /// The message in base64, as gRPC does it.
    Bin,
    /// Not at all.
    Off,
}

impl Form {
    /// As the command line writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::Json => "json",
            Form::Bin => "bin",
            Form::Off => "off",
        }
    }
}

/// What there is to say about an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// CPU time of the request.
    pub cpu: Nanos,
    /// How long it waited for what is not computed here.
    pub data: Nanos,
    /// How long it waited to be begun with.
    pub queue_delay: Nanos,
    /// Requests that were worked on when it was done, itself included.
    pub in_service: u32,
}

/// Of `xds.data.orca.v3.OrcaLoadReport`, by its numbers.
#[derive(Clone, PartialEq, Message, Serialize)]
struct LoadReport {
    #[prost(btree_map = "string, double", tag = "4")]
    request_cost: BTreeMap<String, f64>,
    #[prost(btree_map = "string, double", tag = "8")]
    named_metrics: BTreeMap<String, f64>,
}

impl Load {
    /// Adds it to the head of an answer.
    pub fn report<B>(&self, form: Form, response: &mut Response<B>) {
        let Some((name, value)) = self.written(form) else { return };
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }

    fn written(&self, form: Form) -> Option<(&'static str, String)> {
        let (cpu, data) = (self.cpu.as_secs_f64(), self.data.as_secs_f64());
        let (queue_delay, in_service) = (self.queue_delay.as_millis_f64(), f64::from(self.in_service));
        let message = || LoadReport {
            request_cost: [("cpu", cpu), ("data", data)].map(|(name, s)| (name.to_owned(), s)).into(),
            named_metrics: [("queue_delay_ms", queue_delay), ("in_service", in_service)]
                .map(|(name, number)| (name.to_owned(), number))
                .into(),
        };
        match form {
            Form::Off => None,
            Form::Text => Some((
                "endpoint-load-metrics",
                format!(
                    "TEXT request_cost.cpu={cpu}, request_cost.data={data}, \
                     named_metrics.queue_delay_ms={queue_delay}, named_metrics.in_service={in_service}"
                ),
            )),
            Form::Json => {
                let json = serde_json::to_string(&message()).unwrap_or_default();
                Some(("endpoint-load-metrics", format!("JSON {json}")))
            }
            Form::Bin => Some(("endpoint-load-metrics-bin", STANDARD.encode(message().encode_to_vec()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_written_as_servers_do() {
        let load = Load {
            cpu: Nanos::from_millis(3),
            data: Nanos::from_millis(1),
            queue_delay: Nanos::from_millis(250),
            in_service: 3,
        };
        let written = |form| load.written(form).unwrap();
        let text = "TEXT request_cost.cpu=0.003, request_cost.data=0.001, named_metrics.queue_delay_ms=250, \
                    named_metrics.in_service=3";
        assert_eq!(written(Form::Text), ("endpoint-load-metrics", text.to_owned()));
        let json = r#"JSON {"request_cost":{"cpu":0.003,"data":0.001},"named_metrics":{"in_service":3.0,"queue_delay_ms":250.0}}"#;
        assert_eq!(written(Form::Json), ("endpoint-load-metrics", json.to_owned()));
        let entry = |map: u8, name: &str, number: f64| {
            let name = [&[0x0a, name.len() as u8][..], name.as_bytes()].concat();
            let length = name.len() as u8 + 9;
            [&[map, length][..], &name, &[0x11], &number.to_le_bytes()].concat()
        };
        let message = [
            entry(0x22, "cpu", 0.003),
            entry(0x22, "data", 0.001),
            entry(0x42, "in_service", 3.0),
            entry(0x42, "queue_delay_ms", 250.0),
        ];
        let bin = ("endpoint-load-metrics-bin", STANDARD.encode(message.concat()));
        assert_eq!(written(Form::Bin), bin);
        assert_eq!(load.written(Form::Off), None);
    }
}
