//! The tokens of a statement, as SQLite divides it, as far as the compiled subset needs them.

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// An unquoted word: a keyword or a name.
    Word(String),
    /// A name in quotes.
    Quoted(String),
    /// A number, as written.
    Number(String),
    /// A text.
    Text(String),
    /// An operator or a mark.
    Mark(&'static str),
}

/// Longer marks first.
const MARKS: [&str; 18] = [
    "==", "<>", "<=", ">=", "!=", "||", "(", ")", ",", ".", ";", "*", "+", "-", "/", "%", "=", "<",
];

/// The tokens of `statement`, or its first unknown part.
pub(super) fn tokens(statement: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            c if c.is_ascii_whitespace() => &rest[1..],
            '-' if rest.starts_with("--") => rest.find('\n').map_or("", |end| &rest[end..]),
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/");
                end.map_or("", |end| &rest[end + 4..])
            }
            '\'' => quoted(rest, '\'', &mut tokens, Token::Text)?,
            '"' | '`' => quoted(rest, first, &mut tokens, Token::Quoted)?,
            '[' => {
                let end = rest.find(']').ok_or("it has an open bracket")?;
                tokens.push(Token::Quoted(rest[1..end].to_owned()));
                &rest[end + 1..]
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let end = rest.find(word).unwrap_or(rest.len());
                if rest[end..].starts_with(|c: char| c == '$' || c == '\'' || !c.is_ascii()) {
                    return Err(format!("it says {}", &rest[..end]));
                }
                tokens.push(Token::Word(rest[..end].to_owned()));
                &rest[end..]
            }
            c if c.is_ascii_digit() => number(rest, &mut tokens)?,
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                number(rest, &mut tokens)?
            }
            '>' if !rest.starts_with(">=") => {
                if rest.starts_with(">>") {
                    return Err("it uses >>".into());
                }
                tokens.push(Token::Mark(">"));
                &rest[1..]
            }
            '<' if rest.starts_with("<<") => return Err("it uses <<".into()),
            '-' if rest.starts_with("->") => return Err("it uses ->".into()),
            _ => {
                let mark = MARKS.iter().find(|mark| rest.starts_with(**mark));
                let mark = mark.ok_or_else(|| format!("it uses {first}"))?;
                tokens.push(Token::Mark(mark));
                &rest[mark.len()..]
            }
        };
    }
    Ok(tokens)
}

fn quoted<'s>(
    rest: &'s str,
    quote: char,
    tokens: &mut Vec<Token>,
    make: fn(String) -> Token,
) -> Result<&'s str, String> {
    let mut text = String::new();
    let mut inner = &rest[1..];
    loop {
        let end = inner.find(quote).ok_or("it has an open quote")?;
        text.push_str(&inner[..end]);
        inner = &inner[end + 1..];
        if !inner.starts_with(quote) {
            tokens.push(make(text));
            return Ok(inner);
        }
        text.push(quote);
        inner = &inner[1..];
    }
}

/// Digits, a fraction, an exponent; SQLite's other notations are unknown here.
fn number<'s>(rest: &'s str, tokens: &mut Vec<Token>) -> Result<&'s str, String> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        let end = bytes[from..].iter().position(|b| !b.is_ascii_digit());
        end.map_or(bytes.len(), |end| from + end)
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let start = end + 1 + sign;
        if digits(start.min(bytes.len())) > start {
            end = digits(start);
        }
    }
    let follows = rest[end..].chars().next();
    if follows.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
        return Err(format!("it has the number {}…", &rest[..end]));
    }
    tokens.push(Token::Number(rest[..end].to_owned()));
    Ok(&rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_texts_are_distinguished() {
        let word = |text: &str| Token::Word(text.into());
        let number = |text: &str| Token::Number(text.into());
        assert_eq!(
            tokens("a.b>=1.5e-3 -- c\n<>'it''s' /* d */ \"x y\" .5").expect("known"),
            [
                word("a"),
                Token::Mark("."),
                word("b"),
                Token::Mark(">="),
                number("1.5e-3"),
                Token::Mark("<>"),
                Token::Text("it's".into()),
                Token::Quoted("x y".into()),
                number(".5"),
            ]
        );
    }

    #[test]
    fn unknown_tokens_are_refused() {
        for text in [
            "0x10", "1_000", "x'00'", "?1", "a -> b", "a & b", "a << 1", "'open", "1e",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
