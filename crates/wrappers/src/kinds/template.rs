//! Texts of commands, whose placeholders are the arguments of a call: `SET {value}`.

use serde_json::{Map, Value};

/// Longest template, and longest text that is made from it.
pub(in crate::kinds) const TEXT_BYTES_MAX: usize = 4 << 10;

/// A template; `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    /// Divides a text.
    ///
    /// # Errors
    /// Why it is no template.
    pub(in crate::kinds) fn parse(template: &str) -> Result<Self, &'static str> {
        if template.len() > TEXT_BYTES_MAX {
            return Err("the text is too long");
        }
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{") {
                text.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                text.push('}');
                rest = after;
            } else {
                let inner = rest.strip_prefix('{').ok_or("a brace is not opened")?;
                let (name, after) = inner.split_once('}').ok_or("a brace is not closed")?;
                if name.is_empty() || name.contains('{') {
                    return Err("a placeholder has no name");
                }
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Argument(name.to_owned()));
                rest = after;
            }
        }
        text.push_str(rest);
        pieces.push(Piece::Text(text));
        Ok(Self(pieces))
    }

    /// The names of its placeholders.
    pub(in crate::kinds) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(&**name),
            Piece::Text(_) => None,
        })
    }

    /// The text of a call.
    ///
    /// # Errors
    /// An argument is missing, or cannot be a part of a text.
    pub(in crate::kinds) fn fill(&self, arguments: &Map<String, Value>) -> Result<String, String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => match argument(arguments, name) {
                    Ok(text) => filled.push_str(&text),
                    Err(reason) => return Err(format!("the argument {name:?} {reason}")),
                },
            }
        }
        Ok(filled)
    }
}

/// An argument as a part of a text. It must not end a line: another command could follow.
pub(in crate::kinds) fn argument(
    arguments: &Map<String, Value>,
    name: &str,
) -> Result<String, &'static str> {
    let text = match arguments.get(name) {
        None => return Err("is missing"),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(_) => return Err("is not a text, number or Boolean"),
    };
    match text.contains(char::is_control) {
        true => Err("has a control character"),
        false => Ok(text),
    }
}
