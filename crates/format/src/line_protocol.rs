//! The parts of a line of InfluxDB's line protocol, without copies where nothing is escaped:
//! `climate,line=3,machine=press celsius=21.5,people=3i 1795255200000000000`.
//!
//! Source: the InfluxDB line protocol reference (version 2), with the unsigned integers `1u` of version 3.
//! A backslash escapes a comma, an equals sign or a blank; before another character, also a backslash, it is
//! itself. In a string it escapes a quote and a backslash, and a string may have line ends.

use std::borrow::Cow;

/// Why a line is no point, in words of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

impl LineError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A line in its three parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'t> {
    /// The measurement and the tags, as they are written: equal texts name equal series.
    pub series: &'t str,
    /// The fields, for [`Fields`].
    pub fields: &'t str,
    /// The timestamp, if there is one.
    pub time: Option<i64>,
}

/// Where the text ends that begins at the start of `bytes`: at one of the `ends` that is not escaped.
fn end_of(bytes: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'\\' && matches!(bytes.get(at + 1), Some(b',' | b'=' | b' ')) {
            at += 2;
        } else if ends(byte) {
            return at;
        } else {
            at += 1;
        }
    }
    // An escape at the very end.
    at.min(bytes.len())
}

/// The bytes of the string after its opening quote, up to its closing quote; whether one is escaped.
fn end_of_string(bytes: &[u8]) -> Option<(usize, bool)> {
    let (mut at, mut has_escape) = (0, false);
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'"', _) => return Some((at, has_escape)),
            (b'\\', Some(b'"' | b'\\')) => {
                has_escape = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
}

/// The bytes of the next line of a text: up to its line end, which a string may have inside.
#[must_use]
pub fn line_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    if text.trim_start_matches([' ', '\t', '\r']).starts_with('#') {
        return text.find('\n').unwrap_or(text.len());
    }
    let plain = bytes.iter().position(|byte| matches!(byte, b'\n' | b'"'));
    let Some(at) = plain.filter(|at| bytes[*at] == b'"') else {
        return plain.unwrap_or(bytes.len());
    };
    // A quote begins a string only as the value of a field, after the equals sign.
    let line_end = || {
        let rest = bytes[at..].iter().position(|byte| *byte == b'\n');
        rest.map_or(bytes.len(), |rest| at + rest)
    };
    let mut at = end_of(bytes, |byte| matches!(byte, b' ' | b'\n'));
    if bytes.get(at) != Some(&b' ') {
        return at;
    }
    loop {
        let rest = &bytes[at..];
        match rest.first() {
            None => return at,
            Some(b'\n') => return at,
            Some(b'"') if at > 0 && bytes[at - 1] == b'=' => match end_of_string(&rest[1..]) {
                Some((length, _)) => at += length + 2,
                // Without its end, the string is no reason to lose the lines after it.
                None => return line_end(),
            },
            Some(b'\\') if matches!(rest.get(1), Some(b',' | b'=' | b' ')) => at += 2,
            Some(_) => at += 1,
        }
    }
}

impl<'t> Line<'t> {
    /// Divides a line, which is not empty and no comment.
    ///
    /// # Errors
    /// It has no measurement or no field, or its timestamp is no number.
    pub fn parse(text: &'t str) -> Result<Self, LineError> {
        let text = text.trim();
        let at = end_of(text.as_bytes(), |byte| byte == b' ');
        let (series, rest) = text.split_at(at);
        if series.is_empty() || series.starts_with(',') {
            return Err(LineError::new("the measurement is missing"));
        }
        let rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            return Err(LineError::new("a field `key=value` is missing"));
        }
        let end = end_of_fields(rest.as_bytes())?;
        let (fields, time) = rest.split_at(end);
        let time = time.trim();
        let time = match time.is_empty() {
            true => None,
            false => Some(
                time.parse()
                    .map_err(|_| LineError::new(format!("{:?} is not a timestamp", shown(time))))?,
            ),
        };
        Ok(Self {
            series,
            fields,
            time,
        })
    }

    /// The measurement and the tags.
    ///
    /// # Errors
    /// A tag has no key or no value.
    pub fn tags(&self) -> Result<(Cow<'t, str>, Tags<'t>), LineError> {
        let (measurement, mut rest) = token(self.series, |byte| byte == b',');
        let mut tags = Vec::new();
        while let Some(inner) = rest.strip_prefix(',') {
            let (key, after) = token(inner, |byte| matches!(byte, b'=' | b','));
            let value = after.strip_prefix('=').filter(|_| !key.is_empty());
            let Some(value) = value else {
                let text = format!("the tag {:?} has no value", shown(inner));
                return Err(LineError::new(text));
            };
            let (value, after) = token(value, |byte| byte == b',');
            if value.is_empty() {
                return Err(LineError::new(format!("the tag {key:?} has no value")));
            }
            tags.push((key, value));
            rest = after;
        }
        Ok((measurement, tags))
    }

    /// The fields.
    #[must_use]
    pub const fn fields(&self) -> Fields<'t> {
        Fields { rest: self.fields }
    }
}

/// Tags: keys and values without escapes.
pub type Tags<'t> = Vec<(Cow<'t, str>, Cow<'t, str>)>;

/// Where the fields end: at a blank that is neither escaped nor in a string.
fn end_of_fields(bytes: &[u8]) -> Result<usize, LineError> {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b' ' => return Ok(at),
            b'\\' if matches!(bytes.get(at + 1), Some(b',' | b'=' | b' ')) => at += 2,
            b'"' if at > 0 && bytes[at - 1] == b'=' => {
                let missing = || LineError::new("a string has no closing quote");
                at += 2 + end_of_string(&bytes[at + 1..]).ok_or_else(missing)?.0;
            }
            _ => at += 1,
        }
    }
    Ok(at.min(bytes.len()))
}

/// The text up to one of the `ends`, with escapes resolved, and the rest from there.
fn token(text: &str, ends: impl Fn(u8) -> bool) -> (Cow<'_, str>, &str) {
    let (token, rest) = text.split_at(end_of(text.as_bytes(), ends));
    (unescaped(token), rest)
}

/// A key or a tag with its escapes resolved.
#[must_use]
pub fn unescaped(token: &str) -> Cow<'_, str> {
    if !token.contains('\\') {
        return Cow::Borrowed(token);
    }
    let mut plain = String::with_capacity(token.len());
    let mut chars = token.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.next_if(|next| c == '\\' && matches!(next, ',' | '=' | ' '));
        plain.push(next.unwrap_or(c));
    }
    Cow::Owned(plain)
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue<'t> {
    /// `t`, `true`, `f`, `false`.
    Boolean(bool),
    /// `1i`.
    Integer(i64),
    /// `1u`.
    Unsigned(u64),
    /// `1`, `1.5`, `1e3`.
    Double(f64),
    /// `"text"`, without its escapes.
    Text(Cow<'t, str>),
}

/// The fields of a line, one after another: the key as it is written, and the value.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'t> {
    rest: &'t str,
}

impl<'t> Iterator for Fields<'t> {
    type Item = Result<(&'t str, FieldValue<'t>), LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = "";
        }
        Some(field)
    }
}

impl<'t> Fields<'t> {
    fn field(&mut self) -> Result<(&'t str, FieldValue<'t>), LineError> {
        let end = end_of(self.rest.as_bytes(), |byte| matches!(byte, b'=' | b','));
        let (key, after) = self.rest.split_at(end);
        let value = after.strip_prefix('=').filter(|_| !key.is_empty());
        let value = value.ok_or_else(|| LineError::new("a field `key=value` is missing"))?;
        let (value, after) = field_value(value)?;
        self.rest = match (after.is_empty(), after.strip_prefix(',')) {
            (true, _) => "",
            (_, Some("")) | (_, None) => {
                return Err(LineError::new("a field `key=value` is missing"));
            }
            (_, Some(after)) => after,
        };
        Ok((key, value))
    }
}

fn field_value(text: &str) -> Result<(FieldValue<'_>, &str), LineError> {
    if let Some(inner) = text.strip_prefix('"') {
        let missing = || LineError::new("a string has no closing quote");
        let (length, has_escape) = end_of_string(inner.as_bytes()).ok_or_else(missing)?;
        let (string, rest) = (&inner[..length], &inner[length + 1..]);
        let string = match has_escape {
            false => Cow::Borrowed(string),
            true => Cow::Owned(plain(string)),
        };
        return Ok((FieldValue::Text(string), rest));
    }
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|byte| matches!(byte, b',' | b' '));
    let (value, rest) = text.split_at(end.unwrap_or(text.len()));
    let wrong = || LineError::new(format!("{:?} is not a value of a field", shown(value)));
    let value = match value.as_bytes() {
        [number @ .., b'i'] => FieldValue::Integer(digits(number).ok_or_else(wrong)?),
        [number @ .., b'u'] => {
            let number = std::str::from_utf8(number).map_err(|_| wrong())?;
            FieldValue::Unsigned(number.parse().map_err(|_| wrong())?)
        }
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => FieldValue::Boolean(true),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => FieldValue::Boolean(false),
        _ => FieldValue::Double(value.parse().map_err(|_| wrong())?),
    };
    Ok((value, rest))
}

/// A whole number with a sign.
fn digits(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// A string without its escapes.
fn plain(string: &str) -> String {
    let mut plain = String::with_capacity(string.len());
    let mut chars = string.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.next_if(|next| c == '\\' && matches!(next, '"' | '\\'));
        plain.push(next.unwrap_or(c));
    }
    plain
}

/// The beginning of a text, for an error.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_has_three_parts() {
        let line = Line::parse(r#"a\ b,t\=1=x\,y f=1i,s="p q,\"r\"",n=2 17"#).unwrap();
        assert_eq!(line.time, Some(17));
        let (measurement, tags) = line.tags().unwrap();
        assert_eq!(measurement, "a b");
        assert_eq!(tags, [("t=1".into(), "x,y".into())]);
        let fields: Vec<_> = line.fields().map(Result::unwrap).collect();
        let text = FieldValue::Text("p q,\"r\"".into());
        let expected = [
            ("f", FieldValue::Integer(1)),
            ("s", text),
            ("n", FieldValue::Double(2.0)),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_string_may_have_line_ends() {
        let text = "a s=\"x\ny\" 1\nb f=1";
        assert_eq!(line_length(text), 11);
        assert_eq!(line_length("a\"b f=1\nc f=1"), 7);
        // A string without its end loses its own line only.
        assert_eq!(line_length("a s=\"x 1\nb f=1\n"), 8);
        // A comment has no strings.
        assert_eq!(line_length(" # a s=\"x\nb f=1"), 9);
        assert_eq!(line_length("a f=1"), 5);
        assert_eq!(line_length(r#"a f="\""#), 7);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, word) in [
            (",a=b c=1", "measurement"),
            ("a", "field `key=value`"),
            ("a b=\"x", "closing quote"),
            ("a b=1 soon", "timestamp"),
        ] {
            let error = Line::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        for (text, word) in [
            ("a b=", "not a value"),
            ("a b=1,", "`key=value`"),
            ("a b=1ii", "not a value"),
            ("a =1", "`key=value`"),
            ("a b=\"x\"y", "`key=value`"),
        ] {
            let line = Line::parse(text).unwrap();
            let error = line.fields().find_map(Result::err).unwrap().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        for text in ["a,b c=1", "a,b= c=1", "a,=b c=1"] {
            assert!(Line::parse(text).unwrap().tags().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in r#"([a-c\\ ,="\n1i.]|\PC){0,60}"#) {
            let length = line_length(&text);
            let (line, _) = text.split_at(length);
            if let Ok(line) = Line::parse(line) {
                let _ = line.tags();
                prop_assert!(line.fields().count() <= text.len());
            }
        }

        #[test]
        fn what_is_escaped_is_read_back(
            names in prop::collection::vec("[a-z ,=]{1,8}", 3), string in r#"[a-z"\\ ,=\n]{0,12}"#,
            integer in any::<i64>(),
        ) {
            let escape = |name: &str| {
                let mut text = name.to_owned();
                for special in [",", "=", " "] {
                    text = text.replace(special, &format!("\\{special}"));
                }
                text
            };
            let string_text = string.replace('\\', r"\\").replace('"', "\\\"");
            let text = format!(
                "{},{}={} {}={integer}i,s=\"{string_text}\" -5",
                escape(&names[0]), escape(&names[1]), escape(&names[2]), escape(&names[1]),
            );
            prop_assert_eq!(line_length(&text), text.len());
            let line = Line::parse(&text).unwrap();
            prop_assert_eq!(line.time, Some(-5));
            let (measurement, tags) = line.tags().unwrap();
            prop_assert_eq!(&*measurement, &*names[0]);
            prop_assert_eq!(&tags[0], &(names[1].as_str().into(), names[2].as_str().into()));
            let fields: Vec<_> = line.fields().map(Result::unwrap).collect();
            prop_assert_eq!(unescaped(fields[0].0), names[1].as_str());
            prop_assert_eq!(&fields[0].1, &FieldValue::Integer(integer));
            prop_assert_eq!(&fields[1].1, &FieldValue::Text(string.into()));
        }
    }
}
