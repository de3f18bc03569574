//! The syntax of the compiled subset: one SELECT over one table.
//!
//! The order of precedence is that of SQLite's grammar, which is not that of other databases: `=`
//! binds less than `<`, and `BETWEEN`, `IN`, `LIKE` and `IS` as much as `=`. Syntax outside of the
//! subset is refused with a reason, never guessed: SQLite evaluates it.

use super::token::{Token, tokens};

/// A statement.
#[derive(Debug)]
pub(super) struct Select {
    /// Its result columns.
    pub(super) items: Vec<Item>,
    /// The table.
    pub(super) table: String,
    /// The alias of the table in the statement.
    pub(super) alias: Option<String>,
    /// The condition.
    pub(super) condition: Option<Syntax>,
}

/// A result column.
#[derive(Debug)]
pub(super) enum Item {
    /// Every column, of the named table if there is one.
    All(Option<String>),
    /// One column.
    Expression(Syntax),
}

/// An expression.
#[derive(Debug, Clone)]
pub(super) enum Syntax {
    Null,
    Number(String),
    Text(String),
    /// Table, column, and whether the column is unquoted.
    Column(Option<String>, String, bool),
    Negative(Box<Syntax>),
    Plus(Box<Syntax>),
    Not(Box<Syntax>),
    /// The operator as written, `and`, `or`, `is` or `is not`.
    Binary(&'static str, Box<Syntax>, Box<Syntax>),
    IsNull(Box<Syntax>),
    Between(Box<Syntax>, Box<Syntax>, Box<Syntax>),
    In(Box<Syntax>, Vec<Syntax>),
    Like(Box<Syntax>, Box<Syntax>),
    /// Base, pairs, else.
    Case(
        Option<Box<Syntax>>,
        Vec<(Syntax, Syntax)>,
        Option<Box<Syntax>>,
    ),
    Cast(Box<Syntax>, String),
    /// Name in lower case, arguments; `None` for `*`.
    Call(String, Option<Vec<Syntax>>),
}

/// Deepest nesting; reason: each level takes stack, and SQLite's own bound is 100.
const DEPTH_MAX: usize = 100;

/// Keywords that are names only if quoted. SQLite accepts some of them as names where nothing else
/// is possible; such a statement is left to SQLite.
const KEYWORDS: &[&str] = &[
    "abort",
    "action",
    "add",
    "after",
    "all",
    "alter",
    "always",
    "analyze",
    "and",
    "as",
    "asc",
    "attach",
    "autoincrement",
    "before",
    "begin",
    "between",
    "by",
    "cascade",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "commit",
    "conflict",
    "constraint",
    "create",
    "cross",
    "current",
    "current_date",
    "current_time",
    "current_timestamp",
    "database",
    "default",
    "deferrable",
    "deferred",
    "delete",
    "desc",
    "detach",
    "distinct",
    "do",
    "drop",
    "each",
    "else",
    "end",
    "escape",
    "except",
    "exclude",
    "exclusive",
    "exists",
    "explain",
    "fail",
    "filter",
    "first",
    "following",
    "for",
    "foreign",
    "from",
    "full",
    "generated",
    "glob",
    "group",
    "groups",
    "having",
    "if",
    "ignore",
    "immediate",
    "in",
    "index",
    "indexed",
    "initially",
    "inner",
    "insert",
    "instead",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "last",
    "left",
    "like",
    "limit",
    "match",
    "materialized",
    "natural",
    "no",
    "not",
    "nothing",
    "notnull",
    "null",
    "nulls",
    "of",
    "offset",
    "on",
    "or",
    "order",
    "others",
    "outer",
    "over",
    "partition",
    "plan",
    "pragma",
    "preceding",
    "primary",
    "query",
    "raise",
    "range",
    "recursive",
    "references",
    "regexp",
    "reindex",
    "release",
    "rename",
    "replace",
    "restrict",
    "returning",
    "right",
    "rollback",
    "row",
    "rows",
    "savepoint",
    "select",
    "set",
    "table",
    "temp",
    "temporary",
    "then",
    "ties",
    "to",
    "transaction",
    "trigger",
    "unbounded",
    "union",
    "unique",
    "update",
    "using",
    "vacuum",
    "values",
    "view",
    "virtual",
    "when",
    "where",
    "window",
    "with",
    "within",
    "without",
];

/// Reads a statement.
pub(super) fn parse(statement: &str) -> Result<Select, String> {
    let mut parser = Parser {
        tokens: tokens(statement)?,
        at: 0,
        depth: 0,
    };
    let select = parser.select()?;
    while parser.take_mark(";") {}
    match parser.peek() {
        None => Ok(select),
        Some(_) => Err(parser.unknown()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn unknown(&self) -> String {
        match self.peek() {
            None => "it ends early".into(),
            Some(Token::Word(word)) => format!("it uses {}", word.to_ascii_uppercase()),
            Some(Token::Quoted(name)) => format!("it has {name:?} in an unexpected position"),
            Some(Token::Number(text)) => format!("it has {text} in an unexpected position"),
            Some(Token::Text(text)) => format!("it has {text:?} in an unexpected position"),
            Some(Token::Mark(mark)) => format!("it has {mark} in an unexpected position"),
        }
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Some(Token::Mark(found)) if *found == mark)
    }

    fn take_mark(&mut self, mark: &str) -> bool {
        let taken = self.is_mark(mark);
        self.at += usize::from(taken);
        taken
    }

    fn need_mark(&mut self, mark: &str) -> Result<(), String> {
        self.take_mark(mark)
            .then_some(())
            .ok_or_else(|| self.unknown())
    }

    fn is_word_at(&self, at: usize, word: &str) -> bool {
        matches!(self.tokens.get(at), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    fn is_word(&self, word: &str) -> bool {
        self.is_word_at(self.at, word)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let taken = self.is_word(word);
        self.at += usize::from(taken);
        taken
    }

    fn need_word(&mut self, word: &str) -> Result<(), String> {
        self.take_word(word)
            .then_some(())
            .ok_or_else(|| self.unknown())
    }

    /// A name, and whether it is unquoted.
    fn take_name(&mut self) -> Option<(String, bool)> {
        let name = match self.peek()? {
            Token::Quoted(name) => (name.clone(), false),
            Token::Word(word) if !is_keyword(word) => (word.clone(), true),
            _ => return None,
        };
        self.at += 1;
        Some(name)
    }

    fn need_name(&mut self) -> Result<(String, bool), String> {
        self.take_name().ok_or_else(|| self.unknown())
    }

    fn select(&mut self) -> Result<Select, String> {
        self.need_word("select")?;
        self.take_word("all");
        let mut items = vec![self.item()?];
        while self.take_mark(",") {
            items.push(self.item()?);
        }
        self.need_word("from")?;
        let (table, _) = self.need_name()?;
        let alias = if self.take_word("as") {
            Some(self.need_name()?.0)
        } else {
            self.take_name().map(|(name, _)| name)
        };
        let condition = match self.take_word("where") {
            true => Some(self.expression()?),
            false => None,
        };
        Ok(Select {
            items,
            table,
            alias,
            condition,
        })
    }

    fn item(&mut self) -> Result<Item, String> {
        if self.take_mark("*") {
            return Ok(Item::All(None));
        }
        let start = self.at;
        if let Some((table, _)) = self.take_name()
            && self.take_mark(".")
            && self.take_mark("*")
        {
            return Ok(Item::All(Some(table)));
        }
        self.at = start;
        let expression = self.expression()?;
        // SQLite has determined the name of the column.
        if self.take_word("as") {
            self.need_name()?;
        } else {
            self.take_name();
        }
        Ok(Item::Expression(expression))
    }

    fn expression(&mut self) -> Result<Syntax, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deep".into());
        }
        let mut left = self.conjunction()?;
        while self.take_word("or") {
            left = binary("or", left, self.conjunction()?);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Syntax, String> {
        let mut left = self.negation()?;
        while self.take_word("and") {
            left = binary("and", left, self.negation()?);
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Syntax, String> {
        let mut times = 0_usize;
        while self.take_word("not") {
            times += 1;
        }
        if times > DEPTH_MAX {
            return Err("it is nested too deep".into());
        }
        let inner = self.equality()?;
        Ok((0..times).fold(inner, |inner, _| Syntax::Not(Box::new(inner))))
    }

    fn equality(&mut self) -> Result<Syntax, String> {
        let mut left = self.operators(0)?;
        loop {
            left = if self.take_mark("=") || self.take_mark("==") {
                binary("=", left, self.operators(0)?)
            } else if self.take_mark("<>") || self.take_mark("!=") {
                binary("<>", left, self.operators(0)?)
            } else if self.take_word("isnull") {
                Syntax::IsNull(Box::new(left))
            } else if self.take_word("notnull") {
                not(Syntax::IsNull(Box::new(left)), true)
            } else if self.take_word("is") {
                let operator = match self.take_word("not") {
                    true => "is not",
                    false => "is",
                };
                binary(operator, left, self.operators(0)?)
            } else if self.is_word("not") && self.is_word_at(self.at + 1, "null") {
                self.at += 2;
                not(Syntax::IsNull(Box::new(left)), true)
            } else {
                let negated = self.is_word("not");
                let at = self.at + usize::from(negated);
                if !["between", "in", "like"]
                    .iter()
                    .any(|w| self.is_word_at(at, w))
                {
                    return Ok(left);
                }
                self.at = at;
                not(self.membership(left)?, negated)
            };
        }
    }

    /// The rest of `BETWEEN`, `IN` and `LIKE` after an operand.
    fn membership(&mut self, left: Syntax) -> Result<Syntax, String> {
        let left = Box::new(left);
        if self.take_word("between") {
            let low = Box::new(self.operators(0)?);
            self.need_word("and")?;
            return Ok(Syntax::Between(left, low, Box::new(self.operators(0)?)));
        }
        if self.take_word("like") {
            let pattern = Box::new(self.operators(0)?);
            if self.is_word("escape") {
                return Err(self.unknown());
            }
            return Ok(Syntax::Like(left, pattern));
        }
        self.need_word("in")?;
        self.need_mark("(")?;
        Ok(Syntax::In(left, self.arguments()?))
    }

    /// Operators from `<` on, the loosest first, left-associative.
    fn operators(&mut self, level: usize) -> Result<Syntax, String> {
        const LEVELS: [&[&str]; 4] = [
            &["<", "<=", ">", ">="],
            &["+", "-"],
            &["*", "/", "%"],
            &["||"],
        ];
        let Some(level_marks) = LEVELS.get(level) else {
            return self.prefix();
        };
        let mut left = self.operators(level + 1)?;
        while let Some(mark) = level_marks.iter().find(|mark| self.is_mark(mark)) {
            self.at += 1;
            left = binary(mark, left, self.operators(level + 1)?);
        }
        Ok(left)
    }

    fn prefix(&mut self) -> Result<Syntax, String> {
        let mut signs = Vec::new();
        while self.is_mark("-") || self.is_mark("+") {
            signs.push(self.is_mark("-"));
            self.at += 1;
        }
        if signs.len() > DEPTH_MAX {
            return Err("it is nested too deep".into());
        }
        let mut inner = self.primary()?;
        for negative in signs.into_iter().rev() {
            let boxed = Box::new(inner);
            inner = match negative {
                true => Syntax::Negative(boxed),
                false => Syntax::Plus(boxed),
            };
        }
        Ok(inner)
    }

    fn primary(&mut self) -> Result<Syntax, String> {
        if self.take_mark("(") {
            let inner = self.expression()?;
            self.need_mark(")")?;
            return Ok(inner);
        }
        match self.peek() {
            Some(Token::Number(text)) => {
                let number = Syntax::Number(text.clone());
                self.at += 1;
                return Ok(number);
            }
            Some(Token::Text(text)) => {
                let text = Syntax::Text(text.clone());
                self.at += 1;
                return Ok(text);
            }
            _ => {}
        }
        if self.take_word("null") {
            return Ok(Syntax::Null);
        }
        if self.take_word("case") {
            return self.case();
        }
        let called = matches!(self.tokens.get(self.at + 1), Some(Token::Mark("(")));
        if called && self.take_word("cast") {
            self.at += 1;
            let inner = Box::new(self.expression()?);
            self.need_word("as")?;
            let (name, _) = self.need_name()?;
            self.need_mark(")")?;
            return Ok(Syntax::Cast(inner, name.to_ascii_lowercase()));
        }
        if let Some(Token::Word(word)) = self.peek()
            && called
        {
            let name = word.to_ascii_lowercase();
            self.at += 2;
            return self.call(name);
        }
        let (name, plain) = self.need_name()?;
        if !self.take_mark(".") {
            return Ok(Syntax::Column(None, name, plain));
        }
        let (column, plain) = self.need_name()?;
        Ok(Syntax::Column(Some(name), column, plain))
    }

    fn call(&mut self, name: String) -> Result<Syntax, String> {
        let arguments = if self.take_mark("*") {
            self.need_mark(")")?;
            None
        } else {
            Some(self.arguments()?)
        };
        if self.is_word("filter") || self.is_word("over") || self.is_word("within") {
            return Err(self.unknown());
        }
        Ok(Syntax::Call(name, arguments))
    }

    /// Expressions between commas, and the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Syntax>, String> {
        let mut arguments = Vec::new();
        if self.take_mark(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if !self.take_mark(",") {
                self.need_mark(")")?;
                return Ok(arguments);
            }
        }
    }

    fn case(&mut self) -> Result<Syntax, String> {
        let base = match self.is_word("when") {
            true => None,
            false => Some(Box::new(self.expression()?)),
        };
        let mut pairs = Vec::new();
        while self.take_word("when") {
            let condition = self.expression()?;
            self.need_word("then")?;
            pairs.push((condition, self.expression()?));
        }
        let otherwise = match self.take_word("else") {
            true => Some(Box::new(self.expression()?)),
            false => None,
        };
        self.need_word("end")?;
        Ok(Syntax::Case(base, pairs, otherwise))
    }
}

fn is_keyword(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    KEYWORDS.binary_search(&word.as_str()).is_ok()
}

fn binary(operator: &'static str, left: Syntax, right: Syntax) -> Syntax {
    Syntax::Binary(operator, Box::new(left), Box::new(right))
}

fn not(inner: Syntax, negated: bool) -> Syntax {
    match negated {
        true => Syntax::Not(Box::new(inner)),
        false => inner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keywords_are_sorted_for_the_search() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn equality_binds_less_than_comparison() {
        let select = parse("select a = b < c from s").expect("in the subset");
        let [Item::Expression(Syntax::Binary("=", _, right))] = &select.items[..] else {
            panic!("{select:?}");
        };
        assert!(matches!(**right, Syntax::Binary("<", ..)));
    }

    #[test]
    fn syntax_outside_of_the_subset_is_named() {
        for (statement, reason) in [
            ("select a from s order by a", "it uses ORDER"),
            ("select a from s, t", "it has , in an unexpected position"),
            ("select distinct a from s", "it uses DISTINCT"),
            ("select (select 1) from s", "it uses SELECT"),
            (
                "select a from s where a like 'x' escape '!'",
                "it uses ESCAPE",
            ),
            ("with t as (select 1) select * from t", "it uses WITH"),
            ("select sum(a) over () from s", "it uses OVER"),
        ] {
            assert_eq!(parse(statement).expect_err(statement), reason);
        }
    }
}
