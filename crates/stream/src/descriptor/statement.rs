//! The statements of a descriptor: their TOML, and the statement that is evaluated.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::error::{DescriptorError, DescriptorFault, Place};
use super::raw::{RawDuration, sql_error};
use super::source::{RawSource, sources};
use super::{Command, STATEMENTS_MAX, Source, Statement};
use crate::{QueryLimits, sqlite};

/// The name of a source's window in the source's own statement.
pub const WRAPPER: &str = "wrapper";

/// A statement over sources of its own.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStatement {
    /// The name, required of several statements: a-z, 0-9, `_` and `-`.
    #[schemars(with = "Option<String>")]
    name: Option<Spanned<String>>,
    /// One SELECT over the aliases.
    #[schemars(with = "String")]
    sql: Spanned<String>,
    /// Results sooner than this after the last ones are dropped, such as "500ms".
    rate: Option<RawDuration>,
    /// The number of elements after which the statement gives no more.
    count: Option<NonZeroU64>,
    /// The sources.
    #[schemars(with = "Vec<RawSource>")]
    source: Spanned<Vec<Spanned<RawSource>>>,
}

/// Statements and their sources: those of `[[statement]]`, or the one of `[[source]]` and
/// `output.sql`.
pub(super) fn statements(
    place: Place<'_>,
    commands: &[Command],
    several: Option<Spanned<Vec<Spanned<RawStatement>>>>,
    source: Option<Spanned<Vec<Spanned<RawSource>>>>,
    sql: Option<Spanned<String>>,
) -> Result<(Vec<Statement>, Vec<Source>), DescriptorError> {
    let missing = |key: &str| {
        let message = "this key is missing";
        place.error(DescriptorFault::MissingKey, 0, key, message, None)
    };
    let Some(several) = several else {
        let source = source.ok_or_else(|| missing("source"))?;
        let sql = sql.ok_or_else(|| missing("sql"))?;
        let sources = sources(place, commands, "source", 0, source)?;
        check(place, "output.sql", &sql, &sources)?;
        let statement = Statement {
            sql: sql.into_inner(),
            ..Statement::default()
        };
        return Ok((vec![statement], sources));
    };
    let fault = DescriptorFault::Value;
    let at = several.span().start;
    for (key, given) in [
        ("source", source.as_ref().map(Spanned::span)),
        ("output.sql", sql.as_ref().map(Spanned::span)),
    ] {
        if let Some(span) = given {
            let message = "each `statement` has its own";
            let hint = Some(format!("move `{key}` into a [[statement]]"));
            return Err(place.error(fault, span.start, key, message, hint));
        }
    }
    let count = several.get_ref().len();
    if count == 0 || count > STATEMENTS_MAX {
        let message = format!("there are {count} statements; 1 to {STATEMENTS_MAX} are allowed");
        return Err(place.error(fault, at, "statement", message, None));
    }
    let (mut statements, mut all) = (Vec::<Statement>::new(), Vec::new());
    for (index, raw) in several.into_inner().into_iter().enumerate() {
        let start = raw.span().start;
        let raw = raw.into_inner();
        let key = |name: &str| format!("statement[{index}].{name}");
        let name = raw.name.map(|name| (name.span().start, name.into_inner()));
        let is_usable = |name: &str| crate::check_name(name).is_ok() && !name.contains('.');
        match &name {
            None if count > 1 => {
                let message = "each of several statements needs a name";
                return Err(place.error(fault, start, key("name"), message, None));
            }
            Some((at, name)) if !is_usable(name) => {
                let message = format!("{name:?} is not a usable name");
                let hint = Some("use a-z, 0-9, _ and -".to_owned());
                return Err(place.error(fault, *at, key("name"), message, hint));
            }
            Some((at, name)) if statements.iter().any(|it| it.name.as_ref() == Some(name)) => {
                let message = format!("there is another statement {name:?}");
                return Err(place.error(fault, *at, key("name"), message, None));
            }
            _ => {}
        }
        let name = name.map(|(_, name)| name);
        let mut sources = sources(place, commands, &key("source"), index, raw.source)?;
        check(place, &key("sql"), &raw.sql, &sources)?;
        if count > 1 {
            for source in &mut sources {
                let name = name.as_deref().unwrap_or_default();
                source.alias = format!("{name}.{}", source.alias);
            }
        }
        all.append(&mut sources);
        statements.push(Statement {
            name,
            sql: raw.sql.into_inner(),
            rate: raw.rate.map(|rate| rate.0),
            count: raw.count,
        });
    }
    Ok((statements, all))
}

/// Checks a statement as far as that is possible before its sources' fields are known.
fn check(
    place: Place<'_>,
    key: &str,
    sql: &Spanned<String>,
    sources: &[Source],
) -> Result<(), DescriptorError> {
    let aliases: Vec<&str> = sources.iter().map(|source| &*source.alias).collect();
    sqlite::check_statement(sql.get_ref(), &aliases, &QueryLimits::default())
        .map_err(|error| sql_error(place, key, sql, &error, &aliases))
}

/// The statement that is evaluated, and the table in it of each source.
///
/// The statement of a source is a common table expression, unless the joining statement only passes
/// its result on.
pub(crate) fn evaluated(statement: &Statement, sources: &[&Source]) -> (String, Vec<String>) {
    if let [source] = sources
        && let Some(sql) = &source.sql
        && passes_on(&statement.sql, source.table())
    {
        return (sql.clone(), vec![WRAPPER.to_owned()]);
    }
    let (mut heads, mut tables) = (Vec::new(), Vec::new());
    for source in sources {
        let name = source.table();
        let Some(sql) = &source.sql else {
            tables.push(name.to_owned());
            continue;
        };
        // Aliases end neither in `_samples` nor in this.
        let table = format!("{name}{TABLE_SUFFIX}");
        let mut inner = format!("{WRAPPER} as (select * from {table})");
        if sql.to_ascii_lowercase().contains("wrapper_samples") {
            inner.push_str(&format!(
                ", {WRAPPER}_samples as (select * from {table}_samples)"
            ));
        }
        let (with, rest) = without_with(single(sql));
        let comma = if with { "," } else { "" };
        heads.push(format!("{name} as (with {inner}{comma} {rest}\n)"));
        tables.push(table);
    }
    if heads.is_empty() {
        return (statement.sql.clone(), tables);
    }
    let (with, rest) = without_with(single(&statement.sql));
    let comma = if with { "," } else { "" };
    (format!("with {}{comma} {rest}", heads.join(", ")), tables)
}

/// Ends the name of the table of a window that has a statement of its own.
pub(super) const TABLE_SUFFIX: &str = "_wrapper";

/// A statement without its final semicolons.
fn single(sql: &str) -> &str {
    sql.trim_matches(|c: char| c == ';' || c.is_ascii_whitespace())
}

/// Whether a statement begins with WITH, and the rest of it.
fn without_with(sql: &str) -> (bool, &str) {
    match sql.split_at_checked(4) {
        Some((word, rest))
            if word.eq_ignore_ascii_case("with")
                && rest.starts_with(|c: char| c.is_ascii_whitespace()) =>
        {
            (true, rest)
        }
        _ => (false, sql),
    }
}

/// Whether a statement is `select * from table`.
fn passes_on(sql: &str, table: &str) -> bool {
    let words = single(sql).split_ascii_whitespace();
    let words = words.map(str::to_ascii_lowercase).collect::<Vec<_>>();
    matches!(&words[..], [select, all, from, name]
        if select == "select" && all == "*" && from == "from" && name == table)
}

/// Checks the statement of a source.
pub(super) fn check_own(
    place: Place<'_>,
    key: &str,
    sql: &Spanned<String>,
) -> Result<(), DescriptorError> {
    sqlite::check_statement(sql.get_ref(), &[WRAPPER], &QueryLimits::default())
        .map_err(|error| sql_error(place, key, sql, &error, &[WRAPPER]))
}
