//! Statements of GSN, which H2 or MySQL evaluates, as statements of Chappe, which SQLite evaluates.
//!
//! The rewriting works on tokens: texts in quotes stay as they are, names become lower case, as GSN does
//! itself. `timed`, the time of an element in milliseconds, is computed from `source_time`; a column
//! `timed` of the result becomes its `source_time`. A function that
//! Chappe does not have is an error.

use chappe_stream::sqlite;

/// A rewritten statement, with what is not the same as before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewritten {
    /// The statement.
    pub sql: String,
    /// Differences, for a person to read.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Word,
    /// A text or a name in quotes, or a number.
    Literal,
    Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
}

/// Deepest parentheses; reason: each level takes stack, and SQLite's own bound is 100.
const DEPTH_MAX: usize = 100;

/// The result of a function: its text.
type Result<T> = std::result::Result<T, String>;

/// Rewrites a statement.
///
/// ```
/// let rewritten = chappe_gsn::descriptor::from_h2("SELECT CASEWHEN(A > 3, 1, 0) AS X, TIMED FROM WRAPPER")?;
/// assert_eq!(rewritten.sql, "select iif(a > 3, 1, 0) as x, source_time from wrapper");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A reason as text: an open quote or parenthesis, or a function without a counterpart.
pub fn from_h2(sql: &str) -> Result<Rewritten> {
    let tokens = tokens(sql)?;
    let mut rewriter = Rewriter {
        has_with: tokens.iter().any(|token| is(token, "with")),
        ..Rewriter::default()
    };
    let sql = rewriter.statement(&tokens, 0)?;
    let sql = sql.trim().trim_end_matches(';').trim_end().to_owned();
    rewriter.notes.dedup();
    Ok(Rewritten {
        sql,
        notes: rewriter.notes,
    })
}

/// The way back, as far as it is exact; [`from_h2`] makes the same statement of the result.
#[must_use]
pub fn to_h2(sql: &str) -> String {
    let Ok(tokens) = tokens(sql) else {
        return sql.to_owned();
    };
    let solid: Vec<usize> = (0..tokens.len())
        .filter(|at| tokens[*at].kind != Kind::Space)
        .collect();
    let words: Vec<&str> = solid.iter().map(|at| tokens[*at].text).collect();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < words.len() {
        let (text, length) = match replacement(&words, at) {
            Some(found) => found,
            None => {
                at += 1;
                continue;
            }
        };
        out.extend(tokens[copied..solid[at]].iter().map(|token| token.text));
        out.push_str(&text);
        at += length;
        copied = solid[at - 1] + 1;
    }
    out.extend(tokens[copied..].iter().map(|token| token.text));
    out
}

/// What GSN writes for the words from `at` on, and the number of these words.
fn replacement(words: &[&str], at: usize) -> Option<(String, usize)> {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| *word == text);
    let name = at + 1 + if is(at + 2, ".") { 2 } else { 0 };
    let division = ["source_time", "/", "1000000", ")"];
    let is_timed = is(at, "(") && (0..4).all(|part| is(name + part, division[part]));
    let is_call = at > 0 && is_word(words[at - 1]) && !is_keyword(words[at - 1]);
    if is_timed && !is_call {
        let prefix = words[at + 1..name].concat();
        return Some((format!("{prefix}timed"), name + 4 - at));
    }
    if is(at, "iif") && is(at + 1, "(") {
        return Some(("casewhen".to_owned(), 1));
    }
    // `(EXPRESSION) * 1000000 as source_time`, and `TABLE.source_time as source_time`.
    let product = ["*", "1000000", "as", "source_time"];
    let is_product = (0..4).all(|part| is(at + part, product[part]));
    if is_product && at > 0 && words[at - 1] == ")" && in_list(words, at) {
        return Some(("as timed".to_owned(), 4));
    }
    let is_renamed = is(at, "source_time") && is(at + 1, "as") && is(at + 2, "source_time");
    if is_renamed && in_list(words, at) {
        return Some(("timed as timed".to_owned(), 3));
    }
    let begins = at > 0 && matches!(words[at - 1], "select" | "distinct" | "," | ".");
    let ends = at + 1 == words.len() || matches!(words[at + 1], "," | "from");
    let is_result = is(at, "source_time") && begins && ends && in_list(words, at);
    is_result.then(|| ("timed".to_owned(), 1))
}

/// Whether the parenthesis that an expression begins with ends it.
fn is_enclosed(expression: &[&Token<'_>]) -> bool {
    let mut depth = 0_usize;
    for (at, token) in expression.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at > 0 && at + 1 == expression.len();
        }
    }
    false
}

/// Whether the word at `at` stands in a list of results, outside of parentheses of its own.
fn in_list(words: &[&str], at: usize) -> bool {
    let mut depth = 0_i32;
    for word in words[..at].iter().rev() {
        match *word {
            ")" => depth += 1,
            "(" => depth -= 1,
            "select" if depth == 0 => return true,
            "from" | "where" | "group" | "order" | "by" if depth == 0 => return false,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    false
}

/// The table of a statement that reads one table once, and the statement over `wrapper` instead; `None`
/// for other statements.
pub(super) fn single_table(sql: &str) -> Option<(String, String)> {
    let tokens = tokens(sql).ok()?;
    let solid: Vec<usize> = (0..tokens.len())
        .filter(|at| tokens[*at].kind != Kind::Space)
        .collect();
    let word = |at: usize| tokens[solid[at]].text.to_ascii_lowercase();
    let count = |text: &str| (0..solid.len()).filter(|at| word(*at) == text).count();
    if count("select") != 1 || count("from") != 1 {
        return None;
    }
    let from = (0..solid.len()).find(|at| word(*at) == "from")?;
    let table = from + 1;
    let name = tokens.get(*solid.get(table)?)?;
    let follows = solid.get(table + 1).map(|_| word(table + 1));
    let is_end = matches!(
        follows.as_deref(),
        None | Some("where" | "group" | "order" | "limit" | ";")
    );
    if name.kind != Kind::Word || !is_end {
        return None;
    }
    let name = name.text.to_ascii_lowercase();
    let mut out = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).is_some_and(|next| next.text == ".");
        let is_name = token.kind == Kind::Word && token.text.eq_ignore_ascii_case(&name);
        match is_name && (next || at == solid[table]) {
            true => out.push_str("wrapper"),
            false => out.push_str(token.text),
        }
    }
    Some((name, out))
}

/// Whether a statement is `select * from table`.
pub(super) fn passes_on(sql: &str, table: &str) -> bool {
    let words = sql.trim().trim_end_matches(';').split_whitespace();
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    matches!(&words[..], [select, all, from, name]
        if select == "select" && all == "*" && from == "from" && name == table)
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words before a parenthesis that are no functions.
fn is_keyword(word: &str) -> bool {
    let known = [
        "and",
        "or",
        "not",
        "in",
        "on",
        "where",
        "when",
        "then",
        "else",
        "case",
        "select",
        "as",
        "by",
        "having",
        "between",
        "like",
        "is",
        "exists",
        "from",
        "union",
        "all",
        "distinct",
        "join",
        "over",
        "filter",
        "limit",
        "offset",
        "except",
        "intersect",
        "values",
        "using",
    ];
    known.contains(&word)
}

fn tokens(sql: &str) -> Result<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = match first {
            c if c.is_whitespace() => {
                let end = rest.find(|c: char| !c.is_whitespace());
                (Kind::Space, end.unwrap_or(rest.len()))
            }
            '-' if rest.starts_with("--") => {
                let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
                (Kind::Space, end)
            }
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").ok_or("it has an open comment")?;
                (Kind::Space, end + 2)
            }
            '\'' | '"' | '`' => {
                let end = rest[1..].find(first).ok_or("it has an open quote")?;
                (Kind::Literal, end + 2)
            }
            c if c.is_alphabetic() || c == '_' => {
                let of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let end = rest.find(|c: char| !of_word(c));
                (Kind::Word, end.unwrap_or(rest.len()))
            }
            c if c.is_ascii_digit() => {
                let of_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
                let end = rest.find(|c: char| !of_number(c));
                (Kind::Literal, end.unwrap_or(rest.len()))
            }
            c => (Kind::Mark, c.len_utf8()),
        };
        let (text, after) = rest.split_at(length);
        tokens.push(Token { kind, text });
        rest = after;
    }
    Ok(tokens)
}

/// Types that have a length in parentheses.
const TYPES: [&str; 9] = [
    "varchar",
    "char",
    "nvarchar",
    "decimal",
    "numeric",
    "float",
    "double",
    "binary",
    "varbinary",
];

#[derive(Default)]
struct Rewriter {
    /// Whether it names tables of its own, whose columns look like a call.
    has_with: bool,
    notes: Vec<String>,
}

impl Rewriter {
    /// A statement: the lists of results are looked at one by one, everything else as an expression.
    fn statement(&mut self, tokens: &[Token<'_>], depth: usize) -> Result<String> {
        let mut out = String::new();
        let mut at = 0;
        while at < tokens.len() {
            let Some(select) = next_select(tokens, at) else {
                out.push_str(&self.expression(&tokens[at..], depth)?);
                return Ok(out);
            };
            out.push_str(&self.expression(&tokens[at..select], depth)?);
            out.push_str("select");
            at = select + 1;
            for word in ["distinct", "all"] {
                let first = (at..tokens.len()).find(|at| tokens[*at].kind != Kind::Space);
                if let Some(first) = first.filter(|first| is(&tokens[*first], word)) {
                    out.push(' ');
                    out.push_str(word);
                    at = first + 1;
                }
            }
            loop {
                let end = end_of_item(&tokens[at..]) + at;
                out.push_str(&self.item(&tokens[at..end], depth)?);
                at = end;
                if tokens.get(at).is_none_or(|token| token.text != ",") {
                    break;
                }
                out.push(',');
                at += 1;
            }
        }
        Ok(out)
    }

    /// One result.
    fn item(&mut self, tokens: &[Token<'_>], depth: usize) -> Result<String> {
        let solid: Vec<&Token<'_>> = tokens.iter().filter(|it| it.kind != Kind::Space).collect();
        let lead = match tokens.first() {
            Some(token) if token.kind == Kind::Space => token.text,
            _ => "",
        };
        let tail = match tokens.last() {
            Some(token) if token.kind == Kind::Space && tokens.len() > 1 => token.text,
            _ => "",
        };
        let is_time = |token: &Token<'_>| is(token, "timed");
        let plain = match &solid[..] {
            [only] if is_time(only) => Some("source_time".to_owned()),
            [table, dot, name] if dot.text == "." && is_time(name) => {
                Some(format!("{}.source_time", table.text.to_lowercase()))
            }
            [expression @ .., word, name] if is_time(name) && is(word, "as") => match expression {
                [only] if is_time(only) => Some("source_time".to_owned()),
                [table, dot, name] if dot.text == "." && is_time(name) => Some(format!(
                    "{}.source_time as source_time",
                    table.text.to_lowercase()
                )),
                _ => {
                    let last = tokens.iter().rposition(|it| is(it, "as")).unwrap_or(0);
                    let text = self.expression(&tokens[..last], depth)?;
                    let text = text.trim();
                    Some(match is_enclosed(expression) {
                        true => format!("{text} * 1000000 as source_time"),
                        false => format!("({text}) * 1000000 as source_time"),
                    })
                }
            },
            _ => None,
        };
        match plain {
            Some(plain) => Ok(format!("{lead}{plain}{tail}")),
            None => self.expression(tokens, depth),
        }
    }

    fn expression(&mut self, tokens: &[Token<'_>], depth: usize) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}"));
        }
        let mut out = String::new();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if token.text == "(" && token.kind == Kind::Mark {
                let end = closing(&tokens[at..]).ok_or("it has an open parenthesis")? + at;
                out.push('(');
                out.push_str(&self.inner(&tokens[at + 1..end], depth + 1)?);
                out.push(')');
                at = end + 1;
                continue;
            }
            if token.text == ")" && token.kind == Kind::Mark {
                return Err("it has a parenthesis too many".to_owned());
            }
            if token.kind != Kind::Word {
                match token.text.starts_with("--") || token.text.starts_with("/*") {
                    true => out.push(' '),
                    false => out.push_str(token.text),
                }
                at += 1;
                continue;
            }
            let name = token.text.to_lowercase();
            let next = (at + 1..tokens.len()).find(|at| tokens[*at].kind != Kind::Space);
            let is_dot = next.is_some_and(|next| tokens[next].text == ".");
            if let Some(open) = next.filter(|next| tokens[*next].text == "(")
                && !is_keyword(&name)
            {
                let end = closing(&tokens[open..]).ok_or("it has an open parenthesis")? + open;
                let inner = &tokens[open + 1..end];
                out.push_str(&self.call(&name, inner, depth + 1)?);
                at = end + 1;
                continue;
            }
            if let Some(dot) = next.filter(|_| is_dot)
                && let Some(column) =
                    (dot + 1..tokens.len()).find(|at| tokens[*at].kind != Kind::Space)
                && (is(&tokens[column], "timed") || is(&tokens[column], "pk"))
            {
                out.push_str(&match is(&tokens[column], "timed") {
                    true => format!("({name}.source_time / 1000000)"),
                    false => format!("{name}.sequence"),
                });
                at = column + 1;
                continue;
            }
            out.push_str(match name.as_str() {
                "timed" => "(source_time / 1000000)",
                "pk" => "sequence",
                _ => &name,
            });
            at += 1;
        }
        Ok(out)
    }

    /// What parentheses hold: a statement, or expressions.
    fn inner(&mut self, tokens: &[Token<'_>], depth: usize) -> Result<String> {
        let first = tokens.iter().find(|token| token.kind != Kind::Space);
        match first.is_some_and(|first| is(first, "select") || is(first, "with")) {
            true if depth <= DEPTH_MAX => self.statement(tokens, depth),
            _ => self.expression(tokens, depth),
        }
    }

    fn call(&mut self, name: &str, inner: &[Token<'_>], depth: usize) -> Result<String> {
        let parts = arguments(inner);
        let mut arguments = Vec::new();
        for part in &parts {
            arguments.push(self.inner(part, depth)?.trim().to_owned());
        }
        let first_is_text = parts.first().is_some_and(|part| {
            let first = part.iter().find(|token| token.kind != Kind::Space);
            first.is_some_and(|token| token.text.starts_with('\''))
        });
        let call = |name: &str| format!("{name}({})", arguments.join(", "));
        Ok(match (name, &arguments[..]) {
            ("casewhen", [_, _, _]) => call("iif"),
            ("now" | "now_millis", []) => {
                self.note("now() is the node's clock, so the results differ each time");
                "cast(unixepoch('now', 'subsec') * 1000 as integer)".to_owned()
            }
            ("unix_timestamp", []) => {
                self.note("unix_timestamp() is the node's clock, so the results differ each time");
                "unixepoch()".to_owned()
            }
            ("format", [number, digits]) if !first_is_text => {
                self.note("format() gives a number, without separators of thousands");
                format!("round({number}, {digits})")
            }
            ("ceiling", [_]) => call("ceil"),
            ("log", [_]) => call("ln"),
            ("nvl" | "isnull", [_, _]) => call("ifnull"),
            ("lcase", [_]) => call("lower"),
            ("ucase", [_]) => call("upper"),
            ("char_length" | "character_length", [_]) => call("length"),
            ("truncate" | "trunc", [number]) => format!("cast({number} as integer)"),
            ("left", [text, count]) => format!("substr({text}, 1, {count})"),
            ("right", [text, count]) => format!("substr({text}, -({count}))"),
            ("convert", [value, to]) => format!("cast({value} as {to})"),
            ("datediff" | "timestampdiff", [unit, from, to]) if is_word(unit) => {
                format!("{name}('{unit}', {from}, {to})")
            }
            ("cast", [_]) => call(name),
            ("rand" | "random" | "random_uuid", _) => {
                return Err(format!("{name}() gives another value each time"));
            }
            _ if sqlite::is_function(name) || TYPES.contains(&name) || self.has_with => call(name),
            _ => return Err(format!("it calls {name}(), which Chappe does not have")),
        })
    }

    fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

fn is(token: &Token<'_>, word: &str) -> bool {
    token.kind == Kind::Word && token.text.eq_ignore_ascii_case(word)
}

/// The index of the next SELECT outside of parentheses.
fn next_select(tokens: &[Token<'_>], from: usize) -> Option<usize> {
    let mut depth = 0_i64;
    (from..tokens.len()).find(|at| {
        match tokens[*at].text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0 && is(&tokens[*at], "select")
    })
}

/// The index of the parenthesis that closes the first token.
fn closing(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The index after a result: at a comma, at FROM, or at the end.
fn end_of_item(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_i64;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 0 => return at,
            _ if depth == 0 && ["from", "union", "where"].iter().any(|end| is(token, end)) => {
                return at;
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The arguments between commas; none of an empty list.
fn arguments<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    if tokens.iter().all(|token| token.kind == Kind::Space) {
        return Vec::new();
    }
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i64);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        from_h2(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .sql
    }

    #[test]
    fn each_construct_is_rewritten() {
        for (written, expected) in [
            ("SELECT * FROM Source1;", "select * from source1"),
            (
                "select A.B, 'It''s A' as C from A",
                "select a.b, 'It''s A' as c from a",
            ),
            (
                "select casewhen(x>1, 'A', casewhen(y,2,3)) as z from s",
                "select iif(x>1, 'A', iif(y, 2, 3)) as z from s",
            ),
            (
                "select timed, t from w where timed > 5",
                "select source_time, t from w where (source_time / 1000000) > 5",
            ),
            (
                "select w.timed from w order by w.timed",
                "select w.source_time from w order by (w.source_time / 1000000)",
            ),
            (
                "select max(timed) as timed, avg(t) as t from w",
                "select (max((source_time / 1000000))) * 1000000 as source_time, avg(t) as t from w",
            ),
            (
                "select timed as at from w",
                "select (source_time / 1000000) as at from w",
            ),
            (
                "select pk, x >> 2 as y from w",
                "select sequence, x >> 2 as y from w",
            ),
            (
                "select DATEDIFF(SECOND, '1970-01-01', timed) as s from w",
                "select datediff('second', '1970-01-01', (source_time / 1000000)) as s from w",
            ),
            (
                "select timestampdiff('HOUR', a, b) as s from w",
                "select timestampdiff('HOUR', a, b) as s from w",
            ),
            (
                "select format(x / 3, 2) as f, format('%d', x) as g from w",
                "select round(x / 3, 2) as f, format('%d', x) as g from w",
            ),
            (
                "select unix_timestamp() - 1 as a from w",
                "select unixepoch() - 1 as a from w",
            ),
            (
                "select x from w where x in (select max(x) from w) and y in (1, 2)",
                "select x from w where x in (select max(x) from w) and y in (1, 2)",
            ),
            (
                "select power(a, 2) as p, locate('x', b) as l, concat(a, b) as c, char(65) as d from w",
                "select power(a, 2) as p, locate('x', b) as l, concat(a, b) as c, char(65) as d from w",
            ),
            (
                "with x as (select timed from w) select timed from x",
                "with x as (select source_time from w) select source_time from x",
            ),
            (
                "select a from x union all select b from y",
                "select a from x union all select b from y",
            ),
            ("select /* A */ a -- B\n from w", "select   a   from w"),
        ] {
            assert_eq!(rewritten(written), expected, "{written}");
        }
        for wrong in [
            "select 'a",
            "select (a from b",
            "select a) from b",
            "select rand() from w",
        ] {
            assert!(from_h2(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_way_back_gives_the_same_statement() {
        for written in [
            "select * from source1",
            "select casewhen(x > 1, timed, 3) as z from s where timed > 5",
            "select timed, w.timed, max(timed) as x from w",
            "select a, timed from (select timed, a from b) where (timed) > 3",
            "select iif(a, b, c) as d from e where abs(source_time / 1000000) > 2",
            "select max(timed) as timed, (a + b) * (c) as timed from w",
            "select a.n as n, a.timed as timed from a, b",
        ] {
            let once = rewritten(written);
            let back = to_h2(&once);
            assert_eq!(rewritten(&back), once, "{back}");
        }
        // GSN has no column source_time.
        for (written, back) in [
            (
                "select max(timed) as timed from w",
                "select (max(timed)) as timed from w",
            ),
            (
                "select a.n, a.timed as timed from a",
                "select a.n, a.timed as timed from a",
            ),
        ] {
            assert_eq!(to_h2(&rewritten(written)), back);
        }
        let once = rewritten("select casewhen(x>1, timed, 3) as z, timed from s");
        assert_eq!(
            to_h2(&once),
            "select casewhen(x>1, timed, 3) as z, timed from s"
        );
    }

    #[test]
    fn the_only_table_is_found() {
        let found = |sql: &str| single_table(sql);
        assert_eq!(
            found("select Room.t from Room where room.t > 3"),
            Some((
                "room".into(),
                "select wrapper.t from wrapper where wrapper.t > 3".into()
            ))
        );
        for other in [
            "select * from a, b",
            "select * from (select 1)",
            "select 1",
            "from",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
