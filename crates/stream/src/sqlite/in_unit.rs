//! `in_unit(column, 'Cel')`: numbers of a column in another unit.
//!
//! SQLite does not tell a function which column its argument comes from. The statement is completed
//! before it is prepared: `in_unit(t, 'Cel')` becomes `in_unit(t, 'K', 'Cel')` by the schema of the
//! streams that the statement names. With three arguments it takes any expression.

use std::borrow::Cow;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

use crate::ucum::Unit;
use crate::{QueryError, StreamSchema, column_name};

/// The name of the function.
const NAME: &str = "in_unit";

/// Registers the function of three arguments.
pub(super) fn register(connection: &Connection, flags: FunctionFlags) -> Result<()> {
    connection.create_scalar_function(NAME, 3, flags, convert)
}

fn convert(context: &Context<'_>) -> Result<Option<f64>> {
    let number = match context.get_raw(0) {
        ValueRef::Integer(number) => number as f64,
        ValueRef::Real(number) => number,
        _ => return Ok(None),
    };
    let failed = |text: String| Error::UserFunctionError(text.into());
    let unit = |index| {
        context.get_or_create_aux(index, |code| {
            let code = code.as_str().map_err(|_| "in_unit takes units as texts")?;
            let unit = Unit::parse(code).map_err(|error| error.to_string())?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(unit)
        })
    };
    let (from, to) = (unit(1)?, unit(2)?);
    let conversion = from.conversion_to(&to).ok_or_else(|| {
        let code = |index: usize| {
            context
                .get_raw(index)
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let (from, to) = (code(1), code(2));
        failed(format!("in_unit: {from:?} does not convert into {to:?}"))
    })?;
    Ok(Some(conversion.apply(number)))
}

/// A token of a statement, as far as calls of the function need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'s> {
    Name(&'s str),
    Text,
    Mark(char),
}

/// The statement with the unit of the column in each call of two arguments. `schemas` are the streams
/// by the names that tables may have.
///
/// # Errors
/// A call whose column has no unit, or several.
pub(super) fn complete<'s>(
    statement: &'s str,
    schemas: &mut dyn FnMut(&str) -> Option<StreamSchema>,
) -> Result<Cow<'s, str>, QueryError> {
    let mut completed = String::new();
    let mut copied = 0;
    if !statement.to_ascii_lowercase().contains(NAME) {
        return Ok(Cow::Borrowed(statement));
    }
    let tokens = tokens(statement);
    let names = tokens.iter().filter_map(|(token, _)| match token {
        Token::Name(name) => Some(*name),
        _ => None,
    });
    let mut named = Vec::new();
    let mut found = Vec::new();
    for name in names {
        if !named.contains(&name) {
            named.push(name);
            found.extend(schemas(name));
        }
    }
    for window in 0..tokens.len() {
        let Some((column, end)) = call(&tokens[window..]) else {
            continue;
        };
        let unit = unit_of(column, &found)?;
        completed.push_str(&statement[copied..end]);
        completed.push_str(&format!(", '{}'", unit.replace('\'', "''")));
        copied = end;
    }
    completed.push_str(&statement[copied..]);
    Ok(Cow::Owned(completed))
}

/// The column of a call of two arguments that begins here, and where its name ends.
fn call<'s>(tokens: &[(Token<'s>, usize)]) -> Option<(&'s str, usize)> {
    let is_call = matches!(tokens.first()?.0, Token::Name(name) if name.eq_ignore_ascii_case(NAME));
    if !is_call || tokens.get(1)?.0 != Token::Mark('(') {
        return None;
    }
    let mut rest = tokens.get(2..)?;
    loop {
        let (Token::Name(column), end) = *rest.first()? else {
            return None;
        };
        let after: Vec<_> = rest.get(1..4)?.iter().map(|(token, _)| *token).collect();
        match after[..] {
            [Token::Mark('.'), ..] => rest = rest.get(2..)?,
            [Token::Mark(','), Token::Text, Token::Mark(')')] => return Some((column, end)),
            _ => return None,
        }
    }
}

fn unit_of<'s>(column: &str, schemas: &'s [StreamSchema]) -> Result<&'s str, QueryError> {
    let failed = |message: String| QueryError::Statement {
        message,
        offset: None,
    };
    let fields = schemas.iter().flat_map(|schema| &schema.fields);
    let named = fields.filter(|field| column_name(&field.name).eq_ignore_ascii_case(column));
    let mut units: Vec<Option<&str>> = named.map(|field| field.unit.as_deref()).collect();
    units.sort_unstable();
    units.dedup();
    match units[..] {
        [Some(unit)] => Ok(unit),
        [] => Err(failed(format!(
            "in_unit: no stream of the query has a column {column}"
        ))),
        [None] => Err(failed(format!(
            "in_unit: the column {column} has no unit; write in_unit({column}, 'UNIT', 'UNIT')"
        ))),
        _ => Err(failed(format!(
            "in_unit: the column {column} has several units; write in_unit({column}, 'UNIT', 'UNIT')"
        ))),
    }
}

/// The tokens of a statement with their ends.
fn tokens(statement: &str) -> Vec<(Token<'_>, usize)> {
    let mut tokens = Vec::new();
    let mut rest = statement;
    let end_of = |rest: &str| statement.len() - rest.len();
    while let Some(first) = rest.chars().next() {
        let after = |mark: &str| {
            rest[1..]
                .find(mark)
                .map_or(rest.len(), |at| 1 + at + mark.len())
        };
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let (token, length) = match first {
            '-' if rest.starts_with("--") => (None, after("\n")),
            '/' if rest.starts_with("/*") => (None, after("*/")),
            '\'' => (Some(Token::Text), quoted_length(rest, first)),
            '"' | '`' => {
                let length = quoted_length(rest, first);
                let name = rest.get(1..length.saturating_sub(1)).unwrap_or_default();
                (Some(Token::Name(name)), length)
            }
            '[' => {
                let length = after("]");
                let name = rest.get(1..length.saturating_sub(1)).unwrap_or_default();
                (Some(Token::Name(name)), length)
            }
            c if is_word(c) => {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (Some(Token::Name(&rest[..length])), length)
            }
            c if c.is_whitespace() => (None, c.len_utf8()),
            c => (Some(Token::Mark(c)), c.len_utf8()),
        };
        rest = rest.get(length..).unwrap_or_default();
        tokens.extend(token.map(|token| (token, end_of(rest))));
    }
    tokens
}

/// The length of a text in quotes, in which a quote is doubled.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut from = 1;
    while let Some(at) = text[from..].find(quote) {
        from += at + 1;
        if !text[from..].starts_with(quote) {
            return from;
        }
        from += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, FieldType};
    use proptest::prelude::*;

    fn schemas(name: &str) -> Option<StreamSchema> {
        let unit = match name {
            "room" => "Cel",
            "tank" => "[degF]",
            "it's" => "[arb'U]",
            "bare" => "",
            _ => return None,
        };
        let field = Field {
            name: "t".into(),
            field_type: FieldType::Double,
            unit: Some(unit.to_owned()).filter(|unit| !unit.is_empty()),
            observed_property: None,
            description: None,
        };
        Some(StreamSchema {
            fields: vec![field],
            key: None,
        })
    }

    #[test]
    fn the_unit_of_the_column_is_put_in() {
        let table = [
            (
                "select in_unit(t, 'K') from room",
                "select in_unit(t, 'Cel', 'K') from room",
            ),
            (
                "select IN_UNIT ( r.\"t\" ,'K') from room r",
                "select IN_UNIT ( r.\"t\", 'Cel' ,'K') from room r",
            ),
            (
                "select in_unit(t, 'K', 'Cel') from room",
                "select in_unit(t, 'K', 'Cel') from room",
            ),
            (
                "select in_unit(t + 1, 'K') from room",
                "select in_unit(t + 1, 'K') from room",
            ),
            (
                "select 'in_unit(t, ''K'')' from room",
                "select 'in_unit(t, ''K'')' from room",
            ),
            ("select 1 -- in_unit(t, 'K')", "select 1 -- in_unit(t, 'K')"),
            (
                "select in_unit(t,'K') from \"it's\"",
                "select in_unit(t, '[arb''U]','K') from \"it's\"",
            ),
        ];
        for (statement, wanted) in table {
            assert_eq!(complete(statement, &mut schemas).unwrap(), wanted);
        }
        for (statement, reason) in [
            ("select in_unit(t, 'K') from room, tank", "several units"),
            ("select in_unit(t, 'K') from bare", "no unit"),
            (
                "select in_unit(x, 'K') from room",
                "no stream of the query has a column x",
            ),
        ] {
            let error = complete(statement, &mut schemas).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_statement_panics(
            rest in "[a-z(),.'\"`\\[\\] \n/*é-]{0,40}",
        ) {
            let _ = complete(&format!("in_unit{rest}"), &mut schemas);
        }
    }
}
