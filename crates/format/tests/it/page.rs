//! Each example of docs/reference/formats.md gives what the page says.

use std::collections::HashMap;
use std::fmt::Write as _;

use chappe_stream::Value;

use crate::common::decode;

/// The fenced blocks of the page by section: language and text.
fn blocks(page: &str) -> Vec<(String, HashMap<String, String>)> {
    let mut sections: Vec<(String, HashMap<String, String>)> = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((title.to_owned(), HashMap::new()));
        }
        let Some((_, blocks)) = sections.last_mut() else {
            continue;
        };
        match (line.strip_prefix("```"), &open) {
            (Some(language), None) => open = Some(language.to_owned()),
            (Some(_), Some(_)) => open = None,
            (None, Some(language)) => {
                let text = blocks.entry(language.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    sections
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Double(number) => {
            let rounded = format!("{number:.9}");
            rounded
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        }
        Value::Text(text) => text.clone(),
        Value::Bytes(bytes) => format!("{bytes:?}"),
        Value::Samples(samples) => format!("{:?}", samples.values),
    }
}

#[test]
fn the_examples_of_the_page_hold() {
    let page = include_str!("../../../../docs/reference/formats.md");
    let mut examples = 0;
    for (title, blocks) in blocks(page) {
        let (Some(config), Some(wanted)) = (blocks.get("toml"), blocks.get("elements")) else {
            continue;
        };
        let body = match (blocks.get("message"), blocks.get("message-hex")) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(text)) => {
                let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
                let pair = |pair: &[u8]| {
                    let pair = std::str::from_utf8(pair).unwrap();
                    u8::from_str_radix(pair, 16).unwrap()
                };
                digits.chunks(2).map(pair).collect()
            }
            _ => panic!("{title} has no message"),
        };
        let mut names = Vec::new();
        for part in config.split("name = \"").skip(2) {
            names.push(part.split('"').next().unwrap());
        }
        let (elements, faults) = decode(config, &body);
        let mut found = String::new();
        for (stream, element) in elements {
            let key = element.key.map_or(String::new(), |key| format!("{key} "));
            let _ = write!(found, "{stream} {key}{}", element.source_time);
            let fields = names[names.len() - element.values.len()..].iter();
            for (name, value) in fields.zip(&element.values) {
                let _ = write!(found, " {name}={}", shown(value));
            }
            found.push('\n');
        }
        assert_eq!(found, *wanted, "{title}: {faults:?}");
        let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
        assert_eq!(
            faults,
            blocks.get("faults").cloned().unwrap_or_default(),
            "{title}"
        );
        examples += 1;
    }
    assert_eq!(examples, 9);
}
