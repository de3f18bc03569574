//! Goal: a good descriptor is parsed correctly, and a bad one is reported with line, column, key
//! and hint.
//! Method: one good text; each bad one differs from it in one place, and the position and text of
//! its error are compared.

use std::time::Duration;

use chappe_stream::descriptor::{DescriptorFault, descriptor_json_schema};
use chappe_stream::{BindingPolicy, Descriptor, Extent, FieldType, LatePolicy, Selection};
use proptest::prelude::*;

const GOOD: &str = r#"name = "ward.heart-rate"
description = "from whatever offers an electrocardiogram"

[[source]]
alias = "ecg"
query = { observed_property = "urn:ecg", unit = "mV", type = "{urn:x}Monitor" }
window = "8s"
slide = "1s"
late = "drop"

[[source]]
alias = "spo2"
stream = "ward.bed1.spo2"
bind = "all"
window = 10

[output]
level = "process"
retention = { elements = 100000, age = "7d" }
sql = """
select max(value) as peak, (select avg(saturation) from spo2) as saturation
from ecg_samples
"""
[[output.field]]
name = "peak"
type = "double"
unit = "mV"
[[output.field]]
name = "saturation"
type = "double"
"#;

#[test]
fn a_descriptor_is_read_as_it_is_meant() {
    let descriptor = Descriptor::parse("x.toml", GOOD).expect("good");
    assert_eq!(descriptor.name, "ward.heart-rate");
    assert_eq!(descriptor.output.stream, "ward.heart-rate");
    let [ecg, spo2] = &descriptor.sources[..] else {
        panic!("two sources");
    };
    assert_eq!(ecg.window, Extent::Time(Duration::from_secs(8)));
    assert_eq!(ecg.slide, Extent::Time(Duration::from_secs(1)));
    assert_eq!(ecg.late, LatePolicy::Drop);
    assert_eq!(ecg.policy, BindingPolicy::One);
    assert!(matches!(&ecg.selection, Selection::Query(q) if q.unit.as_deref() == Some("mV")));
    assert_eq!(spo2.window, Extent::Count(10));
    assert_eq!(spo2.slide, Extent::Count(1));
    assert_eq!(spo2.policy, BindingPolicy::All);
    assert_eq!(descriptor.output.level, chappe_log::Level::Process);
    assert_eq!(descriptor.output.retention.unwrap().elements, Some(100_000));
    assert_eq!(
        descriptor.output.schema.fields[0].field_type,
        FieldType::Double
    );
}

/// The good text with `from` replaced by `to`; position, key, and parts of message and hint.
type Case = (
    &'static str,
    &'static str,
    (usize, usize),
    &'static str,
    &'static str,
    &'static str,
);

#[test]
fn each_fault_is_told_with_place_key_and_hint() {
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("window = \"8s\"", "windw = \"8s\"", (7, 1), "windw", "unknown key", "`window`"),
        ("window = \"8s\"", "window = \"8 sec\"", (7, 10), "window", "is not a time", "10s"),
        ("window = \"8s\"", "window = \"0s\"", (7, 10), "window", "out of range", "above zero"),
        ("window = 10", "window = 0", (15, 10), "window", "out of range", "from 1"),
        ("window = 10", "window = 1000000", (15, 10), "source[1].window", "at most 100000 elements, not 1000000", "smaller"),
        ("window = 10", "window = 10\nwait = \"1s\"", (11, 1), "source[1].wait", "needs a slide of time", "10s"),
        ("window = 10", "window = 10\nclock = \"node\"", (11, 1), "source[1].clock", "needs a slide of time", "10s"),
        ("window = 10", "window = 10\nslide = \"1s\"\nfirst = 2", (17, 9), "source[1].first", "needs a slide of elements", ""),
        ("window = 10", "window = 10\nfirst = 0", (16, 9), "source[1].first", "out of range", ""),
        ("level = \"process\"", "columns = \"all\"", (18, 11), "columns", "not one of exact, any", ""),
        ("window = 10", "window = 10\nkeys = 5", (11, 1), "source[1].keys", "needs `per`", ""),
        ("window = 10", "window = 10\nper = \"key\"\nkeys = 0", (11, 1), "source[1].keys", "out of range", ""),
        ("window = 10", "window = 10\nclock = \"nod\"", (16, 9), "clock", "not one of source, node", "`node`"),
        ("window = 10", "window = 1.5", (15, 10), "window", "a number of elements", ""),
        ("window = 10", "window = -1", (15, 10), "window", "out of range", "from 1"),
        ("[[output.field]]\nname = \"peak\"\ntype = \"double\"\nunit = \"mV\"\n[[output.field]]", "[output.field]", (24, 1),
            "output.field", "must be a list, not a table", "[[output.field]]"),
        ("[[output.field]]\nname = \"peak\"", "[output.field]\nname = \"peak\"", (28, 10), "output.field",
            "duplicate key", "[[output.field]]"),
        ("slide = \"1s\"", "slide = true", (8, 9), "slide", "must be a number of elements, or a time such as \"10s\", not true", ""),
        ("late = \"drop\"", "late = \"dorp\"", (9, 8), "late", "not one of insert, drop", ""),
        ("late = \"drop\"", "late = \"drp\"", (9, 8), "late", "not one of insert, drop", "`drop`"),
        ("bind = \"all\"", "bind = \"each\"", (14, 8), "bind", "not one of one, all", ""),
        ("level = \"process\"", "level = 3", (18, 9), "level", "must be a string", ""),
        ("elements = 100000", "elements = 0", (19, 26), "elements", "from 1", ""),
        ("age = \"7d\"", "age = \"7w\"", (19, 40), "age", "is not a time", "ms, s, m, h, d"),
        ("alias = \"ecg\"", "alias = \"Ecg\"", (5, 9), "source[0].alias", "not a usable alias", "a-z"),
        ("alias = \"spo2\"", "alias = \"ecg\"", (12, 9), "source[1].alias", "another source", ""),
        ("alias = \"ecg\"\n", "", (4, 1), "alias", "missing", ""),
        ("stream = \"ward.bed1.spo2\"", "stream = \"Ward Bed 1\"", (13, 10), "source[1].stream",
            "not a stream name", "ward-bed-1"),
        ("stream = \"ward.bed1.spo2\"\n", "", (11, 1), "source[1].stream", "none of", "name one"),
        ("type = \"{urn:x}Monitor\"", "typ = \"x\"", (6, 55), "typ", "unknown key", "`type`"),
        ("observed_property = \"urn:ecg\", ", "", (6, 9), "source[0].query", "`unit`", "set"),
        ("name = \"peak\"", "name = \"quality\"", (24, 1), "output.field[0].name", "besides", "rename"),
        ("name = \"saturation\"", "name = \"peak\"", (28, 1), "output.field[1].name", "twice", ""),
        ("type = \"double\"\nunit", "type = \"dubble\"\nunit", (26, 8), "type", "not one of", "`double`"),
        ("from ecg_samples", "from egc", (20, 7), "output.sql", "no such table: egc", "sources are"),
        ("from ecg_samples", "frm ecg_samples", (22, 1), "output.sql", "syntax error", ""),
        ("from ecg_samples", "from ecg_samples; drop table ecg", (20, 7), "output.sql",
            "more than one statement", ""),
        ("avg(saturation)", "load_extension('x')", (20, 7), "output.sql", "call load_extension", ""),
        ("name = \"ward.heart-rate\"", "name = ", (1, 8), "name", "string values must be quoted", ""),
    ];
    let mut wrong = Vec::new();
    for (from, to, place, key, message, hint) in cases {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = Descriptor::parse("x.toml", &text).expect_err(to);
        let found = error.hint.clone().unwrap_or_default();
        let fits = (error.line, error.column) == *place
            && error.key == *key
            && error.message.contains(message)
            && found.contains(hint)
            && hint.is_empty() == found.is_empty();
        if !fits {
            wrong.push(format!("{to:?}: {error} (hint: {found})"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_examples_of_the_reference_are_right_and_it_names_every_key() {
    let page = include_str!("../../../../docs/reference/virtual-sensors.md");
    let blocks = page.split("```toml\n").skip(1);
    let examples: Vec<&str> = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    assert_eq!(examples.len(), 9);
    // One is a part of a descriptor.
    for example in examples.iter().filter(|it| it.starts_with("name")) {
        if let Err(error) = Descriptor::parse("virtual-sensors.md", example) {
            panic!("{error}");
        }
    }
    let wrong = examples[0].replace("\"1m\"", "\"8 sec\"");
    let error = Descriptor::parse("mean.toml", &wrong).unwrap_err();
    assert!(
        page.contains(&format!(
            "    {error}\n    hint: {}\n",
            error.hint.clone().unwrap()
        )),
        "{error}"
    );
    let schema = descriptor_json_schema().to_value();
    let mut keys = Vec::new();
    collect_keys(&schema, &mut keys);
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        let named = [format!("`{key}`"), format!(".{key}`")];
        assert!(
            named.iter().any(|named| page.contains(named)),
            "{key} is not in the page"
        );
    }
}

/// The names of all properties of a JSON Schema.
fn collect_keys(schema: &serde_json::Value, keys: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(|it| it.as_object()) {
        keys.extend(properties.keys().cloned());
    }
    match schema {
        serde_json::Value::Object(members) => {
            members.values().for_each(|it| collect_keys(it, keys))
        }
        serde_json::Value::Array(items) => items.iter().for_each(|it| collect_keys(it, keys)),
        _ => {}
    }
}

#[test]
fn a_wrapper_of_a_source_is_read_and_written() {
    let text = r#"
name = "hall"
[[source]]
alias = "a"
window = 3
fallback = [
    { stream = "h.load", wrapper = { kind = "system", prefix = "h" } },
    { wrapper = { kind = "udp", listen = "0.0.0.0:9", format = "json", stream = [{ name = "u", fields = [] }] } },
]
fallback_after = "5s"
[source.wrapper]
kind = "file"
path = "a\nb.csv"
format = { csv = { columns = ["x", "y"] } }
[[source.wrapper.stream]]
name = "f"
fields = [{ name = "v", type = "double" }, { name = "w", type = "text" }]
[output]
sql = "select v from a"
[[output.field]]
name = "v"
type = "double"
"#;
    let descriptor = Descriptor::parse("hall.toml", text).unwrap();
    let source = &descriptor.sources[0];
    let streams = source
        .choices()
        .map(|choice| descriptor.stream_of(choice).unwrap());
    assert_eq!(streams.collect::<Vec<_>>(), ["f", "h.load", "u"]);
    assert_eq!(descriptor.wrapper_name(source, 0), "hall.a");
    assert_eq!(descriptor.wrapper_name(source, 2), "hall.a.3");
    let written = descriptor.to_toml();
    assert_eq!(
        Descriptor::parse("hall.toml", &written),
        Ok(descriptor),
        "{written}"
    );
    for (from, to, line, key) in [
        ("name = \"f\"", "name = \"f.{x}\"", 11, "source[0].wrapper"),
        (
            "prefix = \"h\" }",
            "prefix = \"h\" }, query = { name_prefix = \"\" }",
            7,
            "source[0].fallback[0].query",
        ),
        (
            "{ stream = \"h.load\", wrapper",
            "{ wrapper",
            7,
            "source[0].fallback[0].wrapper",
        ),
        (
            "fallback = [",
            "command = \"x\"\nfallback = [",
            6,
            "source[0].command",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Descriptor::parse("hall.toml", &text.replacen(from, to, 1)).unwrap_err();
        assert_eq!((error.line, &*error.key), (line, key), "{error}");
    }
}

#[test]
fn faults_are_kept_apart() {
    let fault = |text: &str| Descriptor::parse("x.toml", text).unwrap_err().fault;
    assert_eq!(fault("name = \"a\"\nnam = 1"), DescriptorFault::UnknownKey);
    assert_eq!(fault("name = \"a\""), DescriptorFault::MissingKey);
    assert_eq!(fault("name = [1"), DescriptorFault::Syntax);
    assert_eq!(fault(&GOOD.replace("8s", "8x")), DescriptorFault::Value);
    assert_eq!(
        fault(&GOOD.replace("select max", "selct max")),
        DescriptorFault::Sql
    );
}

#[test]
fn an_error_is_one_line_that_editors_understand() {
    let error = Descriptor::parse("a.toml", &GOOD.replace("window = 10", "window = 0"));
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "a.toml:15:10: window: 0 is out of range");
}

#[test]
fn the_fields_of_an_output_are_bounded() {
    let fields = |count: usize| {
        let field = |it| format!("[[output.field]]\nname = \"f{it}\"\ntype = \"double\"\n");
        (0..count).map(field).collect::<String>()
    };
    let head = GOOD.split_once("[[output.field]]").unwrap().0;
    let parse = |text: &str| Descriptor::parse("x.toml", &format!("{head}{text}"));
    assert_eq!(
        parse(&fields(1_000)).unwrap().output.schema.fields.len(),
        1_000
    );
    let error = parse(&fields(1_001)).unwrap_err();
    assert_eq!(error.key, "output.field");
    assert!(
        error.to_string().contains("1001 fields, above 1000"),
        "{error}"
    );
    let repeated = fields(3).replace("f2", "f1");
    assert_eq!(parse(&repeated).unwrap_err().key, "output.field[2].name");
}

#[test]
fn the_json_schema_knows_every_key() {
    let schema = descriptor_json_schema();
    let text = schema.to_value().to_string();
    for key in [
        "observed_property",
        "slide",
        "retention",
        "sql",
        "late",
        "bind",
        "dead_letter",
        "clock",
        "wait",
        "ahead",
        "early",
        "unique_times",
        "per",
        "keys",
        "first",
        "columns",
    ] {
        assert!(text.contains(key), "{key}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,300}") {
        let _ = Descriptor::parse("x.toml", &text);
    }

    #[test]
    fn no_change_of_a_good_text_panics(at in 0..GOOD.len(), with in "[ -~\n\u{e9}]{0,3}", cut in 0_usize..9) {
        let mut text = GOOD.to_owned();
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &with);
        if let Err(error) = Descriptor::parse("x.toml", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1);
        }
    }
}
