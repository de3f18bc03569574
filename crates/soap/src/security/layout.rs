//! Where the parts of a message are that may be signed: by their position, never by identifier.

use std::collections::HashMap;

use chappe_xml::canonical::{Fragment, FragmentStart, Scanner, Step};
use chappe_xml::{Limits, Name};

use super::{DS, SecurityError, WSU, ds, wsse, wsu};
use crate::envelope::{BLOCKS_MAX, NAMESPACE};
use crate::v1_1;

/// Maximum children of the `Security` header. Default 16: a signature, a timestamp and a few tokens.
const SECURITY_CHILDREN_MAX: usize = 16;
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// A part of a message that may be signed.
#[derive(Debug)]
pub(super) struct Part<'d> {
    pub(super) kind: Kind,
    pub(super) name: Name,
    /// The attribute `wsu:Id`.
    pub(super) id: Option<String>,
    /// Whether the sender insists that a header be understood.
    pub(super) must_understand: bool,
    pub(super) fragment: Fragment<'d>,
}

/// The position of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A child of the Header other than `Security`.
    Header,
    /// The Body.
    Body,
    /// The `Timestamp` in the `Security` header.
    Timestamp,
    /// A `BinarySecurityToken` in the `Security` header.
    Token,
}

/// A message by the positions of its parts.
#[derive(Debug)]
pub(super) struct Layout<'d> {
    /// The namespace of the envelope.
    pub(super) soap: &'static str,
    pub(super) parts: Vec<Part<'d>>,
    /// The `Signature` in the `Security` header, and its `SignedInfo`.
    pub(super) signature: Option<(Fragment<'d>, Fragment<'d>)>,
    /// How often each identifier occurs, anywhere in the document.
    ids: HashMap<String, usize>,
}

/// What an open element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Envelope,
    Header,
    Security,
    Signature,
    SignedInfo,
    Part(Kind),
    Other,
}

struct Open {
    role: Role,
    name: Name,
    id: Option<String>,
    must_understand: bool,
    start: Option<FragmentStart>,
}

impl<'d> Layout<'d> {
    /// Reads the whole document.
    pub(super) fn read(document: &'d [u8], limits: Limits) -> Result<Self, SecurityError> {
        let mut scanner = Scanner::new(document, limits)?;
        let mut reading = Reading::default();
        while let Some(step) = scanner.next_step()? {
            match step {
                Step::Start { name, attributes } => {
                    reading.start(name, &attributes, &scanner)?;
                }
                Step::End => reading.end(&scanner)?,
            }
        }
        reading.finish()
    }

    /// The part with this `wsu:Id`. The identifier must occur once in the whole document, so that no
    /// reader can take another element for it.
    pub(super) fn part(&self, id: &str) -> Result<usize, SecurityError> {
        match self.ids.get(id) {
            Some(1) => {}
            Some(_) => return Err(SecurityError::reference(id, "the identifier is repeated")),
            None => {
                return Err(SecurityError::reference(
                    id,
                    "no element has the identifier",
                ));
            }
        }
        let has_id = |part: &Part<'_>| part.id.as_deref() == Some(id);
        let index = self.parts.iter().position(has_id);
        index.ok_or_else(|| {
            SecurityError::reference(id, "the element is not in a place where it can be signed")
        })
    }
}

#[derive(Default)]
struct Reading<'d> {
    soap: Option<&'static str>,
    open: Vec<Open>,
    parts: Vec<Part<'d>>,
    signature: Option<Fragment<'d>>,
    signed_info: Option<Fragment<'d>>,
    has_header: bool,
    has_body: bool,
    has_security: bool,
    has_signature: bool,
    has_signed_info: bool,
    has_timestamp: bool,
    headers: usize,
    security_children: usize,
    ids: HashMap<String, usize>,
}

/// Sets a flag; an error if it was set.
fn once(flag: &mut bool, error: SecurityError) -> Result<(), SecurityError> {
    match std::mem::replace(flag, true) {
        true => Err(error),
        false => Ok(()),
    }
}

impl<'d> Reading<'d> {
    fn start(
        &mut self,
        name: Name,
        attributes: &[(Name, String)],
        scanner: &Scanner<'d>,
    ) -> Result<(), SecurityError> {
        let mut id = None;
        for (attribute, value) in attributes {
            if is_identifier(attribute) {
                *self.ids.entry(value.clone()).or_default() += 1;
            }
            if *attribute == wsu("Id") {
                id = Some(value.clone());
            }
        }
        let role = self.role(&name)?;
        let must_understand = self.soap.is_some_and(|soap| {
            attributes.iter().any(|(attribute, value)| {
                attribute.is(soap, "mustUnderstand") && matches!(value.trim(), "1" | "true")
            })
        });
        let is_cut = matches!(role, Role::Signature | Role::SignedInfo | Role::Part(_));
        self.open.push(Open {
            role,
            name,
            id,
            must_understand,
            start: is_cut.then(|| scanner.fragment_start()),
        });
        Ok(())
    }

    /// The role of an element by its parent's and its name.
    fn role(&mut self, name: &Name) -> Result<Role, SecurityError> {
        let repeated = SecurityError::Header("a part is repeated");
        match self.open.last().map(|parent| parent.role) {
            None => {
                let versions = [NAMESPACE, v1_1::NAMESPACE];
                let soap = versions.into_iter().find(|soap| name.is(soap, "Envelope"));
                self.soap =
                    Some(soap.ok_or(SecurityError::Envelope("the root is not an Envelope"))?);
                Ok(Role::Envelope)
            }
            Some(Role::Envelope) => {
                let soap = self.soap.unwrap_or_default();
                if name.is(soap, "Header") && !self.has_header && !self.has_body {
                    self.has_header = true;
                    Ok(Role::Header)
                } else if name.is(soap, "Body") && !self.has_body {
                    self.has_body = true;
                    Ok(Role::Part(Kind::Body))
                } else {
                    Err(SecurityError::Envelope(
                        "only an optional Header followed by a Body is allowed",
                    ))
                }
            }
            Some(Role::Header) if *name == wsse("Security") => {
                once(&mut self.has_security, repeated)?;
                Ok(Role::Security)
            }
            Some(Role::Header) => {
                self.headers += 1;
                if self.headers > BLOCKS_MAX {
                    return Err(SecurityError::Envelope("the Header has too many children"));
                }
                Ok(Role::Part(Kind::Header))
            }
            Some(Role::Security) => {
                self.security_children += 1;
                if self.security_children > SECURITY_CHILDREN_MAX {
                    return Err(SecurityError::Header("it has too many children"));
                }
                if *name == ds("Signature") {
                    once(&mut self.has_signature, repeated)?;
                    Ok(Role::Signature)
                } else if *name == wsu("Timestamp") {
                    once(&mut self.has_timestamp, repeated)?;
                    Ok(Role::Part(Kind::Timestamp))
                } else if *name == wsse("BinarySecurityToken") {
                    Ok(Role::Part(Kind::Token))
                } else {
                    Ok(Role::Other)
                }
            }
            Some(Role::Signature) if *name == ds("SignedInfo") => {
                once(&mut self.has_signed_info, repeated)?;
                Ok(Role::SignedInfo)
            }
            Some(Role::Signature) if name.namespace != *DS => {
                Err(SecurityError::Header("the Signature has an unknown part"))
            }
            Some(_) => Ok(Role::Other),
        }
    }

    fn end(&mut self, scanner: &Scanner<'d>) -> Result<(), SecurityError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let Some(start) = open.start else {
            return Ok(());
        };
        let fragment = scanner.fragment(start)?;
        match open.role {
            Role::Part(kind) => self.parts.push(Part {
                kind,
                name: open.name,
                id: open.id,
                must_understand: open.must_understand,
                fragment,
            }),
            Role::SignedInfo => self.signed_info = Some(fragment),
            _ => self.signature = Some(fragment),
        }
        Ok(())
    }

    fn finish(self) -> Result<Layout<'d>, SecurityError> {
        let soap = self.soap.filter(|_| self.has_body);
        let soap = soap.ok_or(SecurityError::Envelope("it has no Body"))?;
        let signature = match (self.signature, self.signed_info) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(SecurityError::Header("the Signature has no SignedInfo"));
            }
            (Some(signature), Some(signed_info)) => Some((signature, signed_info)),
        };
        Ok(Layout {
            soap,
            parts: self.parts,
            signature,
            ids: self.ids,
        })
    }
}

/// Whether some reader might take this attribute for an element's identifier.
fn is_identifier(name: &Name) -> bool {
    match &*name.namespace {
        WSU | XML => name.local.eq_ignore_ascii_case("id"),
        "" => name.local.eq_ignore_ascii_case("id") || name.local == "AssertionID",
        _ => false,
    }
}
