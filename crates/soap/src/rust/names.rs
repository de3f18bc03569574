//! Names and texts of Rust from names and texts of XML.

use std::collections::HashSet;

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

/// The names in one scope, which differ.
#[derive(Debug, Default)]
pub(super) struct Scope(HashSet<String>);

impl Scope {
    /// The names of types in a module.
    pub(super) fn of_types() -> Self {
        Self(TAKEN.map(str::to_owned).into())
    }

    /// A name that is not taken: this one, or with the first number that makes it new.
    pub(super) fn take(&mut self, name: String) -> String {
        let mut taken = name.clone();
        let mut number = 2_usize;
        while !self.0.insert(taken.clone()) {
            taken = format!("{name}{number}");
            number += 1;
        }
        taken
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

/// Characters that only format, such as those that reverse the order of text. Rust refuses them in
/// comments.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Lines of a comment, each after `start`.
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
            _ => lines.push(format!("{start} {word}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
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
    }
}
