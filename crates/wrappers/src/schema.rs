//! The JSON Schemas of the files of wrappers and exporters: the keys that every kind has, and for each
//! kind those of its own.

use serde_json::{Map, Value, json};

use crate::{ExporterKeys, WrapperKeys, exporter_kinds, wrapper_kinds};

/// The schema of a wrapper file.
#[must_use]
pub fn wrapper_schema() -> Value {
    let common = schemars::schema_for!(WrapperKeys).to_value();
    let kinds = wrapper_kinds().iter();
    combine(
        common,
        kinds.map(|kind| (kind.name, kind.about, (kind.schema)().to_value())),
    )
}

/// The schema of an exporter file.
#[must_use]
pub fn exporter_schema() -> Value {
    let common = schemars::schema_for!(ExporterKeys).to_value();
    let kinds = exporter_kinds().iter();
    combine(
        common,
        kinds.map(|kind| (kind.name, kind.about, (kind.schema)().to_value())),
    )
}

/// One of several objects, by kind.
fn combine(
    mut common: Value,
    kinds: impl Iterator<Item = (&'static str, &'static str, Value)>,
) -> Value {
    let title = common["title"].take();
    let mut definitions = members(&common, "$defs");
    let mut choices = Vec::new();
    for (name, about, mut own) in kinds {
        // Kinds have types of their own with the same names.
        let taken = |(known, value): (String, Value)| {
            let other = definitions.get(&known)?;
            (*other != value).then(|| (format!("{name}_{known}"), known))
        };
        let renamed: Vec<_> = members(&own, "$defs")
            .into_iter()
            .filter_map(taken)
            .collect();
        refer(&mut own, &renamed);
        for (known, value) in members(&own, "$defs") {
            let new = renamed.iter().find(|(_, old)| *old == known);
            definitions.insert(new.map_or(known, |(new, _)| new.clone()), value);
        }
        let mut properties = members(&common, "properties");
        properties.insert(
            "kind".to_owned(),
            json!({ "const": name, "description": about }),
        );
        properties.extend(members(&own, "properties"));
        let required = |schema: &Value| schema["required"].as_array().cloned().unwrap_or_default();
        let required = [required(&common), required(&own)].concat();
        choices.push(json!({
            "title": name,
            "description": about,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "oneOf": choices,
        "$defs": definitions,
    })
}

/// Lets the references of a schema name the new names of definitions; pairs of the new and the old one.
fn refer(schema: &mut Value, renamed: &[(String, String)]) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                let target = value.as_str().and_then(|it| it.strip_prefix("#/$defs/"));
                let new = renamed.iter().find(|(_, old)| Some(old.as_str()) == target);
                match new.filter(|_| key == "$ref") {
                    Some((new, _)) => *value = format!("#/$defs/{new}").into(),
                    None => refer(value, renamed),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| refer(value, renamed)),
        _ => {}
    }
}

fn members(schema: &Value, name: &str) -> Map<String, Value> {
    schema[name].as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_a_choice_with_the_keys_of_all_and_its_own() {
        for schema in [wrapper_schema(), exporter_schema()] {
            let choices = schema["oneOf"].as_array().unwrap();
            let file = choices.iter().find(|it| it["title"] == "file").unwrap();
            assert!(file["properties"]["path"].is_object(), "{file}");
            assert!(file["properties"]["description"].is_object());
            let required = file["required"].as_array().unwrap();
            assert!(required.contains(&json!("path")) && required.contains(&json!("kind")));
        }
    }

    #[test]
    fn types_of_the_same_name_stay_those_of_their_kinds() {
        let schema = wrapper_schema();
        let choices = schema["oneOf"].as_array().unwrap();
        for (kind, start) in [("file", "current"), ("gsn-remote-api", "new")] {
            let it = choices.iter().find(|it| it["title"] == kind).unwrap();
            let target = it["properties"]["start"]["$ref"].as_str().unwrap();
            let target = schema.pointer(target.strip_prefix('#').unwrap()).unwrap();
            let mut values = target["oneOf"].as_array().unwrap().iter();
            assert!(
                values.any(|value| value["const"] == start),
                "{kind}: {target}"
            );
        }
    }
}
