//! The words of an IDL file, with their places.

use std::iter::Peekable;
use std::str::Chars;

use super::{IdlError, Parsed};

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Name(String),
    Number(i64),
    /// Text, or a number that is not whole.
    Literal,
    Mark(char),
    Include(String),
    End,
}

/// Reads words.
pub(super) struct Tokens<'a> {
    file: &'a str,
    letters: Peekable<Chars<'a>>,
    line: u32,
    column: u32,
    /// The next word, with its place.
    next: Option<(Token, u32, u32)>,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            letters: text.chars().peekable(),
            line: 1,
            column: 1,
            next: None,
        }
    }

    /// A fault at the next word.
    pub(super) fn fault(&mut self, message: String) -> IdlError {
        let (line, column) = match self.peek() {
            Ok(_) => self
                .next
                .as_ref()
                .map_or((1, 1), |(_, line, column)| (*line, *column)),
            Err(error) => return error,
        };
        IdlError {
            file: self.file.to_owned(),
            line,
            column,
            message,
        }
    }

    pub(super) fn peek(&mut self) -> Parsed<&Token> {
        if self.next.is_none() {
            self.next = Some(self.read()?);
        }
        Ok(self.next.as_ref().map_or(&Token::End, |(token, ..)| token))
    }

    pub(super) fn next(&mut self) -> Parsed<Token> {
        self.peek()?;
        Ok(self.next.take().map_or(Token::End, |(token, ..)| token))
    }

    pub(super) fn expect(&mut self, mark: char) -> Parsed<()> {
        match self.has(mark)? {
            true => Ok(()),
            false => Err(self.fault(format!("expected {mark}"))),
        }
    }

    /// Whether the next word is this mark, which is then taken.
    pub(super) fn has(&mut self, mark: char) -> Parsed<bool> {
        let has = *self.peek()? == Token::Mark(mark);
        if has {
            self.next = None;
        }
        Ok(has)
    }

    /// Whether the next word is this name, which is then taken.
    pub(super) fn has_name(&mut self, name: &str) -> Parsed<bool> {
        let has = matches!(self.peek()?, Token::Name(found) if found == name);
        if has {
            self.next = None;
        }
        Ok(has)
    }

    pub(super) fn name(&mut self) -> Parsed<String> {
        let fault = self.fault("expected a name".into());
        match self.next()? {
            // A leading `_` escapes a keyword, and is not part of the name.
            Token::Name(name) => Ok(name.strip_prefix('_').map_or(name.clone(), str::to_owned)),
            _ => Err(fault),
        }
    }

    /// A name with its scopes: `a::b`, `::a::b`.
    pub(super) fn scoped_name(&mut self) -> Parsed<String> {
        let mut name = String::new();
        if self.has(':')? {
            self.expect(':')?;
            name.push_str("::");
        }
        loop {
            name.push_str(&self.name()?);
            if !self.has(':')? {
                return Ok(name);
            }
            self.expect(':')?;
            name.push_str("::");
        }
    }

    /// The parameters of an annotation, up to the closing parenthesis: those that are one word, as text.
    pub(super) fn parameters(&mut self) -> Parsed<String> {
        let (mut depth, mut text) = (0_u32, String::new());
        loop {
            match self.next()? {
                Token::Mark('(') => depth += 1,
                Token::Mark(')') if depth == 1 => return Ok(text),
                Token::Mark(')') => depth -= 1,
                Token::Name(name) => text.push_str(&name),
                Token::Number(number) => text.push_str(&number.to_string()),
                Token::Mark('-') => text.push('-'),
                Token::End => return Err(self.fault("expected )".into())),
                _ => {}
            }
        }
    }

    fn letter(&mut self) -> Option<char> {
        let letter = self.letters.next()?;
        match letter {
            '\n' => (self.line, self.column) = (self.line.saturating_add(1), 1),
            _ => self.column = self.column.saturating_add(1),
        }
        Some(letter)
    }

    fn while_is(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while self.letters.peek().is_some_and(|letter| is_part(*letter)) {
            text.extend(self.letter());
        }
        text
    }

    fn read(&mut self) -> Parsed<(Token, u32, u32)> {
        loop {
            self.while_is(char::is_whitespace);
            let (line, column) = (self.line, self.column);
            let fault = |message: &str| IdlError {
                file: self.file.to_owned(),
                line,
                column,
                message: message.to_owned(),
            };
            let Some(letter) = self.letters.peek().copied() else {
                return Ok((Token::End, line, column));
            };
            let token = match letter {
                '/' => {
                    let unended = fault("a comment does not end");
                    let stray = fault("unexpected /");
                    self.letter();
                    self.comment(&unended, stray)?;
                    continue;
                }
                '#' => match self.directive() {
                    Some(file) => Token::Include(file),
                    None => continue,
                },
                '"' | '\'' => {
                    let unended = fault("a text does not end");
                    self.literal(letter).ok_or(unended)?;
                    Token::Literal
                }
                letter if letter.is_ascii_digit() => {
                    let word = self.while_is(|it| it.is_ascii_alphanumeric() || it == '.');
                    number(&word).map_or(Token::Literal, Token::Number)
                }
                letter if letter.is_ascii_alphabetic() || letter == '_' => {
                    Token::Name(self.while_is(|it| it.is_ascii_alphanumeric() || it == '_'))
                }
                letter if letter.is_ascii_punctuation() => {
                    self.letter();
                    Token::Mark(letter)
                }
                _ => return Err(fault(&format!("unexpected {letter:?}"))),
            };
            return Ok((token, line, column));
        }
    }

    /// Skips a comment, after its first letter.
    fn comment(&mut self, unended: &IdlError, stray: IdlError) -> Parsed<()> {
        match self.letter() {
            Some('/') => {
                self.while_is(|letter| letter != '\n');
                Ok(())
            }
            Some('*') => loop {
                match self.letter() {
                    Some('*') if self.letters.peek() == Some(&'/') => {
                        self.letter();
                        return Ok(());
                    }
                    Some(_) => {}
                    None => return Err(unended.clone()),
                }
            },
            _ => Err(stray),
        }
    }

    /// A line of the preprocessor: the file of an include; others are skipped.
    fn directive(&mut self) -> Option<String> {
        let line = self.while_is(|letter| letter != '\n');
        let rest = line[1..].trim().strip_prefix("include")?.trim();
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let angled = || rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        quoted.or_else(angled).map(|(file, _)| file.to_owned())
    }

    /// Skips a text or character.
    fn literal(&mut self, mark: char) -> Option<()> {
        self.letter();
        loop {
            match self.letter()? {
                '\\' => {
                    self.letter()?;
                }
                letter if letter == mark => return Some(()),
                _ => {}
            }
        }
    }
}

/// A whole number: decimal, hexadecimal or octal.
fn number(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None if word.len() > 1 && word.starts_with('0') => i64::from_str_radix(&word, 8).ok(),
        None => word.parse().ok(),
    }
}
