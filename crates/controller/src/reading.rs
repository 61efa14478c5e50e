//! What a sentry says at `GET /pools`, read with distrust: what is missing, negative, not finite or absurdly large is left out
//! and counted.

use plimsoll_core::config::Server;
use serde_json::Value;

use crate::outcome::Responses;

/// Beyond these no number is believed: requests since the sentry started, a service time of an hour in milliseconds, the squared
/// coefficient of variation of one request in a million that takes a million times as long, slots and requests of one pool.
const MOST_REQUESTS: f64 = 1e15;
const LONGEST_MS: f64 = 3_600_000.0;
const MOST_SCV: f64 = 1e6;
/// The last bucket of a sentry's histogram has all that is longer than anything.
const LONGEST_RESPONSE_MS: f64 = 1e15;
/// Buckets of a histogram.
const MOST_PAIRS: usize = 1_024;
const MOST_SLOTS: f64 = 1e8;

/// One sentry, now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The share of its CPU that it uses, in 0..1.
    pub busy: Option<f64>,
    /// Whether it is on its way out.
    pub draining: bool,
    /// Which part it holds, of how many.
    pub share: Option<(u32, u32)>,
    /// Its pools.
    pub pools: Vec<PoolReading>,
    /// Values that were left out.
    pub nonsense: u64,
}

/// One pool at one sentry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    /// As the config calls it.
    pub name: String,
    /// Requests that all its servers work on at once.
    pub slots: Option<u32>,
    /// How long a request that comes now waits, in seconds; nothing of a sentry that does not say.
    pub wait_s: Option<f64>,
    /// Its servers.
    pub servers: Vec<ServerReading>,
    /// Servers that it no longer has and that still work on requests of its.
    pub leaving: Vec<ServerReading>,
    /// Its classes.
    pub classes: Vec<ClassReading>,
}

/// One server as one sentry sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReading {
    /// Where it is.
    pub server: Server,
    /// Whether it is sent anything.
    pub up: bool,
    /// Requests that it has; nothing where that cannot be known.
    pub in_flight: Option<u32>,
}

/// One class at one sentry. The counts are since the sentry started; nothing where one cannot be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassReading {
    /// As the config calls it.
    pub name: String,
    /// Requests that arrived.
    pub offered: Option<f64>,
    /// Requests that were refused.
    pub refused: Option<f64>,
    /// Those of them that the fleet's rate kept out; none of a sentry that does not say.
    pub over_rate: Option<f64>,
    /// Requests that were served.
    pub served: Option<f64>,
    /// Mean service time in seconds, and its squared coefficient of variation; nothing before the first was served.
    pub service: Option<(f64, f64)>,
    /// How long requests took; nothing of a sentry that does not say.
    pub responses: Option<Responses>,
}

/// Reads an answer.
///
/// # Errors
/// Where it is not JSON, or not of a sentry.
pub fn parse(body: &[u8]) -> Result<Reading, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    let Some(pools) = answer["pools"].as_array() else { return Err("`pools` is missing".to_owned()) };
    let mut reader = Reader::default();
    let sentry = &answer["sentry"];
    let reading = Reading {
        busy: reader.number(sentry, "busy", 1.5).map(|busy| busy.min(1.0)),
        draining: sentry["draining"].as_bool().unwrap_or(false),
        share: share(&sentry["share"]),
        pools: pools.iter().filter_map(|pool| reader.pool(pool)).collect(),
        nonsense: 0,
    };
    Ok(Reading { nonsense: reader.nonsense, ..reading })
}

fn share(value: &Value) -> Option<(u32, u32)> {
    let part = |key: &str| u32::try_from(value[key].as_u64()?).ok();
    Some((part("part")?, part("of")?))
}

#[derive(Default)]
struct Reader {
    nonsense: u64,
}

impl Reader {
    /// A number that can be.
    fn number(&mut self, of: &Value, key: &str, most: f64) -> Option<f64> {
        let number = of[key].as_f64().filter(|number| (0.0..=most).contains(number));
        self.nonsense += u64::from(number.is_none());
        number
    }

    /// One that an older sentry does not know of.
    fn said(&mut self, of: &Value, key: &str, most: f64) -> Option<f64> {
        if of[key].is_null() { None } else { self.number(of, key, most) }
    }

    fn name(&mut self, of: &Value) -> Option<String> {
        let name = of["name"].as_str().map(str::to_owned);
        self.nonsense += u64::from(name.is_none());
        name
    }

    fn pool(&mut self, pool: &Value) -> Option<PoolReading> {
        let list = |key: &str| pool[key].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(PoolReading {
            name: self.name(pool)?,
            slots: self.number(pool, "slots", MOST_SLOTS).map(|slots| slots as u32),
            wait_s: self.said(pool, "wait_ms", LONGEST_MS).map(|ms| ms / 1e3),
            servers: list("servers").iter().filter_map(|server| self.server(server)).collect(),
            leaving: list("leaving").iter().filter_map(|server| self.server(server)).collect(),
            classes: list("classes").iter().filter_map(|class| self.class(class)).collect(),
        })
    }

    fn server(&mut self, of: &Value) -> Option<ServerReading> {
        let server = of["address"].as_str().and_then(|address| address.parse().ok());
        self.nonsense += u64::from(server.is_none());
        Some(ServerReading {
            server: server?,
            up: of["up"].as_bool().unwrap_or(true),
            in_flight: self.number(of, "in_flight", MOST_SLOTS).map(|requests| requests as u32),
        })
    }

    fn responses(&mut self, class: &Value) -> Option<Responses> {
        let good = self.number(class, "good", MOST_REQUESTS)?;
        let pair = |pair: &Value| {
            let number = |i: usize, most: f64| pair[i].as_f64().filter(|n| (0.0..=most).contains(n));
            Some(((number(0, LONGEST_RESPONSE_MS)? * 1e3) as u64, number(1, MOST_REQUESTS)?))
        };
        let pairs = class["response_ms"].as_array().filter(|pairs| pairs.len() <= MOST_PAIRS);
        let took_us = pairs.and_then(|pairs| pairs.iter().map(pair).collect::<Option<_>>());
        self.nonsense += u64::from(took_us.is_none());
        Some(Responses { good, took_us: took_us? })
    }

    fn class(&mut self, class: &Value) -> Option<ClassReading> {
        // Absent until something was served, which is no nonsense.
        let service = if class["service_mean_ms"].is_null() {
            None
        } else {
            let mean_ms = self.number(class, "service_mean_ms", LONGEST_MS).filter(|&ms| ms > 0.0);
            // Without, as if exponential.
            let scv = if class["service_scv"].is_null() {
                Some(1.0)
            } else {
                self.number(class, "service_scv", MOST_SCV)
            };
            mean_ms.map(|ms| (ms / 1e3, scv.unwrap_or(1.0)))
        };
        Some(ClassReading {
            name: self.name(class)?,
            offered: self.number(class, "offered", MOST_REQUESTS),
            refused: self.number(class, "refused", MOST_REQUESTS),
            over_rate: if class["over_rate"].is_null() {
                Some(0.0)
            } else {
                self.number(class, "over_rate", MOST_REQUESTS)
            },
            served: self.number(class, "served", MOST_REQUESTS),
            service,
            responses: if class["response_ms"].is_null() { None } else { self.responses(class) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"{"sentry":{"busy":0.42,"draining":false,"share":{"part":0,"of":1}},
        "pools":[{"name":"shop","slots":8,"queued":3,"wait_ms":75.0,
          "servers":[{"address":"127.0.0.1:9101","up":true,"in_flight":4},{"address":"http://127.0.0.1:9102","up":false,"in_flight":0}],
          "classes":[{"name":"gold","priority":1,"revenue":10.0,"min_rate_per_s":5,"offered":100,"admitted":90,"refused":10,"over_rate":4,"served":80,
            "service_mean_ms":25.0,"service_scv":0.5,"good":70,"response_ms":[[30.5,60],[120,20]]}]}]}"#;

    #[test]
    fn what_is_sound_is_read() {
        let reading = parse(SOUND.as_bytes()).unwrap();
        assert_eq!(
            (reading.busy, reading.draining, reading.share, reading.nonsense),
            (Some(0.42), false, Some((0, 1)), 0)
        );
        let pool = &reading.pools[0];
        assert_eq!(
            (&*pool.name, pool.slots, pool.wait_s, pool.servers.len()),
            ("shop", Some(8), Some(0.075), 2)
        );
        assert_eq!(pool.servers[1].server, "127.0.0.1:9102".parse().unwrap());
        assert!(pool.servers[0].up && !pool.servers[1].up);
        let class = &pool.classes[0];
        assert_eq!(
            (class.offered, class.refused, class.over_rate, class.service),
            (Some(100.0), Some(10.0), Some(4.0), Some((0.025, 0.5)))
        );
        let responses = class.responses.as_ref().unwrap();
        assert_eq!(
            (responses.good, responses.took_us[&30_500], responses.took_us[&120_000]),
            (70.0, 60.0, 20.0)
        );
    }

    #[test]
    fn nonsense_is_left_out_and_counted() {
        for (sound, nonsense) in [
            ("\"busy\":0.42", "\"busy\":-1"),
            ("\"busy\":0.42", "\"busy\":\"NaN\""),
            ("\"busy\":0.42", "\"busy\":7e300"),
            ("\"offered\":100", "\"offered\":-100"),
            ("\"offered\":100", "\"offered\":1e300"),
            ("\"refused\":10", "\"refusedd\":10"),
            ("\"service_mean_ms\":25.0", "\"service_mean_ms\":-25.0"),
            ("\"service_scv\":0.5", "\"service_scv\":\"NaN\""),
            ("\"slots\":8", "\"slots\":-8"),
            ("\"address\":\"127.0.0.1:9101\"", "\"address\":\"nowhere\""),
            ("\"in_flight\":4", "\"in_flight\":-4"),
            ("\"name\":\"gold\"", "\"name\":7"),
            ("\"good\":70", "\"good\":-70"),
            ("[120,20]", "[120,-20]"),
            ("[120,20]", "[\"NaN\",20]"),
            ("[120,20]", "20"),
            ("[[30.5,60],[120,20]]", "true"),
        ] {
            assert!(SOUND.contains(sound), "{sound}");
            let reading = parse(SOUND.replace(sound, nonsense).as_bytes()).unwrap();
            assert_eq!(reading.nonsense, 1, "{nonsense}");
        }
        let older = SOUND.replace(",\"good\":70,\"response_ms\":[[30.5,60],[120,20]]", "");
        let reading = parse(older.as_bytes()).unwrap();
        assert_eq!(
            (reading.nonsense, &reading.pools[0].classes[0].responses),
            (0, &None),
            "of an older version"
        );
        let fresh = SOUND.replace("\"service_mean_ms\":25.0", "\"service_mean_ms\":null");
        let reading = parse(fresh.as_bytes()).unwrap();
        assert_eq!((reading.nonsense, reading.pools[0].classes[0].service), (0, None));
    }

    #[test]
    fn what_is_no_answer_of_a_sentry_is_said() {
        for text in ["", "{}", "[]", "{\"pools\":7}", "only GET\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
