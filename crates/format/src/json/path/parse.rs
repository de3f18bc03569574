//! The grammar of RFC 9535, by recursive descent.

use serde_json::Value as Json;

use super::{
    Comparison, Function, JsonPath, Logical, NESTING_MAX, Operand, PATH_BYTES_MAX, PathError,
    Pattern, Query, Segment, Selector, compile, is_singular,
};

/// Largest integer of a query: exact in the numbers of other languages (RFC 9535, 2.1).
const INTEGER_MAX: i64 = (1 << 53) - 1;

pub(super) fn path(text: &str) -> Result<JsonPath, PathError> {
    let mut parser = Parser {
        text,
        at: 0,
        nesting: 0,
    };
    if text.len() > PATH_BYTES_MAX {
        return Err(parser.error(format!("a path has at most {PATH_BYTES_MAX} bytes")));
    }
    if !parser.take("$") {
        return Err(parser.error("a path begins with `$`"));
    }
    let segments = parser.segments()?;
    if parser.at != text.len() {
        return Err(parser.error("a path continues with `.`, `..` or `[`"));
    }
    Ok(JsonPath { segments })
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    nesting: usize,
}

type Parsed<T> = Result<T, PathError>;

impl<'t> Parser<'t> {
    fn error(&self, reason: impl Into<String>) -> PathError {
        PathError {
            offset: self.at,
            reason: reason.into(),
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.error(format!("`{token}` is missing"))),
        }
    }

    fn blank(&mut self) {
        let blank = self.rest().bytes();
        self.at += blank
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == NESTING_MAX {
            return Err(self.error(format!("it is nested deeper than {NESTING_MAX}")));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    fn segments(&mut self) -> Parsed<Vec<Segment>> {
        let mut segments = Vec::new();
        loop {
            let before = self.at;
            self.blank();
            let is_descendant = self.take("..");
            if !is_descendant && self.take(".") || is_descendant && self.peek() != Some('[') {
                let selector = match self.take("*") {
                    true => Selector::Wildcard,
                    false => Selector::Name(self.member_name()?.to_owned()),
                };
                segments.push(Segment {
                    is_descendant,
                    selectors: vec![selector],
                });
            } else if self.take("[") {
                let selectors = self.nested(Self::selectors)?;
                segments.push(Segment {
                    is_descendant,
                    selectors,
                });
            } else {
                self.at = before;
                return Ok(segments);
            }
        }
    }

    fn member_name(&mut self) -> Parsed<&'t str> {
        let rest = self.rest();
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        if !rest.starts_with(is_first) {
            return Err(self.error("a member name is missing"));
        }
        let end = rest.find(|c: char| !is_first(c) && !c.is_ascii_digit());
        let name = &rest[..end.unwrap_or(rest.len())];
        self.at += name.len();
        Ok(name)
    }

    fn selectors(&mut self) -> Parsed<Vec<Selector>> {
        let mut selectors = Vec::new();
        loop {
            self.blank();
            selectors.push(self.selector()?);
            self.blank();
            if self.take("]") {
                return Ok(selectors);
            }
            self.expect(",")?;
        }
    }

    fn selector(&mut self) -> Parsed<Selector> {
        match self.peek() {
            Some('*') => {
                self.at += 1;
                Ok(Selector::Wildcard)
            }
            Some('?') => {
                self.at += 1;
                self.blank();
                Ok(Selector::Filter(self.nested(Self::logical)?))
            }
            Some('\'' | '"') => Ok(Selector::Name(self.string()?)),
            Some('-' | ':' | '0'..='9') => self.index_or_slice(),
            _ => Err(self
                .error("a selector is missing: a name in quotes, an index, a slice, `*` or `?`")),
        }
    }

    fn index_or_slice(&mut self) -> Parsed<Selector> {
        let number = |parser: &mut Self| match parser.peek() {
            Some('-' | '0'..='9') => parser.integer().map(Some),
            _ => Ok(None),
        };
        let start = number(self)?;
        let after = self.at;
        self.blank();
        if !self.take(":") {
            self.at = after;
            return start
                .map(Selector::Index)
                .ok_or_else(|| self.error("an index is missing"));
        }
        self.blank();
        let end = number(self)?;
        let after = self.at;
        self.blank();
        let mut step = None;
        if self.take(":") {
            let after = self.at;
            self.blank();
            step = number(self)?;
            if step.is_none() {
                self.at = after;
            }
        } else {
            self.at = after;
        }
        let step = step.unwrap_or(1);
        Ok(Selector::Slice { start, end, step })
    }

    fn integer(&mut self) -> Parsed<i64> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let is_canonical =
            length > 0 && (!digits.starts_with('0') || rest == digits && length == 1);
        let text = &rest[..rest.len() - digits.len() + length];
        let number = text.parse::<i64>().ok();
        let number = number.filter(|number| is_canonical && number.abs() <= INTEGER_MAX);
        let Some(number) = number else {
            return Err(self.error("this is not an integer without leading zeros up to 2^53 - 1"));
        };
        self.at += text.len();
        Ok(number)
    }

    fn string(&mut self) -> Parsed<String> {
        let quote = self.peek().unwrap_or('"');
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = self
                .peek()
                .ok_or_else(|| self.error("a quote is missing"))?;
            match c {
                _ if c == quote => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => {
                    self.at += 1;
                    text.push(self.escape(quote)?);
                }
                '\0'..='\x1f' => return Err(self.error("a control character must be escaped")),
                _ => {
                    self.at += c.len_utf8();
                    text.push(c);
                }
            }
        }
    }

    fn escape(&mut self, quote: char) -> Parsed<char> {
        let wrong = self.error("this escape does not exist");
        let c = self.peek().ok_or_else(|| wrong.clone())?;
        self.at += c.len_utf8();
        Ok(match c {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '/' | '\\' => c,
            _ if c == quote => c,
            'u' => {
                let mut code = self.hexadecimal().ok_or_else(|| wrong.clone())?;
                if (0xd800..0xdc00).contains(&code) && self.take("\\u") {
                    let low = self.hexadecimal().ok_or_else(|| wrong.clone())?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(wrong);
                    }
                    code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                return char::from_u32(code).ok_or(wrong);
            }
            _ => return Err(wrong),
        })
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        is_hexadecimal.then_some(code)
    }

    fn logical(&mut self) -> Parsed<Logical> {
        let mut parts = vec![self.conjunction()?];
        loop {
            self.blank();
            if !self.take("||") {
                break;
            }
            self.blank();
            parts.push(self.conjunction()?);
        }
        Ok(one_or(parts, Logical::Or))
    }

    fn conjunction(&mut self) -> Parsed<Logical> {
        let mut parts = vec![self.basic()?];
        loop {
            self.blank();
            if !self.take("&&") {
                break;
            }
            self.blank();
            parts.push(self.basic()?);
        }
        Ok(one_or(parts, Logical::And))
    }

    fn basic(&mut self) -> Parsed<Logical> {
        if self.take("!") {
            self.blank();
            let inner = match self.peek() {
                Some('(') => self.parentheses()?,
                _ => {
                    let start = self.at;
                    let operand = self.operand()?;
                    self.test(operand, start)?
                }
            };
            return Ok(Logical::Not(Box::new(inner)));
        }
        if self.peek() == Some('(') {
            return self.parentheses();
        }
        let start = self.at;
        let left = self.operand()?;
        let after = self.at;
        self.blank();
        let table = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (token, comparison) in table {
            if self.take(token) {
                self.blank();
                let left = self.comparable(left, start)?;
                let start = self.at;
                let right = self.operand()?;
                let right = self.comparable(right, start)?;
                return Ok(Logical::Compare(left, comparison, right));
            }
        }
        self.at = after;
        self.test(left, start)
    }

    fn parentheses(&mut self) -> Parsed<Logical> {
        self.expect("(")?;
        self.blank();
        let inner = self.nested(Self::logical)?;
        self.blank();
        self.expect(")")?;
        Ok(inner)
    }

    /// An operand as a test: a query, or a function with a logical result.
    fn test(&self, operand: Operand, start: usize) -> Parsed<Logical> {
        let reason = match operand {
            Operand::Query(query) => return Ok(Logical::Exists(query)),
            Operand::Function(function) => match *function {
                Function::Matches { .. } => return Ok(Logical::Function(*function)),
                _ => "the value of this function must be compared",
            },
            Operand::Literal(_) => "a literal must be compared",
        };
        Err(PathError {
            offset: start,
            reason: reason.to_owned(),
        })
    }

    /// An operand with one value at most.
    fn comparable(&self, operand: Operand, start: usize) -> Parsed<Operand> {
        let reason = match &operand {
            Operand::Query(query) if !is_singular(&query.segments) => {
                "a query that may select several values has no value"
            }
            Operand::Function(function) if matches!(**function, Function::Matches { .. }) => {
                "this function is true or false, and has no value"
            }
            _ => return Ok(operand),
        };
        Err(PathError {
            offset: start,
            reason: reason.to_owned(),
        })
    }

    fn operand(&mut self) -> Parsed<Operand> {
        match self.peek() {
            Some('@' | '$') => {
                let is_absolute = self.peek() == Some('$');
                self.at += 1;
                let segments = self.nested(Self::segments)?;
                Ok(Operand::Query(Query {
                    is_absolute,
                    segments,
                }))
            }
            Some('\'' | '"') => Ok(Operand::Literal(Json::String(self.string()?))),
            Some('-' | '0'..='9') => self.number().map(Operand::Literal),
            _ => {
                let rest = self.rest();
                let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
                let start = self.at;
                self.at += name.len();
                if !name.is_empty() && self.take("(") {
                    let function = self.nested(|parser| parser.function(name, start))?;
                    return Ok(Operand::Function(Box::new(function)));
                }
                let literal = match name {
                    "true" => Json::Bool(true),
                    "false" => Json::Bool(false),
                    "null" => Json::Null,
                    _ => {
                        self.at = start;
                        return Err(self.error("a query, a literal or a function is missing"));
                    }
                };
                Ok(Operand::Literal(literal))
            }
        }
    }

    fn number(&mut self) -> Parsed<Json> {
        let rest = self.rest().as_bytes();
        let digits = |from: usize| {
            let digits = rest[from..].iter().take_while(|byte| byte.is_ascii_digit());
            digits.count()
        };
        let sign = usize::from(rest.first() == Some(&b'-'));
        let whole = digits(sign);
        let mut end = sign + whole;
        let mut is_valid = whole == 1 || whole > 1 && rest[sign] != b'0';
        if rest.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            is_valid &= fraction > 0;
            end += 1 + fraction;
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            is_valid &= exponent > 0;
            end += 1 + sign + exponent;
        }
        let number = self.rest()[..end].parse::<serde_json::Number>().ok();
        let Some(number) = number.filter(|_| is_valid) else {
            return Err(self.error("this is not a number"));
        };
        self.at += end;
        Ok(Json::Number(number))
    }

    fn function(&mut self, name: &str, start: usize) -> Parsed<Function> {
        let mut arguments = Vec::new();
        self.blank();
        while !self.take(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
                self.blank();
            }
            let at = self.at;
            arguments.push((at, self.operand()?));
            self.blank();
        }
        let wrong = |reason: &str| PathError {
            offset: start,
            reason: format!("{name}: {reason}"),
        };
        let mut arguments = arguments.into_iter();
        let mut next = || {
            arguments
                .next()
                .ok_or_else(|| wrong("an argument is missing"))
        };
        let nodes = |(_, operand)| match operand {
            Operand::Query(query) => Ok(query),
            _ => Err(wrong("the argument is a query")),
        };
        let value = |(at, operand)| self.comparable(operand, at);
        let function = match name {
            "length" => Function::Length(value(next()?)?),
            "count" => Function::Count(nodes(next()?)?),
            "value" => Function::Value(nodes(next()?)?),
            "match" | "search" => {
                let is_whole = name == "match";
                let text = value(next()?)?;
                let pattern = match value(next()?)? {
                    Operand::Literal(Json::String(pattern)) => {
                        Pattern::Literal(compile(&pattern, is_whole))
                    }
                    Operand::Literal(_) => Pattern::Literal(None),
                    operand => Pattern::Dynamic(operand),
                };
                Function::Matches {
                    text,
                    pattern,
                    is_whole,
                }
            }
            _ => return Err(wrong("there is no such function")),
        };
        match arguments.next() {
            Some(_) => Err(wrong("there are too many arguments")),
            None => Ok(function),
        }
    }
}

fn one_or(mut parts: Vec<Logical>, join: fn(Vec<Logical>) -> Logical) -> Logical {
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, Some(last)) => {
            parts.push(last);
            join(parts)
        }
        (_, None) => join(parts),
    }
}
