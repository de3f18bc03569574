//! Converting text XML to events. Documents are well-formed and in UTF-8, UTF-16 or ISO 8859-1.
//! Entities of the document type declaration are expanded, external ones if the caller supplies
//! them. Default attributes of a document type are not events: an attribute that is not specified
//! maps to none (EXI 1.0, B.3), and applications that have the document type can compute them.

use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use quick_xml::Reader;
use quick_xml::events::Event as Token;

use super::Error;
use crate::schema::XML_NAMESPACE;
use crate::{Event, Name, Options, Preserve, Value};

/// Resource limits for one document. The error names the one that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimits {
    /// Maximum number of open elements. Default 256.
    pub depth: usize,
    /// Maximum bytes that all entities together may expand to. Default 1 MiB.
    pub entity_bytes: usize,
    /// Maximum nesting of entities. Default 8.
    pub entity_depth: usize,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self {
            depth: 256,
            entity_bytes: 1 << 20,
            entity_depth: 8,
        }
    }
}

type EventHandler<'t> = dyn FnMut(Event<'_>) -> Result<(), Error> + 't;

/// Finds an external entity by its system identifier, as the document states it. If it returns
/// none, references to the entity are omitted.
pub type EntityResolver<'r> = dyn FnMut(&str) -> Option<Vec<u8>> + 'r;

/// A handler of events, with the line at which each ends.
type LineEventHandler<'t> = dyn FnMut(usize, Event<'_>) -> Result<(), Error> + 't;

/// Reads a document, or a fragment if the options say so, and passes its events to `take`. Parts
/// that the options do not preserve are omitted, and the character data around them are merged into
/// one event.
///
/// # Errors
/// The text is not well-formed, or `take` fails.
pub fn read(
    document: &[u8],
    options: &Options,
    limits: TextLimits,
    take: &mut EventHandler<'_>,
) -> Result<(), Error> {
    read_with(document, options, limits, &mut |_| None, take)
}

/// Like [`read`], with external entities, which are expanded unless the options preserve references
/// to them.
///
/// # Errors
/// See [`read`]. Errors within an entity have the line of the reference.
pub fn read_with(
    document: &[u8],
    options: &Options,
    limits: TextLimits,
    entities: &mut EntityResolver<'_>,
    take: &mut EventHandler<'_>,
) -> Result<(), Error> {
    read_all(document, options, limits, entities, &mut |_, event| {
        take(event)
    })
}

/// Like [`read`], with the line of each event.
pub(crate) fn read_at(
    document: &[u8],
    options: &Options,
    limits: TextLimits,
    take: &mut LineEventHandler<'_>,
) -> Result<(), Error> {
    read_all(document, options, limits, &mut |_| None, take)
}

fn read_all(
    document: &[u8],
    options: &Options,
    limits: TextLimits,
    external: &mut EntityResolver<'_>,
    take: &mut LineEventHandler<'_>,
) -> Result<(), Error> {
    let text = decode_text(document)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut parser = Parser {
        preserve: options.preserve,
        fragment: options.fragment,
        limits,
        entities: BTreeMap::new(),
        external,
        expanded: 0,
        scope: Vec::new(),
        depth: 0,
        roots: 0,
        pending: String::new(),
        line: 1,
    };
    take(1, Event::StartDocument)?;
    parser.read_tokens(text, 0, take)?;
    if parser.depth > 0 {
        return Err(parser.fail("the document is truncated"));
    }
    if parser.roots == 0 && !options.fragment {
        return Err(parser.fail("there is no root element"));
    }
    take(parser.line, Event::EndDocument)
}

/// Decodes the characters of the document.
fn decode_text(document: &[u8]) -> Result<Cow<'_, str>, Error> {
    let encoding = |reason: &str| Error::Xml {
        line: 1,
        reason: reason.to_owned(),
    };
    let units = |swap: bool| -> Vec<u16> {
        let pairs = document.chunks_exact(2);
        let unit = |pair: &[u8]| match swap {
            true => u16::from_le_bytes([pair[0], pair[1]]),
            false => u16::from_be_bytes([pair[0], pair[1]]),
        };
        pairs.map(unit).collect()
    };
    let wide = |swap| {
        let text = String::from_utf16(&units(swap));
        text.map(Cow::Owned)
            .map_err(|_| encoding("the document is not UTF-16"))
    };
    match document {
        [0xff, 0xfe, ..] | [b'<', 0, ..] => return wide(true),
        [0xfe, 0xff, ..] | [0, b'<', ..] => return wide(false),
        _ => {}
    }
    if let Ok(text) = core::str::from_utf8(document) {
        return Ok(Cow::Borrowed(text));
    }
    let head = String::from_utf8_lossy(&document[..document.len().min(100)]).to_lowercase();
    if head.contains("iso-8859-1") {
        return Ok(Cow::Owned(
            document.iter().copied().map(char::from).collect(),
        ));
    }
    Err(encoding("the document is not UTF-8"))
}

/// The value of a general entity.
enum Entity {
    Internal(String),
    /// An external entity with its system identifier.
    External(String),
    /// Unparsed data, whose references are not expanded.
    Unparsed,
}

struct Parser<'r> {
    preserve: Preserve,
    fragment: bool,
    limits: TextLimits,
    entities: BTreeMap<String, Entity>,
    external: &'r mut dyn FnMut(&str) -> Option<Vec<u8>>,
    expanded: usize,
    /// Depth, prefix, namespace.
    scope: Vec<(usize, String, String)>,
    depth: usize,
    roots: usize,
    /// Character data until the next event.
    pending: String,
    line: usize,
}

fn is_space(text: &str) -> bool {
    text.bytes()
        .all(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
}

impl Parser<'_> {
    fn fail(&self, reason: impl Into<String>) -> Error {
        Error::Xml {
            line: self.line,
            reason: reason.into(),
        }
    }

    /// Emits the pending character data.
    fn flush(&mut self, take: &mut LineEventHandler<'_>) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let text = core::mem::take(&mut self.pending);
        if self.depth > 0 {
            take(self.line, Event::Characters(Value::Text(&text)))
        } else if is_space(&text) {
            Ok(())
        } else {
            Err(self.fail("text is not allowed outside the root element"))
        }
    }

    /// Reads all tokens of the document, or of an entity at nesting `level`.
    fn read_tokens(
        &mut self,
        text: &str,
        level: usize,
        take: &mut LineEventHandler<'_>,
    ) -> Result<(), Error> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        let (depth, mut counted) = (self.depth, 0);
        loop {
            let token = reader.read_event();
            if level == 0 {
                let at = (reader.buffer_position() as usize).min(text.len());
                self.line += text.as_bytes()[counted..at]
                    .iter()
                    .filter(|b| **b == b'\n')
                    .count();
                counted = at;
            }
            match token.map_err(|error| self.fail(error.to_string()))? {
                Token::Eof => break,
                Token::Start(start) | Token::Empty(start) => {
                    self.flush(take)?;
                    self.start_element(start.name().0, start.attributes_raw(), take)?;
                }
                Token::End(_) => {
                    self.flush(take)?;
                    while self.scope.last().is_some_and(|(at, ..)| *at == self.depth) {
                        self.scope.pop();
                    }
                    self.depth -= 1;
                    take(self.line, Event::EndElement)?;
                }
                Token::Text(text) => self.push_lines(&text.into_inner()),
                Token::CData(data) => self.push_lines(&data.into_inner()),
                Token::GeneralRef(name) => self.reference(&name, level, take)?,
                Token::Comment(comment) if self.preserve.comments => {
                    self.flush(take)?;
                    take(self.line, Event::Comment(&line_ends(&comment)))?;
                }
                Token::PI(instruction) if self.preserve.pis => {
                    self.flush(take)?;
                    let target = instruction.target().to_owned();
                    let text = line_ends(instruction.content());
                    let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
                    take(
                        self.line,
                        Event::ProcessingInstruction {
                            target: &target,
                            text,
                        },
                    )?;
                }
                Token::DocType(declaration) if level == 0 => {
                    self.flush(take)?;
                    self.doc_type(&declaration, take)?;
                }
                Token::Comment(_) | Token::PI(_) | Token::Decl(_) => {}
                Token::DocType(_) => {
                    return Err(self.fail("a document type is not allowed within an entity"));
                }
            }
        }
        if self.depth != depth {
            return Err(self.fail("the document is truncated"));
        }
        if level == 0 {
            self.flush(take)?;
        }
        Ok(())
    }

    fn push_lines(&mut self, text: &str) {
        self.pending.push_str(&line_ends(text));
    }

    /// Handles a reference in content.
    fn reference(
        &mut self,
        name: &str,
        level: usize,
        take: &mut LineEventHandler<'_>,
    ) -> Result<(), Error> {
        if let Some(character) = self.character_reference(name)? {
            self.pending.push(character);
            return Ok(());
        }
        match self.entities.get(name) {
            Some(Entity::Internal(text)) => {
                let text = text.clone();
                self.count_expansion(text.len(), level)?;
                self.read_tokens(&text, level + 1, take)
            }
            Some(Entity::External(system)) if !self.preserve.dtd => {
                let Some(entity) = (self.external)(system) else {
                    return Ok(());
                };
                let text = decode_text(&entity)?;
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                self.count_expansion(text.len(), level)?;
                self.read_tokens(text, level + 1, take)
            }
            None if !self.preserve.dtd => {
                Err(self.fail(format!("entity &{name}; is not declared")))
            }
            _ => {
                self.flush(take)?;
                take(self.line, Event::EntityReference(name))
            }
        }
    }

    fn count_expansion(&mut self, bytes: usize, level: usize) -> Result<(), Error> {
        self.expanded += bytes;
        if self.expanded > self.limits.entity_bytes {
            let bound = self.limits.entity_bytes;
            return Err(self.fail(format!("limit entity_bytes of {bound} is exceeded")));
        }
        if level >= self.limits.entity_depth {
            let bound = self.limits.entity_depth;
            return Err(self.fail(format!("limit entity_depth of {bound} is exceeded")));
        }
        Ok(())
    }

    /// Resolves a predefined entity or a character reference.
    fn character_reference(&self, name: &str) -> Result<Option<char>, Error> {
        Ok(match name {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "apos" => Some('\''),
            "quot" => Some('"'),
            _ => match name.strip_prefix('#') {
                None => None,
                Some(number) => {
                    let point = match number.strip_prefix('x') {
                        Some(hex) => u32::from_str_radix(hex, 16),
                        None => number.parse(),
                    };
                    let character = point.ok().and_then(char::from_u32);
                    let wrong = || self.fail(format!("&{name}; is not a character"));
                    Some(character.ok_or_else(wrong)?)
                }
            },
        })
    }

    fn start_element(
        &mut self,
        name: &str,
        attributes: &str,
        take: &mut LineEventHandler<'_>,
    ) -> Result<(), Error> {
        if self.depth == 0 {
            self.roots += 1;
            if self.roots > 1 && !self.fragment {
                return Err(self.fail("there is a second root element"));
            }
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            let bound = self.limits.depth;
            return Err(self.fail(format!("limit depth of {bound} is exceeded")));
        }
        let mut plain: Vec<(&str, String)> = Vec::new();
        let mut declared: Vec<(&str, String)> = Vec::new();
        let mut rest = attributes.trim();
        while !rest.is_empty() {
            let (attribute, quoted) = rest
                .split_once('=')
                .ok_or_else(|| self.malformed_attributes(name))?;
            let attribute = attribute.trim();
            let quoted = quoted.trim_start();
            let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''));
            let quote = quote.ok_or_else(|| self.malformed_attributes(name))?;
            let (value, more) = quoted[1..]
                .split_once(quote)
                .ok_or_else(|| self.malformed_attributes(name))?;
            rest = more.trim_start();
            let value = self.attribute_value(value, 0)?;
            match attribute.split_once(':') {
                Some(("xmlns", prefix)) => declared.push((prefix, value)),
                None if attribute == "xmlns" => declared.push(("", value)),
                _ => plain.push((attribute, value)),
            }
        }
        for (prefix, namespace) in &declared {
            let binding = (self.depth, (*prefix).to_owned(), namespace.clone());
            self.scope.push(binding);
        }
        let (namespace, prefix, local) = self.resolve(name, false)?;
        take(
            self.line,
            Event::StartElement(Name {
                namespace: &namespace,
                local,
                prefix: Some(prefix),
            }),
        )?;
        for (prefix, namespace) in &declared {
            take(
                self.line,
                Event::Namespace {
                    prefix,
                    namespace,
                    of_element: false,
                },
            )?;
        }
        let mut names = BTreeSet::new();
        for (attribute, value) in &plain {
            let (namespace, prefix, local) = self.resolve(attribute, true)?;
            if !names.insert((namespace.clone(), local)) {
                return Err(self.fail(format!("attribute {attribute} is repeated")));
            }
            take(
                self.line,
                Event::Attribute(
                    Name {
                        namespace: &namespace,
                        local,
                        prefix: Some(prefix),
                    },
                    Value::Text(value),
                ),
            )?;
        }
        Ok(())
    }

    fn malformed_attributes(&self, element: &str) -> Error {
        self.fail(format!("the attributes of {element} are malformed"))
    }

    /// Resolves a qualified name to namespace, prefix and local part.
    fn resolve<'n>(
        &self,
        name: &'n str,
        attribute: bool,
    ) -> Result<(String, &'n str, &'n str), Error> {
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        if local.is_empty() || local.contains([':', '<', '&', '"', '\'']) {
            return Err(self.fail(format!("{name:?} is not a valid name")));
        }
        if attribute && prefix.is_empty() {
            return Ok((String::new(), prefix, local));
        }
        let bound = self
            .scope
            .iter()
            .rev()
            .find(|(_, bound, _)| bound == prefix);
        match bound {
            Some((_, _, namespace)) => Ok((namespace.clone(), prefix, local)),
            None if prefix.is_empty() => Ok((String::new(), prefix, local)),
            None if prefix == "xml" => Ok((XML_NAMESPACE.to_owned(), prefix, local)),
            None => Err(self.fail(format!("prefix {prefix:?} is not bound"))),
        }
    }

    /// Normalizes an attribute value (XML 1.0, 3.3.3).
    fn attribute_value(&mut self, value: &str, level: usize) -> Result<String, Error> {
        let mut normalized = String::with_capacity(value.len());
        let value = line_ends(value);
        let mut rest: &str = &value;
        while let Some(at) = rest.find(['&', '\t', '\n', '\r', '<']) {
            normalized.push_str(&rest[..at]);
            match rest.as_bytes()[at] {
                b'&' => {
                    let (name, more) = rest[at + 1..]
                        .split_once(';')
                        .ok_or_else(|| self.fail("a reference without its end"))?;
                    rest = more;
                    if let Some(character) = self.character_reference(name)? {
                        normalized.push(character);
                        continue;
                    }
                    let Some(Entity::Internal(text)) = self.entities.get(name) else {
                        return Err(self.fail(format!("entity &{name}; is not declared")));
                    };
                    let text = text.clone();
                    self.count_expansion(text.len(), level)?;
                    normalized.push_str(&self.attribute_value(&text, level + 1)?);
                    continue;
                }
                b'<' => return Err(self.fail("an attribute value contains <")),
                _ => normalized.push(' '),
            }
            rest = &rest[at + 1..];
        }
        normalized.push_str(rest);
        Ok(normalized)
    }

    fn doc_type(
        &mut self,
        declaration: &str,
        take: &mut LineEventHandler<'_>,
    ) -> Result<(), Error> {
        let mut rest = declaration.trim();
        let name = token(&mut rest, |c| c.is_whitespace() || c == '[');
        let (mut public, mut system) = ("", "");
        if let Some(after) = rest.strip_prefix("PUBLIC") {
            rest = after.trim_start();
            public = self.quoted(&mut rest)?;
            system = self.quoted(&mut rest)?;
        } else if let Some(after) = rest.strip_prefix("SYSTEM") {
            rest = after.trim_start();
            system = self.quoted(&mut rest)?;
        }
        let subset = rest
            .strip_prefix('[')
            .and_then(|rest| rest.trim_end().strip_suffix(']'));
        let subset = subset.unwrap_or_default();
        self.declare_entities(subset)?;
        if !self.preserve.dtd {
            return Ok(());
        }
        take(
            self.line,
            Event::DocType {
                name,
                public,
                system,
                text: &line_ends(subset),
            },
        )
    }

    fn quoted<'t>(&self, rest: &mut &'t str) -> Result<&'t str, Error> {
        let wrong = || self.fail("the document type has a malformed identifier");
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.ok_or_else(wrong)?;
        let (text, after) = rest[1..].split_once(quote).ok_or_else(wrong)?;
        *rest = after.trim_start();
        Ok(text)
    }

    /// Collects the general entities of the internal subset. The first declaration of a name
    /// applies.
    fn declare_entities(&mut self, subset: &str) -> Result<(), Error> {
        let mut rest = subset;
        while let Some(at) = rest.find("<!") {
            rest = &rest[at..];
            if let Some(comment) = rest.strip_prefix("<!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            let Some(declaration) = rest.strip_prefix("<!ENTITY") else {
                rest = &rest[2..];
                continue;
            };
            let mut text = declaration.trim_start();
            let name = token(&mut text, char::is_whitespace);
            if name == "%" {
                rest = text;
                continue;
            }
            let entity = match text.starts_with(['"', '\'']) {
                true => {
                    let value = self.quoted(&mut text)?;
                    Entity::Internal(self.entity_value(value)?)
                }
                false => {
                    let public = text.starts_with("PUBLIC");
                    token(&mut text, char::is_whitespace);
                    if public {
                        self.quoted(&mut text)?;
                    }
                    let system = self.quoted(&mut text)?.to_owned();
                    match text.starts_with("NDATA") {
                        true => Entity::Unparsed,
                        false => Entity::External(system),
                    }
                }
            };
            self.entities.entry(name.to_owned()).or_insert(entity);
            rest = text;
        }
        Ok(())
    }

    /// The replacement text of an entity: character references are expanded, others are not.
    fn entity_value(&self, value: &str) -> Result<String, Error> {
        let mut text = String::new();
        let mut rest = value;
        while let Some(at) = rest.find("&#") {
            text.push_str(&rest[..at]);
            let reference = rest[at + 1..].split_once(';');
            let (name, after) =
                reference.ok_or_else(|| self.fail("a reference without its end"))?;
            text.extend(self.character_reference(name)?);
            rest = after;
        }
        text.push_str(rest);
        Ok(text)
    }
}

/// Removes the text up to a separator, and white space after it.
fn token<'t>(rest: &mut &'t str, separator: impl Fn(char) -> bool) -> &'t str {
    let end = rest.find(separator).unwrap_or(rest.len());
    let (token, after) = rest.split_at(end);
    *rest = after.trim_start();
    token
}

/// Normalizes line ends (XML 1.0, 2.11).
fn line_ends(text: &str) -> Cow<'_, str> {
    match text.contains('\r') {
        true => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
        false => Cow::Borrowed(text),
    }
}
