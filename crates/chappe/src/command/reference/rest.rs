//! The page of the REST operations, from the OpenAPI document.

use std::collections::BTreeMap;

use serde_json::Value;

use super::markdown::{head, item, paragraph};
use super::members;

/// The page.
pub(super) fn page() -> String {
    let document = chappe_node::openapi();
    let mut page = head(
        "REST operations",
        "A node serves the same reference as an OpenAPI document with all schemas: `GET /api/v1/openapi.json`. An \
            operation requires the role that is named; reading requires one only if `access.read` is `token`. \
            Every error is a problem with a \
         [code](codes.md).",
    );
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            let tag = operation["tags"][0].as_str().unwrap_or("node");
            let title = format!("{} {path}", method.to_uppercase());
            let group = groups.entry(tag).or_default();
            group.push(self::operation(&title, operation));
        }
    }
    for (tag, operations) in groups {
        page += &format!("## {tag}\n\n{}", operations.concat());
    }
    page.trim_end().to_owned() + "\n"
}

fn operation(title: &str, operation: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut page = format!("### `{title}`\n\n");
    for key in ["summary", "description"] {
        let words = text(&operation[key]);
        if !words.is_empty() {
            page += &paragraph(&words);
        }
    }
    page += &item(0, &format!("Role: {}", text(&operation["x-chappe-role"])));
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let place = match parameter["required"].as_bool() {
            Some(true) => format!("{}, required", text(&parameter["in"])),
            _ => text(&parameter["in"]),
        };
        let name = text(&parameter["name"]);
        page += &item(
            0,
            &format!("`{name}` ({place}): {}", text(&parameter["description"])),
        );
    }
    let body = contents(&operation["requestBody"]);
    if !body.is_empty() {
        page += &item(0, &format!("Body: {body}"));
    }
    let answers = members(&operation["responses"]).into_iter();
    for (status, answer) in answers.filter(|(status, _)| *status != "default") {
        let (words, content) = (text(&answer["description"]), contents(answer));
        let content = match content.is_empty() {
            true => String::new(),
            false => format!(" ({content})"),
        };
        page += &item(0, &format!("{status}: {words}{content}"));
    }
    page + "\n"
}

/// The media types of a body, with the names of their schemas.
fn contents(of: &Value) -> String {
    // Every error has the same.
    let kinds = members(&of["content"]).into_iter();
    let kinds = kinds.filter(|(kind, _)| *kind != "application/problem+json");
    let kinds = kinds.map(|(kind, content)| {
        let schema = content["schema"]["$ref"].as_str();
        match schema.and_then(|path| path.rsplit('/').next()) {
            Some(name) => format!("`{kind}` {name}"),
            None => format!("`{kind}`"),
        }
    });
    kinds.collect::<Vec<_>>().join(", ")
}
