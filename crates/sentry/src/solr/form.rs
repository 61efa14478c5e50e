//! What a query asks, as it may be told: what users search for stays out of it.

use plimsoll_core::text::shortened;

/// Longest text that is told, in characters.
const LONGEST: usize = 300;
/// Parameters whose values are names and numbers of those who wrote the application.
const PLAIN: [&str; 12] = [
    "rows",
    "start",
    "sort",
    "fl",
    "df",
    "qf",
    "wt",
    "defType",
    "facet",
    "facet.field",
    "group",
    "group.field",
];
/// Words of the query language.
const WORDS: [&str; 4] = ["AND", "OR", "NOT", "TO"];

/// The form of a query in words: `select q=user:? rows=10`.
pub fn of(handler: &str, query: &str) -> String {
    let mut form = handler.to_owned();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if form.len() > 4 * LONGEST {
            break;
        }
        let is_plain = PLAIN.contains(&name.as_ref()) && value.chars().all(is_plain);
        let value = if is_plain { value.into_owned() } else { masked(&value) };
        let name = if name.chars().all(is_plain_name) { name.as_ref() } else { "?" };
        form.push_str(&format!(" {name}={value}"));
    }
    shortened(&form, LONGEST)
}

fn is_plain(c: char) -> bool {
    is_plain_name(c) || matches!(c, ' ' | ',' | '*' | '^')
}

fn is_plain_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Words that stand for values become `?`: those of the language and names of fields, before a colon, stay.
fn masked(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next().filter(|_| shown.len() < 4 * LONGEST) {
        if first == '"' {
            let inside = &rest[1..];
            rest = inside.find('"').map_or("", |end| &inside[end + 1..]);
            shown.push('?');
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let stays = after.starts_with(':') && word.chars().all(is_plain_name) || WORDS.contains(&word);
            shown.push_str(if stays { word } else { "?" });
            rest = after;
        } else {
            shown.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shown
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '\'') || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_query_its_form_is_told() {
        for (query, shown) in [
            ("q=user:hush&rows=10&sort=price+asc", "select q=user:? rows=10 sort=price asc"),
            ("q=%2Bname:%22hush+hush%22+OR+price:%5B1+TO+*%5D", "select q=+name:? OR price:[? TO *]"),
            ("q=%7B!frange+l%3D1%7Dsum(hush)&fl=%5Bhush%5D", "select q={!? ?=?}?(?) fl=[?]"),
            ("q=hush%22hush&sch%C3%B6n=hush", "select q=?? ?=?"),
            ("", "select"),
        ] {
            assert_eq!(of("select", query), shown, "{query}");
        }
        assert_eq!(of("query", &format!("q={}", "(a:b)".repeat(1_000))).chars().count(), LONGEST + 1);
    }

    proptest::proptest! {
        #[test]
        fn anything_can_be_told(query in ".*") {
            assert!(of("select", &query).chars().count() <= LONGEST + 1);
        }
    }
}
