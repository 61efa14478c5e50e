//! Statements as they may be told: with their literals masked, since those are somebody's data or password. And errors.

use percent_encoding::percent_decode_str;

/// Longest statement that is told, in characters.
const LONGEST: usize = 200;

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL's: names in double quotes, strings between dollars.
    Postgres,
    /// MariaDB's: names in backquotes, strings in double quotes as in single ones, comments from a `#` on.
    MariaDb,
}

impl Dialect {
    /// Whether two dashes are a comment before this: to MariaDB `1--1` is two.
    fn comments_from(self, after: &str) -> bool {
        self == Dialect::Postgres || after.chars().next().is_none_or(|c| c.is_whitespace() || c.is_control())
    }
}

/// A text without the password of a connection, however that is written in the latter: as in a URL or among keywords.
pub fn without_password(dsn: &str, text: String) -> String {
    let of_url = dsn.split_once("://").and_then(|(_, rest)| {
        let authority = rest.split(['/', '?']).next()?;
        Some(authority.rsplit_once('@')?.0.split_once(':')?.1)
    });
    let of_keyword = dsn.split_once("password=").and_then(|(_, rest)| match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next(),
        None => rest.split([' ', '&']).next(),
    });
    let written = [of_url, of_keyword].into_iter().flatten().filter(|password| !password.is_empty());
    written.fold(text, |text, password| {
        let meant = percent_decode_str(password).decode_utf8_lossy();
        text.replace(password, "...").replace(&*meant, "...")
    })
}

/// The statement on one line, every string and number in it replaced by `?`, comments left out.
pub fn mask(statement: &str, dialect: Dialect) -> String {
    let mut out = String::new();
    let mut rest = statement;
    let mut before = Before::default();
    while let Some(c) = rest.chars().next() {
        if out.chars().count() >= LONGEST {
            out.push('…');
            break;
        }
        let (shown, taken) = token(rest, c, before, dialect);
        before = before.then(&shown, c);
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

/// What a token follows.
#[derive(Clone, Copy, Default)]
struct Before {
    /// A letter or a digit, so that a digit is part of a name.
    word: bool,
    /// What may be in a name, so that a `$` or an `E` is, too.
    name: bool,
    /// An `E` that is a word by itself: in the string that follows a backslash escapes.
    escapes: bool,
}

impl Before {
    /// After one more, which begins with `c`.
    fn then(self, shown: &Shown, c: char) -> Before {
        if matches!(shown, Shown::Mask | Shown::Name(_)) {
            return Before::default();
        }
        let word = c.is_alphanumeric() || c == '_';
        // To the server all that is not ASCII is a letter.
        let name = word || c == '$' || !c.is_ascii();
        Before { word, name, escapes: !self.name && matches!(c, 'E' | 'e') }
    }
}

/// What is shown for what stands at the beginning of `rest`, and how many bytes that is.
fn token(rest: &str, c: char, before: Before, dialect: Dialect) -> (Shown, usize) {
    let (name, text) = if dialect == Dialect::MariaDb { ('`', '"') } else { ('"', '\'') };
    match c {
        c if c.is_whitespace() || c.is_control() => (Shown::Space, c.len_utf8()),
        '-' if rest.starts_with("--") && dialect.comments_from(&rest[2..]) => {
            (Shown::Space, rest.find(['\n', '\r']).unwrap_or(rest.len()))
        }
        '/' if rest.starts_with("/*") => (Shown::Space, comment(rest)),
        '#' if dialect == Dialect::MariaDb => (Shown::Space, rest.find(['\n', '\r']).unwrap_or(rest.len())),
        '\'' => (Shown::Mask, 1 + quoted(&rest[1..], b'\'', before.escapes && dialect == Dialect::Postgres)),
        c if c == text => (Shown::Mask, 1 + quoted(&rest[1..], b'"', false)),
        c if c == name => {
            let end = rest[1..].find(name).map_or(rest.len(), |end| end + 2);
            (Shown::Name(end), end)
        }
        '$' if !before.name && dialect == Dialect::Postgres => match dollar(rest) {
            Some(end) => (Shown::Mask, end),
            None => (Shown::As(c), 1),
        },
        '0'..='9' if !before.word => {
            let number = |c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_');
            (Shown::Mask, rest.find(number).unwrap_or(rest.len()))
        }
        c => (Shown::As(c), c.len_utf8()),
    }
}

/// Up to and with the end of a comment, in which there may be others.
fn comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at + 1 < bytes.len() {
        match bytes[at..at + 2] {
            [b'/', b'*'] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/'] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Up to and with the closing quote; two quotes are one that does not close. In `E'\''` a backslash `escapes` what follows it. In other strings
/// that depends on a setting of the server, so from a quote after a backslash on all is masked: more than needed, never less.
fn quoted(rest: &str, quote: u8, escapes: bool) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(&next)) if next == quote && !escapes => return rest.len(),
            (b'\\', _) => at += 2,
            (this, Some(&next)) if this == quote && next == quote => at += 2,
            (this, _) if this == quote => return at + 1,
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
    let fits = inner.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii());
    if !fits || inner.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(rest[end..].find(tag).map_or(rest.len(), |at| end + at + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_is_said_back_goes_no_further() {
        for (dsn, said, told) in [
            ("postgres://u:hu%24h@h:1/db", "no hu$h, nor hu%24h", "no ..., nor ..."),
            ("host=h password=hush user=u", "no hush", "no ..."),
            ("password='hu sh' host=h", "no hu sh", "no ..."),
            ("mariadb://h/?password=hush&socket=/s", "no hush", "no ..."),
            ("postgres://u@h/db", "no u@h", "no u@h"),
            ("postgres://u:@h/db", "no u", "no u"),
            ("/run/fpm.sock", "no /run/fpm.sock", "no /run/fpm.sock"),
        ] {
            assert_eq!(without_password(dsn, said.to_owned()), told, "{dsn}");
        }
    }

    #[test]
    fn literals_are_masked() {
        for (statement, shown) in [
            ("SELECT  *\n\tFROM t1 WHERE a = 42.5 AND b='x''y'", "SELECT * FROM t1 WHERE a = ? AND b=?"),
            ("ALTER ROLE app PASSWORD 'hush'", "ALTER ROLE app PASSWORD ?"),
            ("do $x$ hush $x$ -- hush\n; select /* hush */ $1, c2", "do ? ; select $1, c2"),
            ("select E'hush\\' hush', \"C 1\", 1e5", "select E?, \"C 1\", ?"),
            ("select 'hush", "select ?"),
            ("select $$hush", "select ?"),
            ("select $é€$hush$é€$, \"text\"$$hush$$", "select ?, \"text\"?"),
            // Whether the quote closes depends on the server.
            ("LIKE 'x%' ESCAPE '\\' AND token = 'hush'", "LIKE ? ESCAPE ?"),
            ("select 'C:\\x\\', 'hush'", "select ?"),
            ("select 'hush\\' hush', c", "select ?"),
            // Here it does, or does not, on all of them.
            ("select 'C:\\\\', b, 'hush'", "select ?, b, ?"),
            ("select e'hush\\' hush', b", "select e?, b"),
            ("select e'hush\\\\', b", "select e?, b"),
            // Names that end in E, and an E that is one.
            ("select somee'x\\', 'hush'", "select somee?"),
            ("select a$E'x\\', 'hush'", "select a$E?"),
            ("select €e'x\\', 'hush'", "select €e?"),
            ("select e /**/'x\\', 'hush'", "select e ?"),
            ("select /* /* */ ' */ 'hush', a", "select ?, a"),
            ("select a -- '\r, 'x\nhush', b", "select a , ?, b"),
            ("select 1_000, 2", "select ?, ?"),
        ] {
            let masked = mask(statement, Dialect::Postgres);
            assert!(!masked.contains("hush"), "{masked}");
            assert_eq!(masked.replace("$?", "$1"), shown, "{statement}");
        }
        assert_eq!(mask(&"x ".repeat(1_000), Dialect::Postgres).chars().count(), LONGEST + 1);
        assert_eq!(mask("sélect 'é' ü", Dialect::Postgres), "sélect ? ü");
    }

    #[test]
    fn what_is_a_literal_depends_on_whose_sql_it_is() {
        for (statement, shown) in [
            ("select \"hush\", `C 1` from `t`", "select ?, `C 1` from `t`"),
            ("select \"it's hush\", 'a \"hush\"', b", "select ?, ?, b"),
            ("select a # it's\n, 'hush', b", "select a , ?, b"),
            ("select $a$, '$a$ hush', b", "select $a$, ?, b"),
            ("select 'hush\\' hush', b", "select ?"),
            ("SET PASSWORD = PASSWORD(\"hush\")", "SET PASSWORD = PASSWORD(?)"),
            ("set a = 1--'x\nhush', b -- hush", "set a = ?--?, b"),
        ] {
            let masked = mask(statement, Dialect::MariaDb);
            assert!(!masked.contains("hush"), "{masked}");
            assert_eq!(masked, shown, "{statement}");
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_can_be_masked(statement in ".*") {
            for dialect in [Dialect::Postgres, Dialect::MariaDb] {
                mask(&statement, dialect);
            }
        }
    }
}
