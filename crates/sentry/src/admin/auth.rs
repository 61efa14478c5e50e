//! The token of the admin address.

use http::header::AUTHORIZATION;
use http::request::Parts;

/// Whether this request shows the token: `Authorization: Bearer TOKEN`, or `?token=TOKEN` for browsers, which
/// cannot be told to send a header when one follows a link.
pub fn shows(token: &str, request: &Parts) -> bool {
    let bearer = request.headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, shown) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim().to_owned())
    });
    let shown = bearer.or_else(|| super::query(&request.uri, "token"));
    shown.is_some_and(|shown| equal(shown.as_bytes(), token.as_bytes()))
}

/// Compares in a time that depends on the length of what was shown alone.
fn equal(shown: &[u8], secret: &[u8]) -> bool {
    let mut differs = shown.len() ^ secret.len();
    for (i, byte) in shown.iter().enumerate() {
        let against = secret.get(i % secret.len()).copied().unwrap_or(0);
        differs |= usize::from(std::hint::black_box(byte ^ against));
    }
    differs == 0
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str, authorization: &str) -> Parts {
        let request = Request::builder().uri(uri).header(AUTHORIZATION, authorization);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_the_token_opens() {
        for (uri, authorization, opens) in [
            ("/metrics", "Bearer correct-horse", true),
            ("/metrics", "bearer correct-horse", true),
            ("/?token=correct-horse", "", true),
            ("/?seconds=9&token=correct-horse", "", true),
            ("/", "", false),
            ("/", "Bearer", false),
            ("/", "Bearer ", false),
            ("/", "Bearer correct-hors", false),
            ("/", "Bearer correct-horsecorrect-horse", false),
            ("/", "Basic correct-horse", false),
            ("/?token=", "", false),
            ("/?token=correct-horse", "Bearer wrong", false),
        ] {
            assert_eq!(shows("correct-horse", &parts(uri, authorization)), opens, "{uri} {authorization}");
        }
    }
}
