//! Names and texts of Rust from names and texts of XML.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use chappe_machine::is_invisible;

/// Words that are no identifiers (Rust reference, keywords, editions up to 2024).
const KEYWORDS: [&str; 52] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false",
    "fn", "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub",
    "ref", "return", "static", "struct", "trait", "true", "type", "unsafe", "use", "where",
    "while", "abstract", "become", "box", "do", "final", "macro", "override", "priv", "try",
    "typeof", "unsized", "virtual", "yield", "self", "super", "crate", "Self",
];
/// Keywords that `r#` does not make identifiers.
const NEVER_RAW: [&str; 4] = ["self", "super", "crate", "Self"];
/// Type names that the written code uses with another meaning.
const TAKEN: [&str; 19] = [
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Duration",
    "Err",
    "Fault",
    "Infallible",
    "Message",
    "None",
    "Ok",
    "Option",
    "PartialEq",
    "Result",
    "Samples",
    "Some",
    "String",
    "SystemTime",
    "Vec",
];
/// Characters of a line of documentation.
const LINE_MAX: usize = 92;

/// Characters that start code, emphasis, links, HTML, headings, quotes or tables in Markdown.
const MARKDOWN: [char; 12] = ['`', '~', '<', '>', '[', ']', '*', '_', '#', '|', '\\', '&'];

/// The names in one scope, which differ, with the last number that each was given.
#[derive(Debug, Default)]
pub(super) struct Scope(HashMap<String, usize>);

impl Scope {
    /// The names of types in a module.
    pub(super) fn of_types() -> Self {
        Self(TAKEN.map(|name| (name.to_owned(), 1)).into())
    }

    /// A name that is not taken: this one, or with the first number that makes it new.
    pub(super) fn take(&mut self, name: String) -> String {
        let mut number = match self.0.entry(name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(1);
                return name;
            }
            Entry::Occupied(entry) => *entry.get(),
        };
        loop {
            number += 1;
            let numbered = format!("{name}{number}");
            if let Entry::Vacant(entry) = self.0.entry(numbered.clone()) {
                entry.insert(1);
                self.0.insert(name, number);
                return numbered;
            }
        }
    }
}

/// The words of a name: `setPeriod_2`, `SetPeriod2` and `set-period-2` have the same.
fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = vec![String::new()];
    for (index, character) in characters.iter().enumerate() {
        if !character.is_ascii_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = index.checked_sub(1).and_then(|index| characters.get(index));
        let after = characters.get(index + 1);
        let is_start = character.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase() || after.is_some_and(char::is_ascii_lowercase)
            });
        if is_start {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// `SetPeriod`, for types and variants.
pub(super) fn pascal(name: &str) -> String {
    let words = words(name).into_iter().map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    });
    let name = words.collect::<String>();
    match name.chars().next() {
        None => "Unnamed".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("N{name}"),
        Some(_) if name == "Self" => "SelfType".to_owned(),
        Some(_) => name,
    }
}

/// `set_period`, for fields and modules.
pub(super) fn snake(name: &str) -> String {
    let name = words(name).join("_");
    match name.chars().next() {
        None => "unnamed".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("n{name}"),
        Some(_) => name,
    }
}

/// `SET_PERIOD`, for constants.
pub(super) fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

/// The name as an identifier.
pub(super) fn identifier(name: &str) -> String {
    match name {
        _ if NEVER_RAW.contains(&name) => format!("{name}_"),
        _ if KEYWORDS.contains(&name) => format!("r#{name}"),
        _ => name.to_owned(),
    }
}

/// The text of a literal.
pub(super) fn literal(text: &str) -> String {
    format!("{text:?}")
}

/// Text of a device for documentation: none of it is Markdown, so that it holds no code, which `cargo test` would run.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if MARKDOWN.contains(&character) {
            plain.push('\\');
        }
        plain.push(character);
    }
    plain
}

/// A name of a device for documentation: as code, if it is only a name.
pub(super) fn named(name: &str) -> String {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match !name.is_empty() && name.chars().all(is_of_name) {
        true => format!("`{name}`"),
        false => plain(name),
    }
}

/// The first word of a line of documentation, so that it starts no list, heading, rule or block of code.
fn first_word(word: &str) -> String {
    let number = word.strip_suffix(['.', ')']);
    let is_mark = word.chars().all(|c| matches!(c, '-' | '+' | '=' | ':'));
    match number {
        _ if is_mark || word.starts_with("```") || word.starts_with("~~~") => format!("\\{word}"),
        Some(number) if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) => {
            format!("{number}\\{}", word.get(number.len()..).unwrap_or_default())
        }
        _ => word.to_owned(),
    }
}

/// Lines of a comment, each after `start`. In documentation, text of a device is [`plain`] or [`named`].
pub(super) fn comment(start: &str, text: &str) -> Vec<String> {
    let text: String = text
        .chars()
        .map(|character| {
            if is_invisible(character) {
                ' '
            } else {
                character
            }
        })
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < LINE_MAX => {
                line.push(' ');
                line.push_str(word);
            }
            _ if start.ends_with("///") || start.ends_with("//!") => {
                lines.push(format!("{start} {}", first_word(word)));
            }
            _ => lines.push(format!("{start} {word}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_rust() {
        for (name, type_name, field) in [
            ("SetPeriod", "SetPeriod", "set_period"),
            ("set-period.2", "SetPeriod2", "set_period_2"),
            ("HTTPServer", "HttpServer", "http_server"),
            ("mV", "MV", "m_v"),
            ("2nd", "N2nd", "n2nd"),
            ("Größe", "GrE", "gr_e"),
            ("_", "Unnamed", "unnamed"),
            ("self", "SelfType", "self"),
        ] {
            assert_eq!(
                (&*pascal(name), &*snake(name)),
                (type_name, field),
                "{name}"
            );
        }
        assert_eq!(identifier("type"), "r#type");
        assert_eq!(identifier("self"), "self_");
        let mut scope = Scope::of_types();
        assert_eq!(scope.take("Option".into()), "Option2");
        assert_eq!(scope.take("Option".into()), "Option3");
    }

    #[test]
    fn comments_stay_comments() {
        let lines = comment("///", "a\u{2028}fn main\r\n() {}\u{202e} b");
        assert_eq!(lines, ["/// a fn main () {} b"]);
        assert!(comment("//", &"word ".repeat(100)).len() > 4);
        for (text, line) in [
            ("1. a - b", "/// 1\\. a - b"),
            ("--- x", "/// \\--- x"),
            ("a_b <c>", "/// a\\_b \\<c\\>"),
        ] {
            assert_eq!(comment("///", &plain(text)), [line]);
        }
        assert_eq!(named("start-pump"), "`start-pump`");
        assert_eq!(named("a ~~~ `b`"), "a \\~\\~\\~ \\`b\\`");
    }

    #[test]
    fn many_names_of_one_spelling_take_linear_time() {
        let mut scope = Scope::default();
        scope.take("a77".into());
        let names: Vec<_> = (0..100_000).map(|_| scope.take("a".into())).collect();
        assert_eq!(names[75..78], ["a76", "a78", "a79"]);
    }

    proptest! {
        #[test]
        fn documentation_of_a_device_has_no_markdown(
            text in prop_oneof![any::<String>(), "[-`~<>\\[\\]*_#|\\\\&+=:.)0-9 \n\ta/]{0,300}"]
        ) {
            for start in ["///", "    //!"] {
                for line in comment(start, &plain(&text)) {
                    let body = line.strip_prefix(start).and_then(|line| line.strip_prefix(' ')).unwrap();
                    prop_assert!(!body.starts_with(char::is_whitespace), "{line:?}");
                    let first = body.split(' ').next().unwrap();
                    prop_assert_eq!(first_word(first), first);
                    let mut characters = body.chars();
                    while let Some(character) = characters.next() {
                        match character {
                            '\\' => prop_assert!(characters.next().is_some_and(|c| c.is_ascii_punctuation())),
                            _ => prop_assert!(!MARKDOWN.contains(&character), "{line:?}"),
                        }
                    }
                }
            }
        }
    }
}
