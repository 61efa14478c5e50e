//! Statements as they may be told: with their literals masked, since those are somebody's data or password.

/// Longest statement that is told, in characters.
const LONGEST: usize = 200;

/// The statement on one line, every string and number in it replaced by `?`, comments left out.
pub fn mask(statement: &str) -> String {
    let mut out = String::new();
    let mut rest = statement;
    let mut word = false;
    while let Some(c) = rest.chars().next() {
        if out.chars().count() >= LONGEST {
            out.push('…');
            break;
        }
        let (shown, taken) = token(rest, c, word);
        word = c.is_alphanumeric() || c == '_' || c == '"';
        match shown {
            Shown::Space if !out.is_empty() && !out.ends_with(' ') => out.push(' '),
            Shown::Space => {}
            Shown::Mask => out.push('?'),
            Shown::As(c) => out.push(c),
            Shown::Name(bytes) => out.extend(rest[..bytes].chars().filter(|c| !c.is_control())),
        }
        rest = &rest[taken.min(rest.len())..];
    }
    out.trim_end().to_owned()
}

enum Shown {
    Space,
    Mask,
    As(char),
    /// So many bytes as they are: a quoted name.
    Name(usize),
}

/// What is shown for what stands at the beginning of `rest`, and how many bytes that is.
fn token(rest: &str, c: char, in_word: bool) -> (Shown, usize) {
    match c {
        c if c.is_whitespace() || c.is_control() => (Shown::Space, c.len_utf8()),
        '-' if rest.starts_with("--") => (Shown::Space, rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("/*") => (Shown::Space, rest.find("*/").map_or(rest.len(), |end| end + 2)),
        '\'' => (Shown::Mask, 1 + quoted(&rest[1..])),
        '"' => {
            let end = rest[1..].find('"').map_or(rest.len(), |end| end + 2);
            (Shown::Name(end), end)
        }
        '$' if !in_word => match dollar(rest) {
            Some(end) => (Shown::Mask, end),
            None => (Shown::As(c), 1),
        },
        '0'..='9' if !in_word => {
            let number = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
            (Shown::Mask, rest.find(number).unwrap_or(rest.len()))
        }
        c => (Shown::As(c), c.len_utf8()),
    }
}

/// Up to and with the closing quote; two quotes are one that does not close. A backslash may keep one from closing (`E'\''`): then more
/// is masked than needed, never less.
fn quoted(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', _) => at += 2,
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `$tag$...$tag$`, as far as it goes; nothing for a parameter such as `$1`.
fn dollar(rest: &str) -> Option<usize> {
    let end = rest[1..].find('$')? + 2;
    let tag = &rest[..end];
    let inner = &tag[1..end - 1];
    let fits = inner.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !fits || inner.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(rest[end..].find(tag).map_or(rest.len(), |at| end + at + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_masked() {
        for (statement, shown) in [
            ("SELECT  *\n\tFROM t1 WHERE a = 42.5 AND b='x''y'", "SELECT * FROM t1 WHERE a = ? AND b=?"),
            ("ALTER ROLE app PASSWORD 'hush'", "ALTER ROLE app PASSWORD ?"),
            ("do $x$ hush $x$ -- hush\n; select /* hush */ $1, c2", "do ? ; select $1, c2"),
            ("select E'hush\\' hush', \"C 1\", 1e5", "select E?, \"C 1\", ?"),
            ("select 'hush", "select ?"),
            ("select $$hush", "select ?"),
        ] {
            let masked = mask(statement);
            assert!(!masked.contains("hush"), "{masked}");
            assert_eq!(masked.replace("$?", "$1"), shown, "{statement}");
        }
        assert_eq!(mask(&"x ".repeat(1_000)).chars().count(), LONGEST + 1);
        assert_eq!(mask("sélect 'é' ü"), "sélect ? ü");
    }

    proptest::proptest! {
        #[test]
        fn anything_can_be_masked(statement in ".*") {
            mask(&statement);
        }
    }
}
