//! Writing the form: which declarations an element renders, the order of attributes, escapes.

use super::Exclusive;
use crate::text::scope::{Scope, XML};
use crate::text::tokens::{Attribute, StartTag, Token, Tokens};
use crate::{Error, Namespace, Reason};

/// Bytes that are collected before the sink gets them, so that a digest is not called for each name.
const PIECE_BYTES: usize = 4 << 10;

/// Writes the form of the root element that `tokens` reads.
pub(super) fn write(
    tokens: &mut Tokens<'_>,
    exclusive: &Exclusive,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), Error> {
    let mut form = Form {
        exclusive,
        sink,
        piece: String::new(),
        bytes: 0,
        rendered: Scope::default(),
        open: Vec::new(),
    };
    while let Some(token) = tokens.next()? {
        // Instructions before and after the root element are no part of the element.
        let is_inside = !form.open.is_empty();
        match token {
            Token::Start => form.start(tokens.tag(), tokens.scope()),
            Token::End => form.end(),
            Token::Text(text) => escape(&mut form.piece, &text, text_escape),
            Token::Instruction(instruction) if is_inside => form.instruction(&instruction),
            Token::Instruction(_) => {}
        }
        if form.piece.len() >= PIECE_BYTES {
            form.flush(tokens.offset())?;
        }
    }
    form.flush(tokens.offset())
}

struct Form<'f> {
    exclusive: &'f Exclusive,
    sink: &'f mut dyn FnMut(&[u8]),
    /// Text that the sink has not received yet.
    piece: String,
    /// Bytes that the sink has received.
    bytes: usize,
    /// The declarations that open elements have rendered.
    rendered: Scope,
    /// Qualified names of the open elements, for their end tags.
    open: Vec<String>,
}

/// A prefix, empty for the default namespace, with the namespace that it is bound to.
type Binding<'t> = (&'t str, Namespace);

impl Form<'_> {
    fn flush(&mut self, offset: u64) -> Result<(), Error> {
        self.bytes += self.piece.len();
        let bound = self.exclusive.bytes_max;
        if self.bytes > bound {
            let limit = "bytes of the canonical form";
            return Err(Error::at(offset, Reason::Limit { limit, bound }));
        }
        if !self.piece.is_empty() {
            (self.sink)(self.piece.as_bytes());
        }
        self.piece.clear();
        Ok(())
    }

    fn start(&mut self, tag: &StartTag<'_>, scope: &Scope) {
        let mut name = String::new();
        push_name(&mut name, tag.prefix, tag.local);
        self.piece.push('<');
        self.piece.push_str(&name);
        self.open.push(name);
        let is_first = self.open.len() == 1;
        for (prefix, namespace) in candidates(self.exclusive, is_first, tag, scope) {
            self.render(prefix, &namespace);
        }
        let mut attributes: Vec<&Attribute<'_>> = tag.attributes.iter().collect();
        // By namespace, then by local name; those in no namespace come first (RFC 3076, section 2.2).
        attributes.sort_by_key(|it| (&*it.namespace, it.local));
        for attribute in attributes {
            self.piece.push(' ');
            push_name(&mut self.piece, attribute.prefix, attribute.local);
            self.push_value(&attribute.value);
        }
        self.piece.push('>');
    }

    /// Renders a binding unless the nearest element that rendered this prefix has the same.
    fn render(&mut self, prefix: &str, namespace: &Namespace) {
        let is_rendered = match self.rendered.bound(prefix) {
            Some((_, rendered)) => rendered == namespace,
            None => namespace.is_empty(),
        };
        // The prefix xml is never declared (RFC 3076, section 2.3).
        if is_rendered || **namespace == *XML {
            return;
        }
        self.piece.push_str(" xmlns");
        if !prefix.is_empty() {
            self.piece.push(':');
            self.piece.push_str(prefix);
        }
        self.push_value(namespace);
        self.rendered.bind(self.open.len(), prefix, namespace);
    }

    fn push_value(&mut self, value: &str) {
        self.piece.push_str("=\"");
        escape(&mut self.piece, value, attribute_escape);
        self.piece.push('"');
    }

    fn end(&mut self) {
        self.rendered.leave(self.open.len());
        if let Some(name) = self.open.pop() {
            self.piece.push_str("</");
            self.piece.push_str(&name);
            self.piece.push('>');
        }
    }

    fn instruction(&mut self, instruction: &str) {
        let is_space = |c: char| c.is_ascii_whitespace();
        let (target, data) = match instruction.split_once(is_space) {
            Some((target, data)) => (target, data.trim_start_matches(is_space)),
            None => (instruction, ""),
        };
        self.piece.push_str("<?");
        self.piece.push_str(target);
        if !data.is_empty() {
            self.piece.push(' ');
            self.piece.push_str(data);
        }
        self.piece.push_str("?>");
    }
}

/// The bindings that this element may have to render, by prefix: those its names use, and
/// inclusive ones that changed (RFC 3741, section 3). An inclusive binding can change only at the
/// first element and at declarations, so that no element is compared with the whole list.
fn candidates<'t>(
    exclusive: &'t Exclusive,
    is_first: bool,
    tag: &'t StartTag<'_>,
    scope: &Scope,
) -> Vec<Binding<'t>> {
    let bound = |prefix: &str| scope.bound(prefix).map(|(_, namespace)| namespace.clone());
    let mut candidates = vec![(tag.prefix, tag.namespace.clone())];
    for attribute in &tag.attributes {
        if !attribute.prefix.is_empty() {
            candidates.push((attribute.prefix, attribute.namespace.clone()));
        }
    }
    let mut include = |prefix: &'t str| {
        if let Some(namespace) = bound(prefix) {
            candidates.push((prefix, namespace));
        }
    };
    if is_first {
        exclusive.inclusive.iter().for_each(|it| include(it));
    } else {
        let declared = tag.declarations.iter().map(|(prefix, _)| *prefix);
        declared
            .filter(|prefix| exclusive.includes(prefix))
            .for_each(include);
    }
    candidates.sort_by(|one, other| one.0.cmp(other.0));
    candidates.dedup_by(|one, other| one.0 == other.0);
    candidates
}

fn push_name(out: &mut String, prefix: &str, local: &str) {
    if !prefix.is_empty() {
        out.push_str(prefix);
        out.push(':');
    }
    out.push_str(local);
}

/// Escapes of text (RFC 3076, section 2.3).
fn text_escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'\r' => Some("&#xD;"),
        _ => None,
    }
}

/// Escapes of attribute values (RFC 3076, section 2.3).
fn attribute_escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'"' => Some("&quot;"),
        b'\t' => Some("&#x9;"),
        b'\n' => Some("&#xA;"),
        b'\r' => Some("&#xD;"),
        _ => None,
    }
}

fn escape(out: &mut String, text: &str, escape_of: fn(u8) -> Option<&'static str>) {
    let mut copied = 0;
    for (index, byte) in text.bytes().enumerate() {
        if let Some(escape) = escape_of(byte) {
            out.push_str(&text[copied..index]);
            out.push_str(escape);
            copied = index + 1;
        }
    }
    out.push_str(&text[copied..]);
}
