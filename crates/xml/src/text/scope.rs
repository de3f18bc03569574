//! Namespace declarations in scope while reading (Namespaces in XML 1.0, section 6).

use std::borrow::Cow;

use crate::{Name, Reason, Str};

pub(super) const XML: &str = "http://www.w3.org/XML/1998/namespace";
pub(super) const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// The declarations of all open elements, innermost last.
#[derive(Debug, Default)]
pub(super) struct Scope {
    declarations: Vec<(usize, String, Str)>,
}

/// Says why a prefix must not be bound to a namespace, if so (section 3).
pub(super) fn forbidden_binding(prefix: &str, namespace: &str) -> Option<&'static str> {
    match (prefix, namespace) {
        ("xml", XML) => None,
        ("xml", _) => Some("the prefix xml is bound to another namespace"),
        ("xmlns", _) => Some("the prefix xmlns is declared"),
        (_, XML) => Some("the namespace of xml is bound to another prefix"),
        (_, XMLNS) => Some("the namespace of xmlns is declared"),
        (prefix, "") if !prefix.is_empty() => Some("a prefix is unbound"),
        _ => None,
    }
}

impl Scope {
    /// Adds a declaration made by the element at `depth`.
    pub(super) fn declare(
        &mut self,
        depth: usize,
        prefix: &str,
        namespace: &str,
    ) -> Result<(), Reason> {
        if let Some(why) = forbidden_binding(prefix, namespace) {
            return Err(Reason::Malformed(why.into()));
        }
        let mut own = self.declarations.iter().rev();
        let repeats = own
            .by_ref()
            .take_while(|(at, _, _)| *at == depth)
            .any(|(_, other, _)| other == prefix);
        if repeats {
            return Err(Reason::Malformed(format!(
                "prefix {prefix:?} is declared twice"
            )));
        }
        self.declarations
            .push((depth, prefix.to_owned(), Cow::Owned(namespace.to_owned())));
        Ok(())
    }

    /// Forgets the declarations of the element at `depth`.
    pub(super) fn leave(&mut self, depth: usize) {
        while self
            .declarations
            .last()
            .is_some_and(|(at, _, _)| *at >= depth)
        {
            self.declarations.pop();
        }
    }

    /// The expanded name of a qualified one; attributes ignore the default namespace.
    pub(super) fn resolve(
        &self,
        prefix: &str,
        local: &str,
        attribute: bool,
    ) -> Result<Name, Reason> {
        if attribute && prefix.is_empty() {
            return Ok(Name::owned("", local));
        }
        let bound = self
            .declarations
            .iter()
            .rev()
            .find(|(_, other, _)| other == prefix);
        match bound {
            Some((_, _, namespace)) => Ok(Name {
                namespace: namespace.clone(),
                local: Cow::Owned(local.to_owned()),
            }),
            None if prefix.is_empty() => Ok(Name::owned("", local)),
            None if prefix == "xml" => Ok(Name::owned(XML, local)),
            None => Err(Reason::UnboundPrefix(prefix.chars().take(64).collect())),
        }
    }
}
