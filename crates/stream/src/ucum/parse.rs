//! The grammar of UCUM codes (section 2.2).

use super::{CODE_BYTES_MAX, Unit, table};

/// Open brackets; reason: each is a step of recursion.
const DEPTH_MAX: usize = 8;
/// Largest power, either way.
const POWER_MAX: i16 = 99;

/// The unit of a code.
///
/// # Errors
/// What is wrong with it.
pub(super) fn unit(code: &str) -> Result<Unit, String> {
    if code.is_empty() {
        return Err("it is empty".to_owned());
    }
    if code.len() > CODE_BYTES_MAX {
        return Err(format!("it is longer than {CODE_BYTES_MAX} bytes"));
    }
    let mut parser = Parser {
        rest: code,
        depth: 0,
        components: 0,
        special: false,
    };
    let unit = parser.term()?;
    if !parser.rest.is_empty() {
        return Err(format!("{:?} is left over", parser.rest));
    }
    if parser.special && parser.components > 1 {
        return Err(
            "a unit with an offset cannot be part of a product or power; use K for differences"
                .to_owned(),
        );
    }
    Ok(unit)
}

struct Parser<'c> {
    rest: &'c str,
    depth: usize,
    /// Units and numbers so far.
    components: usize,
    /// One of them has an offset.
    special: bool,
}

impl Parser<'_> {
    /// Components joined by dots and slashes, from left to right.
    fn term(&mut self) -> Result<Unit, String> {
        let mut product = Unit::ONE;
        let mut exponent = 1;
        if self.take('/') {
            exponent = -1;
        }
        loop {
            let (component, power) = self.component()?;
            if component.is_special() {
                self.special = true;
                if exponent * power != 1 {
                    return Err("a unit with an offset cannot be part of a product or power; use K for differences".into());
                }
                product.offset = component.offset;
            }
            let power = exponent * power;
            let too_large = || "it is too large or too small".to_owned();
            product = product.times(&component, power).ok_or_else(too_large)?;
            exponent = match (self.take('.'), self.take('/')) {
                (true, false) => 1,
                (false, true) => -1,
                (false, false) => return Ok(product),
                (true, true) => return Err("a unit is missing before \"/\"".to_owned()),
            };
        }
    }

    /// One component and its power.
    fn component(&mut self) -> Result<(Unit, i16), String> {
        if self.take('(') {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(format!("it has more than {DEPTH_MAX} open brackets"));
            }
            let inner = self.term()?;
            self.depth -= 1;
            if !self.take(')') {
                return Err("a closing bracket is missing".to_owned());
            }
            return Ok((inner, 1));
        }
        self.components += 1;
        if self.rest.starts_with('{') {
            self.annotation()?;
            return Ok((Unit::ONE, 1));
        }
        let (unit, is_number) = match self.rest.as_bytes().first() {
            Some(b'0'..=b'9') => self.number()?,
            _ => {
                let symbol = self.symbol();
                if symbol.is_empty() {
                    return Err(match self.rest.chars().next() {
                        Some(next) => format!("a unit is missing before {:?}", next.to_string()),
                        None => "a unit is missing at the end".to_owned(),
                    });
                }
                (table::unit(symbol)?, false)
            }
        };
        let power = match is_number {
            true => 1,
            false => self.power()?,
        };
        if self.rest.starts_with('{') {
            self.annotation()?;
        }
        Ok((unit, power))
    }

    /// A number, or a power of ten as a unit.
    fn number(&mut self) -> Result<(Unit, bool), String> {
        let ten = ["10*", "10^"]
            .into_iter()
            .find(|ten| self.rest.starts_with(ten));
        if let Some(ten) = ten {
            self.rest = &self.rest[ten.len()..];
            return Ok((table::unit(ten)?, false));
        }
        let digits = self.digits();
        let factor: f64 = digits.parse().map_err(|_| "a number is none".to_owned())?;
        if factor == 0.0 {
            return Err("a factor of zero measures nothing".to_owned());
        }
        let unit = Unit {
            factor,
            ..Unit::ONE
        };
        Ok((unit, true))
    }

    /// A symbol: up to a digit, sign or operator outside its square brackets.
    fn symbol(&mut self) -> &str {
        let mut is_inside = false;
        let end = self.rest.find(|c: char| {
            match c {
                '[' => is_inside = true,
                ']' => is_inside = false,
                '0'..='9' | '+' | '-' | '.' | '/' | '(' | ')' | '{' | '}' => return !is_inside,
                _ => {}
            }
            false
        });
        let (symbol, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        symbol
    }

    fn power(&mut self) -> Result<i16, String> {
        let sign = match (self.take('+'), self.take('-')) {
            (_, true) => -1,
            (true, false) => 1,
            (false, false) if !self.rest.starts_with(|c: char| c.is_ascii_digit()) => return Ok(1),
            (false, false) => 1,
        };
        let digits = self.digits();
        let power = digits
            .parse::<i16>()
            .ok()
            .filter(|it| (1..=POWER_MAX).contains(it));
        let power =
            power.ok_or_else(|| format!("{digits:?} is not a power of 1 to {POWER_MAX}"))?;
        Ok(sign * power)
    }

    fn digits(&mut self) -> &str {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        digits
    }

    /// Text in braces, which measures nothing.
    fn annotation(&mut self) -> Result<(), String> {
        let end = self.rest.find('}').ok_or("an annotation has no end")?;
        let (text, rest) = (&self.rest[1..end], &self.rest[end + 1..]);
        if !text.bytes().all(|b| (0x21..0x7F).contains(&b) && b != b'{') {
            return Err(format!(
                "the annotation {text:?} is not of visible ASCII characters"
            ));
        }
        self.rest = rest;
        Ok(())
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}
