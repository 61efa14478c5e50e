//! The reference docs and the JSON Schema of a file, from the definitions that read it.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::table::{Field, joined};
use super::value::Value;

/// A page of Markdown: one table of keys a section of the file.
pub fn reference<T: Value>(title: &str, introduction: &str) -> String {
    let mut page = format!("# {title}\n\n{introduction}\n");
    let (sections, keys): (Vec<Field>, Vec<Field>) = T::SHAPE
        .fields
        .iter()
        .copied()
        .partition(|field| field.shape.named || !field.shape.fields.is_empty());
    if !keys.is_empty() {
        page.push_str("\n## The file itself\n\nKeys before the first table.\n\n");
        page.push_str("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
        rows("", &keys, &mut page);
    }
    for section in sections {
        let name = if section.shape.named {
            format!("[{}.NAME]", section.key)
        } else {
            format!("[{}]", section.key)
        };
        let _ = write!(page, "\n## `{name}`\n\n{}\n\n", joined(section.doc));
        page.push_str("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
        rows("", section.shape.fields, &mut page);
    }
    page
}

fn rows(prefix: &str, fields: &[Field], page: &mut String) {
    for field in fields {
        let key = format!("{prefix}{}", field.key);
        let kind = (field.shape.kind)();
        let kind = ["a ", "an "].iter().find_map(|article| kind.strip_prefix(article)).unwrap_or(&kind);
        let range = field.range.map(|(low, high)| format!(", {low} to {high}")).unwrap_or_default();
        let inner = field.shape.fields;
        let default = match field.default {
            _ if field.is_required() => "required".to_owned(),
            Some(toml) if inner.is_empty() => format!("`{toml}`"),
            _ => String::new(),
        };
        let only =
            field.only.map(|(selector, values)| format!(" For `{selector}` {} only.", values.join(", ")));
        let meaning = joined(field.doc) + &only.unwrap_or_default();
        let cells = [format!("`{key}`"), format!("{kind}{range}"), default, meaning]
            .map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| {} |", cells.join(" | "));
        rows(&format!("{key}."), inner, page);
    }
}

/// The JSON Schema (draft 2020-12) of a file, for editors.
pub fn json_schema<T: Value>(title: &str) -> Json {
    let mut schema = (T::SHAPE.schema)();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}
