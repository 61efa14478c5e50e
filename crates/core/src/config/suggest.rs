//! Hints for names that do not exist.

/// `did you mean `allowance`?` where one of the names is near, else all of them.
pub fn did_you_mean(wrong: &str, known: &[&str]) -> String {
    // Names are short; the bound keeps the quadratic distance away from hostile files.
    let distance = |name: &str| strsim::damerau_levenshtein(wrong, name);
    let near = known.iter().filter(|_| wrong.len() <= 64).map(|name| (distance(name), name)).min();
    match near {
        Some((distance, name)) if distance <= 1.max(wrong.chars().count() / 3) => {
            format!("did you mean `{name}`?")
        }
        _ if known.is_empty() => "there are none here; remove it".to_owned(),
        _ => {
            let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("write {}", one_of(&quoted))
        }
    }
}

/// `a`, `a or b`, `a, b or c`.
pub fn one_of<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}
