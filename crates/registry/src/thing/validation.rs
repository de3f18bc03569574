//! The syntactic validation of a Thing Description.
//!
//! Source: Thing Description 1.1, section 5 and appendix B (JSON Schema). Checked are the members
//! that programs need to use a thing: contexts, id, types, titles, security, affordances, forms,
//! links, registration. Data schemas are checked to be objects, their contents are not. A Thing
//! Model is refused: it describes no thing.

use serde_json::{Map, Value};

use super::fault::{Fault, Faults};
use super::registration;
use crate::entity::MAX_TEXT_BYTES;
use crate::vocabulary::td;

type Members = Map<String, Value>;

/// Deepest nesting of a document; reason: data schemas of people have a handful of levels.
pub const MAX_DEPTH: usize = 64;

const PROPERTY_OPERATIONS: &[&str] = &[
    "readproperty",
    "writeproperty",
    "observeproperty",
    "unobserveproperty",
];
const ACTION_OPERATIONS: &[&str] = &["invokeaction", "queryaction", "cancelaction"];
const EVENT_OPERATIONS: &[&str] = &["subscribeevent", "unsubscribeevent"];
const THING_OPERATIONS: &[&str] = &[
    "readallproperties",
    "writeallproperties",
    "readmultipleproperties",
    "writemultipleproperties",
    "observeallproperties",
    "unobserveallproperties",
    "queryallactions",
    "subscribeallevents",
    "unsubscribeallevents",
];

/// Checks a document; `now_ms` is the time before which no registration may expire.
///
/// # Errors
/// Its faults, at least one.
pub(super) fn validate(document: &Value, now_ms: i64) -> Result<(), Vec<Fault>> {
    let mut faults = Faults::default();
    if depth(document) > MAX_DEPTH {
        faults.add(format!("is nested deeper than {MAX_DEPTH} levels"));
        return faults.into_result();
    }
    match document.as_object() {
        Some(thing) => check_thing(thing, now_ms, &mut faults),
        None => faults.add(expected("an object", document)),
    }
    faults.into_result()
}

fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

fn check_thing(thing: &Members, now_ms: i64, faults: &mut Faults) {
    required(thing, "@context", faults, check_context);
    required(thing, "title", faults, check_text);
    if let Some(id) = thing.get("id") {
        faults.at("id", |faults| check_id(id, faults));
    }
    optional(thing, "@type", faults, |types, faults| {
        check_texts(types, faults);
        if texts(types).any(|name| name == "tm:ThingModel") {
            faults.add("is a Thing Model, which describes no thing");
        }
    });
    check_human(thing, faults);
    for name in ["base", "support"] {
        optional(thing, name, faults, check_text);
    }
    required(thing, "securityDefinitions", faults, check_definitions);
    required(thing, "security", faults, |names, faults| {
        check_security(names, thing, faults);
    });
    for (name, operations, is_property) in [
        ("properties", PROPERTY_OPERATIONS, true),
        ("actions", ACTION_OPERATIONS, false),
        ("events", EVENT_OPERATIONS, false),
    ] {
        optional(thing, name, faults, |affordances, faults| {
            each_member(affordances, faults, |affordance, faults| {
                check_affordance(affordance, thing, operations, is_property, faults);
            });
        });
    }
    optional(thing, "forms", faults, |forms, faults| {
        each_item(forms, faults, |form, faults| {
            check_form(form, thing, THING_OPERATIONS, faults);
            if form.is_object() && form.get("op").is_none() {
                faults.add("op is required in a form of the thing");
            }
        });
    });
    optional(thing, "links", faults, |links, faults| {
        each_item(links, faults, |link, faults| match link.as_object() {
            Some(link) => {
                required(link, "href", faults, check_text);
                for name in ["rel", "type", "anchor"] {
                    optional(link, name, faults, check_text);
                }
            }
            None => faults.add(expected("an object", link)),
        });
    });
    optional(thing, "registration", faults, |value, faults| {
        registration::check(value, now_ms, faults);
    });
}

fn check_context(context: &Value, faults: &mut Faults) {
    match context {
        Value::String(_) => {}
        Value::Array(contexts) => {
            for (index, context) in contexts.iter().enumerate() {
                if !context.is_string() && !context.is_object() {
                    faults.at(index, |faults| {
                        faults.add(expected("a string or an object", context));
                    });
                }
            }
        }
        other => return faults.add(expected("a string or an array", other)),
    }
    let is_td = |name: &str| name == td::TD_CONTEXT || name == td::TD_1_0_CONTEXT;
    if !texts(context).any(is_td) {
        faults.add(format!("{:?} is required", td::TD_CONTEXT));
    }
}

fn check_id(id: &Value, faults: &mut Faults) {
    match id.as_str() {
        None => faults.add(expected("a string", id)),
        Some(id) if id.len() > MAX_TEXT_BYTES => {
            faults.add(format!("is longer than {MAX_TEXT_BYTES} bytes"));
        }
        Some(id) if oxrdf::NamedNode::new(id).is_err() => faults.add("is not an absolute IRI"),
        Some(_) => {}
    }
}

/// The texts in other languages.
fn check_human(members: &Members, faults: &mut Faults) {
    optional(members, "description", faults, check_text);
    for name in ["titles", "descriptions"] {
        optional(members, name, faults, |languages, faults| {
            each_member(languages, faults, check_text);
        });
    }
}

fn check_definitions(definitions: &Value, faults: &mut Faults) {
    each_member(definitions, faults, |definition, faults| {
        match definition.as_object() {
            Some(definition) => required(definition, "scheme", faults, check_text),
            None => faults.add(expected("an object", definition)),
        }
    });
    if definitions.as_object().is_some_and(Map::is_empty) {
        faults.add("has no member");
    }
}

fn check_security(names: &Value, thing: &Members, faults: &mut Faults) {
    check_texts(names, faults);
    if names.as_array().is_some_and(Vec::is_empty) {
        faults.add("has no item");
    }
    let definitions = thing.get("securityDefinitions").and_then(Value::as_object);
    let Some(definitions) = definitions else {
        return;
    };
    if let Some(name) = texts(names).find(|name| !definitions.contains_key(*name)) {
        faults.add(format!("{name:.80?} is not in securityDefinitions"));
    }
}

fn check_affordance(
    affordance: &Value,
    thing: &Members,
    operations: &[&str],
    is_property: bool,
    faults: &mut Faults,
) {
    let Some(members) = affordance.as_object() else {
        return faults.add(expected("an object", affordance));
    };
    optional(members, "@type", faults, check_texts);
    optional(members, "title", faults, check_text);
    check_human(members, faults);
    let schemas: &[&str] = match is_property {
        true => &["items", "properties", "uriVariables"],
        false => &[
            "input",
            "output",
            "data",
            "subscription",
            "cancellation",
            "uriVariables",
        ],
    };
    for name in schemas {
        optional(members, name, faults, |schema, faults| {
            let is_list = *name == "items" && schema.is_array();
            if !schema.is_object() && !is_list {
                faults.add(expected("an object", schema));
            }
        });
    }
    required(members, "forms", faults, |forms, faults| {
        if forms.as_array().is_some_and(Vec::is_empty) {
            faults.add("has no item");
        }
        each_item(forms, faults, |form, faults| {
            check_form(form, thing, operations, faults);
        });
    });
}

fn check_form(form: &Value, thing: &Members, operations: &[&str], faults: &mut Faults) {
    let Some(form) = form.as_object() else {
        return faults.add(expected("an object", form));
    };
    required(form, "href", faults, check_text);
    for name in ["contentType", "contentCoding", "subprotocol"] {
        optional(form, name, faults, check_text);
    }
    optional(form, "op", faults, |value, faults| {
        check_texts(value, faults);
        if let Some(other) = texts(value).find(|name| !operations.contains(name)) {
            faults.add(format!(
                "{other:.80?} is not one of {}",
                operations.join(", ")
            ));
        }
    });
    optional(form, "security", faults, |names, faults| {
        check_security(names, thing, faults);
    });
}

fn required(
    members: &Members,
    name: &str,
    faults: &mut Faults,
    check: impl FnOnce(&Value, &mut Faults),
) {
    match members.get(name) {
        Some(value) => faults.at(name, |faults| check(value, faults)),
        None => faults.add(format!("{name} is required")),
    }
}

fn optional(
    members: &Members,
    name: &str,
    faults: &mut Faults,
    check: impl FnOnce(&Value, &mut Faults),
) {
    if let Some(value) = members.get(name) {
        faults.at(name, |faults| check(value, faults));
    }
}

fn each_member(value: &Value, faults: &mut Faults, mut check: impl FnMut(&Value, &mut Faults)) {
    match value.as_object() {
        Some(members) => {
            for (name, member) in members {
                faults.at(name, |faults| check(member, faults));
            }
        }
        None => faults.add(expected("an object", value)),
    }
}

fn each_item(value: &Value, faults: &mut Faults, mut check: impl FnMut(&Value, &mut Faults)) {
    match value.as_array() {
        Some(items) => {
            for (index, item) in items.iter().enumerate() {
                faults.at(index, |faults| check(item, faults));
            }
        }
        None => faults.add(expected("an array", value)),
    }
}

fn check_text(value: &Value, faults: &mut Faults) {
    if !value.is_string() {
        faults.add(expected("a string", value));
    }
}

fn check_texts(value: &Value, faults: &mut Faults) {
    match value {
        Value::String(_) => {}
        Value::Array(items) => {
            if let Some(other) = items.iter().find(|item| !item.is_string()) {
                faults.add(expected("strings", other));
            }
        }
        other => faults.add(expected("a string or an array of strings", other)),
    }
}

/// The texts of a member that is one or an array of them.
pub(super) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items.iter().filter_map(Value::as_str)
}

/// The message that something else is required.
pub(super) fn expected(wanted: &str, given: &Value) -> String {
    let given = match given {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    format!("is {given}, not {wanted}")
}
