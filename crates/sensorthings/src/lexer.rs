//! Tokens of an expression.

use chappe_stream::Timestamp;

use crate::fault::shown;
use crate::value::parse_time;
use crate::{Fault, Value};

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Literal(Value),
    /// A word or a path of them.
    Name(Vec<String>),
    Open,
    Close,
    Comma,
    Minus,
}

/// The tokens of a text.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let mut lexer = Lexer { rest: text };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'a> {
    rest: &'a str,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Option<Token>, Fault> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        let single = match first {
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            ',' => Some(Token::Comma),
            '-' => Some(Token::Minus),
            _ => None,
        };
        if let Some(token) = single {
            self.rest = &self.rest[1..];
            return Ok(Some(token));
        }
        match first {
            '\'' => Ok(Some(Token::Literal(Value::Text(self.text()?)))),
            '0'..='9' => self.number_or_time().map(Some),
            first if first.is_alphabetic() || matches!(first, '_' | '@') => self.name().map(Some),
            other => Err(Fault::invalid(format!(
                "an expression cannot have {other:?} here: {:?}",
                shown(self.rest)
            ))),
        }
    }

    /// A text in quotes; a quote in it is doubled.
    fn text(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            if character != '\'' {
                text.push(character);
                continue;
            }
            match characters.peek() {
                Some((_, '\'')) => {
                    characters.next();
                    text.push('\'');
                }
                _ => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
            }
        }
        Err(Fault::invalid("a text has no closing quote"))
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn number_or_time(&mut self) -> Result<Token, Fault> {
        let bytes = self.rest.as_bytes();
        let is_date = bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-';
        let is_time_of_day = bytes.len() >= 5 && bytes[2] == b':';
        if is_date || is_time_of_day {
            let text = self.take(|c| c.is_ascii_alphanumeric() || ":.+-/".contains(c));
            return date_or_time(text).map(Token::Literal);
        }
        let mut previous = ' ';
        let end = self.rest.find(|c: char| {
            let is_sign = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
            previous = c;
            !(c.is_ascii_alphanumeric() || c == '.' || is_sign)
        });
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if let Ok(whole) = text.parse::<i64>() {
            return Ok(Token::Literal(Value::Integer(whole)));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.ok_or_else(|| {
            let detail = format!("{:?} is neither a number nor a time", shown(text));
            Fault::invalid(detail + "; texts are in single quotes")
        });
        Ok(Token::Literal(Value::Double(number?)))
    }

    fn name(&mut self) -> Result<Token, Fault> {
        // Subtraction is a word, so that a name may have a hyphen.
        let word = self.take(|c| c.is_alphanumeric() || "_@.-:/".contains(c));
        let word = word.to_owned();
        if self.rest.starts_with('\'') {
            let text = self.text()?;
            return match word.as_str() {
                "duration" => duration(&text).map(Value::Duration).map(Token::Literal),
                "geography" | "geometry" => Err(geo()),
                _ => Err(Fault::invalid(format!(
                    "there are no literals of the form {:?}",
                    shown(&word)
                ))),
            };
        }
        match word.as_str() {
            "null" => return Ok(Token::Literal(Value::Null)),
            "true" => return Ok(Token::Literal(Value::Boolean(true))),
            "false" => return Ok(Token::Literal(Value::Boolean(false))),
            _ => {}
        }
        let parts: Vec<String> = word.split('/').map(str::to_owned).collect();
        match parts.iter().any(String::is_empty) {
            true => Err(Fault::invalid(format!("{:?} is not a path", shown(&word)))),
            false => Ok(Token::Name(parts)),
        }
    }
}

/// The refusal of everything about geometries.
pub(crate) fn geo() -> Fault {
    Fault::unsupported("functions on geometries are not supported")
}

/// A time, a period, a date or a time of day.
fn date_or_time(text: &str) -> Result<Value, Fault> {
    if let Some(time) = parse_time(text) {
        return Ok(time);
    }
    if Timestamp::parse(&format!("{text}T00:00:00Z")).is_some() && text.len() == 10 {
        return Ok(Value::Text(text.to_owned()));
    }
    let full = match text.len() {
        5 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let is_plain = full
        .bytes()
        .all(|b| b.is_ascii_digit() || b":.".contains(&b));
    if is_plain && Timestamp::parse(&format!("1970-01-01T{full}Z")).is_some() {
        return Ok(Value::Text(full));
    }
    Err(Fault::invalid(format!(
        "{:?} is not a time: write 2026-11-21T10:00:00Z, from the year 1678 to 2262, and encode the + of an \
         offset as %2B",
        shown(text)
    )))
}

/// The nanoseconds of a duration of days, hours, minutes and seconds, as `P1DT2H3M4.5S`.
fn duration(text: &str) -> Result<i64, Fault> {
    let wrong = || {
        let detail = format!("{:?} is not a duration", shown(text));
        Fault::invalid(detail + ": write P1DT2H3M4.5S; years and months have no fixed length")
    };
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let rest = rest.strip_prefix('P').ok_or_else(wrong)?;
    let (days, times) = rest.split_once('T').unwrap_or((rest, ""));
    let mut seconds = 0.0;
    let mut has_part = false;
    for (part, units) in [
        (days, &[('D', 86_400.0)][..]),
        (times, &[('H', 3_600.0), ('M', 60.0), ('S', 1.0)]),
    ] {
        let (mut rest, mut units) = (part, units.iter());
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            let end = end.ok_or_else(wrong)?;
            let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
            let letter = rest[end..].chars().next().ok_or_else(wrong)?;
            let unit = units.find(|(unit, _)| *unit == letter).ok_or_else(wrong)?;
            seconds += number * unit.1;
            rest = &rest[end + 1..];
            has_part = true;
        }
    }
    let nanoseconds = sign * seconds * 1e9;
    // A tenth below the greatest, whose double is one too many.
    let is_valid = has_part && nanoseconds.abs() < 9.2e18;
    is_valid.then_some(nanoseconds as i64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_days_hours_minutes_and_seconds() {
        for (text, seconds) in [
            ("P1D", 86_400.0),
            ("PT1H", 3_600.0),
            ("P1DT2H3M4.5S", 93_784.5),
            ("-PT10S", -10.0),
        ] {
            assert_eq!(duration(text).unwrap() as f64, seconds * 1e9, "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1Y",
            "P1M",
            "PT1S1M",
            "PT1",
            "P1000000D",
            "P1é",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn literals_have_types() {
        let one = |text: &str| match tokens(text).unwrap().remove(0) {
            Token::Literal(value) => value,
            other => panic!("{other:?}"),
        };
        assert_eq!(one("5"), Value::Integer(5));
        assert_eq!(one("5.5e-1"), Value::Double(0.55));
        assert_eq!(one("'it''s'"), Value::Text("it's".to_owned()));
        assert_eq!(one("2026-11-21"), Value::Text("2026-11-21".to_owned()));
        assert_eq!(one("10:00"), Value::Text("10:00:00".to_owned()));
        assert!(matches!(one("2026-11-21T10:00:00+01:00"), Value::Time(..)));
        assert!(matches!(
            one("2026-11-21T10:00:00Z/2026-11-21T11:00:00Z"),
            Value::Time(from, to) if from < to
        ));
        for text in [
            "'open",
            "5x",
            "2026-13-01T00:00:00Z",
            "geography'POINT(1 2)'",
            "a//b",
            "\u{7f}",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
