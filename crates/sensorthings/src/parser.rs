//! The parser of expressions: precedence of OData 4, which the standard follows.

use crate::expression::{Arithmetic, Comparison, Expression, Function};
use crate::fault::shown;
use crate::lexer::{Token, geo, tokens};
use crate::model::{EntityType, has_members, is_id};
use crate::options::FILTER_BYTES_MAX;
use crate::{Fault, Value};

/// Nodes of an expression; reason: each observation that is read is tested with all of them.
const NODES_MAX: usize = 256;
/// Nested expressions; reason: each takes a part of the stack.
const DEPTH_MAX: usize = 48;
/// Parts of a path; reason: each link of it may lead to many entities.
const PATH_PARTS_MAX: usize = 8;

/// Parses the filter of a set of entities of type `kind`.
///
/// # Errors
/// [`Fault::Invalid`] for a text that is no expression, is too large, or names a property that the
/// entities do not have; [`Fault::Unsupported`] for functions on geometries.
pub fn parse_filter(text: &str, kind: EntityType) -> Result<Expression, Fault> {
    if text.len() > FILTER_BYTES_MAX {
        let detail = format!(
            "$filter has {} bytes; the limit is {FILTER_BYTES_MAX}",
            text.len()
        );
        return Err(Fault::Invalid(detail));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        nodes: 0,
        kind,
    };
    let expression = parser.or(0)?;
    match parser.tokens.get(parser.at) {
        None => Ok(expression),
        Some(token) => Err(unexpected(Some(token))),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    nodes: usize,
    kind: EntityType,
}

type Parsed = Result<Expression, Fault>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// The word that is next, if it is one.
    fn word(&self) -> Option<&str> {
        match self.peek()? {
            Token::Name(parts) if parts.len() == 1 => Some(&parts[0]),
            _ => None,
        }
    }

    fn has_word(&mut self, word: &str) -> bool {
        let has = self.word() == Some(word);
        self.at += usize::from(has);
        has
    }

    fn has(&mut self, token: &Token) -> bool {
        let has = self.peek() == Some(token);
        self.at += usize::from(has);
        has
    }

    fn node(&mut self, expression: Expression) -> Parsed {
        self.nodes += 1;
        match self.nodes > NODES_MAX {
            true => Err(Fault::Invalid(format!(
                "an expression has at most {NODES_MAX} parts"
            ))),
            false => Ok(expression),
        }
    }

    fn or(&mut self, depth: usize) -> Parsed {
        if depth > DEPTH_MAX {
            let detail = format!("an expression has at most {DEPTH_MAX} levels");
            return Err(Fault::Invalid(detail));
        }
        let mut one = self.and(depth)?;
        while self.has_word("or") {
            let other = self.and(depth)?;
            one = self.node(Expression::Or(Box::new(one), Box::new(other)))?;
        }
        Ok(one)
    }

    fn and(&mut self, depth: usize) -> Parsed {
        let mut one = self.comparison(depth)?;
        while self.has_word("and") {
            let other = self.comparison(depth)?;
            one = self.node(Expression::And(Box::new(one), Box::new(other)))?;
        }
        Ok(one)
    }

    fn comparison(&mut self, depth: usize) -> Parsed {
        let one = self.sum(depth)?;
        let Some(comparison) = self.word().and_then(Comparison::of_word) else {
            return Ok(one);
        };
        self.at += 1;
        let other = self.sum(depth)?;
        self.node(Expression::Compare(
            comparison,
            Box::new(one),
            Box::new(other),
        ))
    }

    fn sum(&mut self, depth: usize) -> Parsed {
        let mut one = self.product(depth)?;
        loop {
            let operation = match self.word() {
                Some("add") => Arithmetic::Add,
                Some("sub") => Arithmetic::Subtract,
                _ => return Ok(one),
            };
            self.at += 1;
            let other = self.product(depth)?;
            let (a, b) = (Box::new(one), Box::new(other));
            one = self.node(Expression::Arithmetic(operation, a, b))?;
        }
    }

    fn product(&mut self, depth: usize) -> Parsed {
        let mut one = self.unary(depth)?;
        loop {
            let operation = match self.word() {
                Some("mul") => Arithmetic::Multiply,
                Some("div") => Arithmetic::Divide,
                Some("mod") => Arithmetic::Modulo,
                _ => return Ok(one),
            };
            self.at += 1;
            let other = self.unary(depth)?;
            let (a, b) = (Box::new(one), Box::new(other));
            one = self.node(Expression::Arithmetic(operation, a, b))?;
        }
    }

    fn unary(&mut self, depth: usize) -> Parsed {
        if depth > DEPTH_MAX {
            let detail = format!("an expression has at most {DEPTH_MAX} levels");
            return Err(Fault::Invalid(detail));
        }
        if self.has(&Token::Minus) {
            let inner = self.unary(depth + 1)?;
            return self.node(Expression::Negate(Box::new(inner)));
        }
        if self.has_word("not") {
            let inner = self.unary(depth + 1)?;
            return self.node(Expression::Not(Box::new(inner)));
        }
        self.primary(depth)
    }

    fn primary(&mut self, depth: usize) -> Parsed {
        let token = self.peek().cloned();
        self.at += 1;
        match token {
            Some(Token::Literal(value)) => self.node(Expression::Literal(value)),
            Some(Token::Open) => {
                let inner = self.or(depth + 1)?;
                self.close()?;
                Ok(inner)
            }
            Some(Token::Name(parts)) if self.peek() == Some(&Token::Open) => {
                self.at += 1;
                self.call(&parts, depth)
            }
            Some(Token::Name(parts)) => {
                check_path(&parts, self.kind)?;
                self.node(Expression::Path(parts))
            }
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        match self.has(&Token::Close) {
            true => Ok(()),
            false => Err(Fault::invalid("a parenthesis is not closed")),
        }
    }

    fn call(&mut self, parts: &[String], depth: usize) -> Parsed {
        let name = parts.join("/");
        if name.starts_with("geo.") || name.starts_with("st_") {
            return Err(geo());
        }
        if name.ends_with("/any") || name.ends_with("/all") {
            let detail = "any() and all() are not supported: a comparison with a path through a set holds \
                          if it holds for one of its entities";
            return Err(Fault::unsupported(detail));
        }
        let mut known = Function::ALL.iter();
        let known = known.find(|(known, ..)| *known == name);
        let Some((_, function, least, most)) = known else {
            let detail = format!("there is no function {:?}", shown(&name));
            return Err(Fault::Invalid(detail));
        };
        let mut arguments = Vec::new();
        if !self.has(&Token::Close) {
            loop {
                arguments.push(self.or(depth + 1)?);
                if !self.has(&Token::Comma) {
                    break;
                }
            }
            self.close()?;
        }
        if !(*least..=*most).contains(&arguments.len()) {
            let detail = format!("{name}() cannot have {} arguments", arguments.len());
            return Err(Fault::Invalid(detail));
        }
        self.node(Expression::Call(*function, arguments))
    }
}

fn unexpected(token: Option<&Token>) -> Fault {
    let what = match token {
        None => "the end".to_owned(),
        Some(Token::Literal(Value::Text(text))) => format!("'{}'", shown(text)),
        Some(Token::Literal(_)) => "a literal".to_owned(),
        Some(Token::Name(parts)) => format!("{:?}", shown(&parts.join("/"))),
        Some(Token::Open) => "(".to_owned(),
        Some(Token::Close) => ")".to_owned(),
        Some(Token::Comma) => ",".to_owned(),
        Some(Token::Minus) => "-".to_owned(),
    };
    Fault::Invalid(format!("an expression cannot have {what} here"))
}

/// Checks that entities of type `kind` can have what a path names.
pub(crate) fn check_path(parts: &[String], mut kind: EntityType) -> Result<(), Fault> {
    if parts.len() > PATH_PARTS_MAX {
        let detail = format!("a path has at most {PATH_PARTS_MAX} parts");
        return Err(Fault::Invalid(detail));
    }
    for (at, part) in parts.iter().enumerate() {
        if let Some(link) = kind.link(part) {
            if link.target == EntityType::Observation {
                let detail = "a path cannot lead through Observations: ask for Observations, and filter them \
                              by Datastream/Thing";
                return Err(Fault::unsupported(detail));
            }
            kind = link.target;
            continue;
        }
        let is_last = at + 1 == parts.len();
        let set = kind.set_name();
        return match kind.has_property(part) {
            true if is_last || (has_members(part) && !is_id(part)) => Ok(()),
            true => Err(Fault::Invalid(format!("{part:?} of {set} has no members"))),
            false => Err(Fault::Invalid(format!(
                "{set} have no property or link {:?}",
                shown(part)
            ))),
        };
    }
    Err(Fault::Invalid(format!(
        "{:?} leads to an entity, not to a property; add /id",
        parts.join("/")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Parsed {
        parse_filter(text, EntityType::Observation)
    }

    #[test]
    fn operators_have_the_precedence_of_odata() {
        let same = |one: &str, other: &str| {
            assert_eq!(parse(one).unwrap(), parse(other).unwrap(), "{one}");
        };
        same(
            "result gt 1 and result lt 5 or result eq 9",
            "((result gt 1) and (result lt 5)) or (result eq 9)",
        );
        same("result add 1 mul 2 eq 5", "(result add (1 mul 2)) eq 5");
        same("-result eq 1", "(-result) eq 1");
        same("not (result eq 1) and true", "(not (result eq 1)) and true");
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in [
            "",
            "result eq",
            "result eq 1 2",
            "(result eq 1",
            "length()",
            "length(result",
            "nothing(1)",
            "name eq 'a'",
            "Datastream eq 1",
            "Datastream/Thing/nothing eq 1",
            "phenomenonTime/year eq 1",
            "and",
        ] {
            assert!(matches!(parse(text), Err(Fault::Invalid(_))), "{text}");
        }
        for text in [
            "geo.distance(result, 1) lt 1",
            "Datastream/Observations/result gt 1",
            "st_within(result, 1)",
        ] {
            assert!(matches!(parse(text), Err(Fault::Unsupported(_))), "{text}");
        }
        let deep = "(".repeat(DEPTH_MAX + 2);
        assert!(parse(&deep).is_err());
        assert!(parse(&"-".repeat(8_000)).is_err());
        assert!(parse(&"not ".repeat(2_000)).is_err());
        let wide = vec!["result eq 1"; NODES_MAX].join(" or ");
        assert!(parse(&wide).is_err());
        assert!(parse(&"a".repeat(FILTER_BYTES_MAX + 1)).is_err());
    }
}
