//! Table functions whose rows the caller knows: `from completeness('ward.bed1')`.
//!
//! SQLite's own table functions need unsafe code, so a call is replaced by the name of a table before the
//! statement is prepared, and the caller fills that table. The argument is one text in single quotes.

use super::sandbox::{Sandbox, engine, quoted};
use super::tables::column;
use crate::{QueryError, Value};

/// The table of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTable {
    /// The function.
    pub function: &'static str,
    /// Its argument.
    pub argument: String,
    /// Names of its columns.
    pub columns: &'static [&'static str],
    /// Its rows, with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl FunctionTable {
    /// Whether it is the table of this name in a statement that [`table_calls`] returned.
    pub(super) fn is_called(&self, name: &str) -> bool {
        name_of(self.function, &self.argument).eq_ignore_ascii_case(name)
    }

    pub(super) fn create(&self, sandbox: &mut Sandbox, name: &str) -> Result<(), QueryError> {
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        sandbox.create_table(name, &columns.join(","))?;
        let marks = vec!["?"; columns.len()].join(",");
        let insert = format!("insert into {} values({marks})", quoted(name));
        sandbox.write(|connection| {
            let mut insert = connection.prepare_cached(&insert).map_err(engine)?;
            for row in &self.rows {
                let values = rusqlite::params_from_iter(row.iter().map(column));
                insert.execute(values).map_err(engine)?;
            }
            Ok(())
        })
    }
}

fn name_of(function: &str, argument: &str) -> String {
    format!("{function}:{argument}")
}

/// Replaces the calls `function('argument')` of a statement by names of tables; returns the statement and
/// the arguments, each once. Texts, quoted names and comments stay as they are.
///
/// ```
/// use chappe_stream::sqlite::table_calls;
/// let (statement, arguments) = table_calls("select * from Gaps ( 'a.b' )", "gaps");
/// assert_eq!(statement, r#"select * from "gaps:a.b""#);
/// assert_eq!(arguments, ["a.b"]);
/// ```
#[must_use]
pub fn table_calls(statement: &str, function: &str) -> (String, Vec<String>) {
    let (mut written, mut arguments) = (String::new(), Vec::new());
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' | '`' => quoted_length(rest, first),
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if is_of_word(first) => {
                let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(length);
                if word.eq_ignore_ascii_case(function)
                    && let Some((argument, after)) = argument(after)
                {
                    written.push_str(&quoted(&name_of(function, &argument)));
                    if !arguments.contains(&argument) {
                        arguments.push(argument);
                    }
                    rest = after;
                    continue;
                }
                length
            }
            _ => first.len_utf8(),
        };
        let (same, after) = rest.split_at(length);
        written.push_str(same);
        rest = after;
    }
    (written, arguments)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The length of what begins with a quote; a doubled quote does not end it.
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

/// The argument `('text')` that a text begins with, and what follows it.
fn argument(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start().strip_prefix('(')?.trim_start();
    if !text.starts_with('\'') {
        return None;
    }
    let (quoted, after) = text.split_at(quoted_length(text, '\''));
    let argument = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
    let after = after.trim_start().strip_prefix(')')?;
    Some((argument.replace("''", "'"), after))
}

#[cfg(test)]
mod tests {
    use super::table_calls;

    #[test]
    fn only_calls_are_replaced() {
        let same = [
            "select 'completeness(''a'')' from a",
            "select \"completeness\"('a')",
            "select 1 -- completeness('a')",
            "select 1 /* completeness('a') */",
            "select completeness(a)",
            "select completeness('a', 1)",
            "select completenesses('a')",
            "select * from completeness",
            "completeness('",
            "completeness('a",
            "'completeness('a')",
            "é[completeness('a')]",
        ];
        for statement in same {
            let (written, arguments) = table_calls(statement, "completeness");
            assert_eq!((written.as_str(), arguments.len()), (statement, 0));
        }
        let (written, arguments) = table_calls(
            "select * from completeness('a') join COMPLETENESS( 'b''\"c' ) join completeness('a')x",
            "completeness",
        );
        assert_eq!(
            written,
            r#"select * from "completeness:a" join "completeness:b'""c" join "completeness:a"x"#
        );
        assert_eq!(arguments, ["a", "b'\"c"]);
    }
}
