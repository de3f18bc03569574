//! Goal: queries follow RFC 9535, and end.
//! Method: the JSONPath Compliance Test Suite (`tests/data/README.md`); random queries on random documents.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

const STEPS: u64 = 1_000_000;

#[test]
fn the_compliance_suite_passes() {
    let text = include_str!("../../../tests/data/jsonpath-cts.json");
    let cases: Vec<Json> = serde_json::from_str(text).unwrap();
    assert!(cases.len() >= 700);
    let mut wrong = Vec::new();
    for case in &cases {
        let (name, selector) = (&case["name"], case["selector"].as_str().unwrap());
        let path = JsonPath::parse(selector);
        if case["invalid_selector"] == true {
            if path.is_ok() {
                wrong.push(format!("{name}: {selector} is accepted"));
            }
            continue;
        }
        let path = match path {
            Ok(path) => path,
            Err(error) => {
                wrong.push(format!("{name}: {selector}: {error}"));
                continue;
            }
        };
        let document = &case["document"];
        let found = path.select(document, &mut Work::new(STEPS)).unwrap();
        let found = Json::Array(found.into_iter().cloned().collect());
        let is_right = match case.get("results") {
            Some(Json::Array(results)) => results.contains(&found),
            _ => case["result"] == found,
        };
        if !is_right {
            wrong.push(format!("{name}: {selector} selects {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_expensive_query_ends() {
    let mut document = json!(1);
    for _ in 0..60 {
        document = json!([document, vec![1; 30]]);
    }
    for query in [
        "$..*..*..*..*..*",
        "$..[?count($..*) > 1]",
        "$..[?@..[?@..[?@..*]]]",
        "$..[?$..*[?match(@, $..*)] == 1]",
    ] {
        let Ok(path) = JsonPath::parse(query) else {
            continue;
        };
        let outcome = path.select(&document, &mut Work::new(STEPS));
        assert_eq!(outcome.err(), Some(OutOfWork), "{query}");
    }
}

#[test]
fn deep_nesting_and_long_queries_are_refused() {
    let deep = format!("$[?{}@{}]", "(".repeat(100), ")".repeat(100));
    let deep_query = format!("${}{}", "[?@".repeat(100), "]".repeat(100));
    let long = format!("$.{}", "a".repeat(PATH_BYTES_MAX));
    for query in [deep, deep_query, long] {
        assert!(JsonPath::parse(&query).is_err());
    }
}

#[test]
fn large_integers_compare_exactly() {
    let document: Json = serde_json::from_str("[9007199254740993, 9007199254740992]").unwrap();
    let path = JsonPath::parse("$[?@ == 9007199254740993]").unwrap();
    let found = path.select(&document, &mut Work::new(STEPS)).unwrap();
    assert_eq!(found, [&document[0]]);
}

#[test]
fn a_singular_query_has_the_first_node() {
    let document = json!({"a": [1, {"b": 2}]});
    for (query, wanted) in [
        ("$.a[-1].b", Some(json!(2))),
        ("$.a[0].b", None),
        ("$.a[*]", Some(json!(1))),
        ("$['a'][5]", None),
        ("$", Some(document.clone())),
    ] {
        let path = JsonPath::parse(query).unwrap();
        let found = path.first(&document, &mut Work::new(STEPS)).unwrap();
        assert_eq!(found.cloned(), wanted, "{query}");
    }
}

fn document() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        "[a-c]{0,3}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(Json::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn no_query_panics(
        tail in "[$@.*?\\[\\]()'a-c0-9:,!=<>&|\\\\ -]{0,24}", document in document(),
    ) {
        if let Ok(path) = JsonPath::parse(&format!("${tail}")) {
            let all = path.select(&document, &mut Work::new(10_000));
            let first = path.first(&document, &mut Work::new(10_000));
            if let (Ok(all), Ok(first)) = (all, first) {
                prop_assert_eq!(all.first().copied(), first);
            }
        }
    }

    #[test]
    fn all_descendants_are_all_values(document in document()) {
        fn count(json: &Json) -> usize {
            match json {
                Json::Array(items) => items.len() + items.iter().map(count).sum::<usize>(),
                Json::Object(members) => members.len() + members.values().map(count).sum::<usize>(),
                _ => 0,
            }
        }
        let path = JsonPath::parse("$..*").unwrap();
        let found = path.select(&document, &mut Work::new(STEPS)).unwrap();
        prop_assert_eq!(found.len(), count(&document));
    }
}

#[test]
fn a_query_of_each_item_selects_alike_from_all_and_from_each() {
    let items = [
        json!({"a": 1, "b": {"a": 2}}),
        json!({"a": 3, "c": ["x", "y"]}),
        json!([4]),
    ];
    let all = Json::from(items.to_vec());
    for (text, is_per_item) in [
        ("$[*]", true),
        ("$[*].a", true),
        ("$[?@.a > 1]", true),
        ("$[?@.a].c[1]", true),
        ("$[*]..a", true),
        ("$[?count(@..a) == 2].b", true),
        ("$", false),
        ("$[0]", false),
        ("$[0, 1]", false),
        ("$[*, 0]", false),
        ("$..a", false),
        ("$[?@.a == $[0].a]", false),
        ("$[*][?count($..a) > 1]", false),
        ("$[*][?match(@, $[0])]", false),
        ("$[?!(@.a && length($) > 1)]", false),
    ] {
        let query = JsonPath::parse(text).unwrap();
        assert_eq!(query.is_per_item(), is_per_item, "{text}");
        if is_per_item {
            let of_all = query.select(&all, &mut Work::new(1_000)).unwrap();
            let mut of_each = Vec::new();
            let alone: Vec<Json> = items.iter().map(|item| json!([item])).collect();
            for item in &alone {
                of_each.extend(query.select(item, &mut Work::new(1_000)).unwrap());
            }
            assert_eq!(of_all, of_each, "{text}");
        }
    }
}
