//! What is in the content of messages: names in scope, and values that a strict stream would change.

use chappe_xml::{Event, Limits};

const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// The names and declarations of open elements, within the limits of a text. Reason: the time to write an element as
/// text grows with those in scope.
pub(super) struct Scope {
    limits: Limits,
    /// The declarations of each open element.
    declared: Vec<usize>,
    in_scope: usize,
    /// Attributes and declarations of the last element.
    of_element: usize,
}

impl Scope {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            declared: Vec::new(),
            in_scope: 0,
            of_element: 0,
        }
    }

    pub(super) fn admits(&mut self, event: &Event<'_>) -> bool {
        let limits = self.limits;
        let is_short = |name: &str| name.len() <= limits.name_bytes;
        match event {
            Event::StartElement(name) => {
                self.declared.push(0);
                self.of_element = 0;
                is_short(&name.local) && is_short(&name.namespace)
            }
            Event::EndElement => {
                self.in_scope -= self.declared.pop().unwrap_or(0);
                true
            }
            Event::Namespace { prefix, namespace } => {
                self.of_element += 1;
                self.in_scope += 1;
                if let Some(declared) = self.declared.last_mut() {
                    *declared += 1;
                }
                let is_room = self.in_scope <= limits.namespaces;
                is_room
                    && self.of_element <= limits.attributes
                    && is_short(prefix)
                    && is_short(namespace)
            }
            Event::Attribute(name, _) => {
                self.of_element += 1;
                self.of_element <= limits.attributes
                    && is_short(&name.local)
                    && is_short(&name.namespace)
            }
            Event::Text(_) => true,
        }
    }
}

/// Finds content whose meaning a strict stream would lose.
#[derive(Default)]
pub(super) struct Content {
    /// All prefixes declared so far, each once. That some are out of scope only makes more messages not plain.
    prefixes: Vec<String>,
}

impl Content {
    /// Whether no value of the event may be a qualified name, since prefixes are not preserved, or zero with a minus
    /// sign, which EXI does not have.
    pub(super) fn is_plain(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Namespace { prefix, namespace } => {
                if !self.prefixes.iter().any(|known| known == prefix) {
                    self.prefixes.push(prefix.to_string());
                }
                // Names in content need no prefix then.
                !prefix.is_empty() || namespace.is_empty()
            }
            Event::Attribute(name, value) => {
                &*name.namespace != XSI && self.is_plain_value(&value.lexical())
            }
            Event::Text(value) => self.is_plain_value(&value.lexical()),
            Event::StartElement(_) | Event::EndElement => true,
        }
    }

    fn is_plain_value(&self, text: &str) -> bool {
        let mut colons = text.match_indices(':').map(|(at, _)| &text[..at]);
        let has_prefix = colons.any(|before| {
            let is_known = |prefix: &String| {
                let rest = before.strip_suffix(prefix.as_str());
                // Part of a longer word is no prefix.
                rest.is_some_and(|rest| {
                    !rest.ends_with(|last: char| last.is_alphanumeric() || "-_.".contains(last))
                })
            };
            self.prefixes.iter().any(is_known)
        });
        !has_prefix && !text.split_ascii_whitespace().any(is_negative_zero)
    }
}

fn is_negative_zero(word: &str) -> bool {
    let Some(digits) = word.strip_prefix('-') else {
        return false;
    };
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    !mantissa.is_empty() && mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}
