//! How the columns of a statement become the fields of the output: exactly, or each field takes the column of its name.

use std::collections::BTreeSet;

use crate::descriptor::Output;
use crate::{PlannedQuery, QueryError, QueryLimits, QuerySource, StreamSchema, column_name};

/// What an element has besides its fields.
const OF_ELEMENT: [&str; 3] = ["source_time", "key", "quality"];
/// The statement's name in the one around it.
const INNER: &str = "it";

/// Prepares `sql` over `sources` for the output of a sensor.
///
/// # Errors
/// As [`PlannedQuery::new`].
pub(crate) fn planned(
    output: &Output,
    sources: &[QuerySource],
    sql: &str,
    limits: QueryLimits,
) -> Result<PlannedQuery, QueryError> {
    match PlannedQuery::new(sources, sql, &output.schema, limits) {
        Err(QueryError::Missing(_) | QueryError::Undeclared(_)) if output.takes_any_columns => {
            by_name(sources, sql, &output.schema, limits)
        }
        planned => planned,
    }
}

/// Prepares `sql` for the fields of `output`: other columns are passed over, and a field without a column is null.
///
/// # Errors
/// As [`PlannedQuery::new`].
fn by_name(
    sources: &[QuerySource],
    sql: &str,
    output: &StreamSchema,
    limits: QueryLimits,
) -> Result<PlannedQuery, QueryError> {
    if let Some(plain) = plain(sources, sql, output) {
        return PlannedQuery::new(sources, &plain, output, limits);
    }
    let sql = sql.trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace());
    let mut absent = BTreeSet::new();
    loop {
        let fields = output.fields.iter().map(|field| field.name.as_str());
        let fields = fields.map(|name| match absent.contains(name) {
            true => format!("null as \"{name}\""),
            false => format!("{INNER}.\"{name}\" as \"{name}\""),
        });
        let others = OF_ELEMENT.iter().filter(|name| !absent.contains(**name));
        let others = others.map(|name| format!("{INNER}.{name}"));
        let columns = fields.chain(others).collect::<Vec<_>>().join(", ");
        // The line's end closes a comment.
        let whole = format!("select {columns} from (\n{sql}\n) as {INNER}");
        let error = match PlannedQuery::new(sources, &whole, output, limits) {
            Ok(prepared) => return Ok(prepared),
            Err(error) => error,
        };
        let QueryError::Statement { message, .. } = &error else {
            return Err(error);
        };
        let name = message.strip_prefix("no such column: it.");
        if !name.is_some_and(|name| absent.insert(name.to_owned())) {
            return Err(error);
        }
    }
}

/// A statement that passes its only source on, with the columns of the fields: it can be compiled.
fn plain(sources: &[QuerySource], sql: &str, output: &StreamSchema) -> Option<String> {
    let [source] = sources else { return None };
    let words: Vec<&str> = sql.split_ascii_whitespace().collect();
    let ["select", "*", "from", table] = words[..] else {
        return None;
    };
    if table != source.alias {
        return None;
    }
    let given = source
        .schema
        .fields
        .iter()
        .map(|field| column_name(&field.name));
    let given: BTreeSet<String> = given.collect();
    let fields = output.fields.iter().map(|field| {
        let name = &field.name;
        match given.contains(name) {
            true => format!("\"{name}\""),
            false => format!("null as \"{name}\""),
        }
    });
    let others = OF_ELEMENT.iter().map(|name| (*name).to_owned());
    let columns = fields.chain(others).collect::<Vec<_>>().join(", ");
    Some(format!("select {columns} from {table}"))
}
