//! What a server that speaks HTTP is filled with before a load comes: many lines that are alike.

use plimsoll_core::config::{HttpCall, filled};
use plimsoll_core::rng::seeded;
use rand::RngExt;

use super::http::Http;

/// Lines that are sent in one request.
const AT_ONCE: u32 = 2_000;
/// How a search engine says that it took some lines and others not.
const ERRORS: &str = "\"errors\":true";

/// So many lines, made alike by one seed.
pub struct Fill<'a> {
    /// To where they are sent.
    pub call: &'a HttpCall,
    /// One of them: `?0` is its number, from 1 on, `?1` and so on are drawn.
    pub line: &'a str,
    /// How many.
    pub count: u32,
    /// From where to where, both included.
    pub parameters: &'a [(i64, i64)],
}

impl Fill<'_> {
    /// Sends them.
    ///
    /// # Errors
    /// What the server says.
    pub async fn send(&self, server: &Http) -> Result<(), String> {
        for call in self.calls() {
            let said = server.call(&call).await?;
            if said.contains(ERRORS) {
                let said: String = said.chars().take(500).collect();
                return Err(format!("{} {}: {said}", call.method, call.path));
            }
        }
        Ok(())
    }

    fn calls(&self) -> impl Iterator<Item = HttpCall> {
        let mut rng = seeded(1, 0);
        (0..self.count.div_ceil(AT_ONCE)).map(move |part| {
            let first = part * AT_ONCE;
            let mut body = String::new();
            for number in first..self.count.min(first + AT_ONCE) {
                let drawn = self.parameters.iter().map(|&(from, to)| rng.random_range(from..=to));
                let values: Vec<i64> = std::iter::once(i64::from(number) + 1).chain(drawn).collect();
                body += &filled(self.line, &values);
            }
            HttpCall { body, ..self.call.clone() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_drawn_and_sent_in_parts() {
        let call = "POST /items/_bulk".parse().unwrap();
        let fill = Fill { call: &call, line: "?0 ?1\n", count: 4_500, parameters: &[(5, 9)] };
        let calls: Vec<HttpCall> = fill.calls().collect();
        assert_eq!(calls, fill.calls().collect::<Vec<_>>());
        let bodies: Vec<&str> = calls.iter().map(|call| call.body.as_str()).collect();
        assert_eq!(bodies.iter().map(|body| body.lines().count()).collect::<Vec<_>>(), [2_000, 2_000, 500]);
        for (line, number) in bodies.concat().lines().zip(1..) {
            let (at, drawn) = line.split_once(' ').unwrap();
            assert_eq!(at, number.to_string());
            assert!((5..=9).contains(&drawn.parse::<i64>().unwrap()));
        }
    }
}
