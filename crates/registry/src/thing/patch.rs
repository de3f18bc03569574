//! JSON merge patches (RFC 7396): applying one, and finding the one between two documents.

use serde_json::{Map, Value};

/// Applies `patch` to `target` (RFC 7396, section 2).
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else {
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => drop(members.remove(&name)),
            value => merge(members.entry(name).or_insert(Value::Null), value),
        }
    }
}

/// The patch that makes `after` of `before`. It is exact for documents that have no member null,
/// which a patch cannot set; such members are left out.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(known) if known == value => {}
            Some(known) if known.is_object() => {
                patch.insert(name.clone(), difference(known, value));
            }
            _ => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Section 2 word by word, on values instead of places.
    fn naive(target: &Value, patch: &Value) -> Value {
        let Some(patch) = patch.as_object() else {
            return patch.clone();
        };
        let mut result = target.as_object().cloned().unwrap_or_default();
        for (name, value) in patch {
            if value.is_null() {
                result.remove(name);
            } else {
                let known = result.get(name).cloned().unwrap_or(Value::Null);
                result.insert(name.clone(), naive(&known, value));
            }
        }
        Value::Object(result)
    }

    fn document(has_null: bool) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(if has_null { Value::Null } else { json!(false) }),
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn the_examples_of_appendix_a() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut patched = target.clone();
            merge(&mut patched, patch.clone());
            assert_eq!(patched, result, "{target} with {patch}");
        }
    }

    proptest! {
        #[test]
        fn merging_is_what_the_standard_says(target in document(true), patch in document(true)) {
            let mut patched = target.clone();
            merge(&mut patched, patch.clone());
            prop_assert_eq!(patched, naive(&target, &patch));
        }

        #[test]
        fn the_difference_leads_from_one_document_to_the_other(
            before in document(false), after in document(false),
        ) {
            let mut patched = before.clone();
            merge(&mut patched, difference(&before, &after));
            prop_assert_eq!(patched, after);
        }
    }
}
