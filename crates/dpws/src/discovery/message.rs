//! WS-Discovery messages and their envelopes.
//!
//! Reading accepts any prefix; writing uses those of [`Dialect::prefixes`] and the caller's,
//! declared on the envelope.

use std::collections::BTreeSet;

use chappe_soap::{Addressing, AddressingVersion, EndpointReference, Envelope};
use chappe_xml::text::escape;
use chappe_xml::{Element, Name, Namespace, Str};

use super::{DropReason, Target};
use crate::Dialect;

/// Entries in one list of types, scopes or addresses. Reason: four times as many as on the largest device
/// seen.
pub const LIST_MAX: usize = 128;

/// Matches in one answer. Reason: a discovery proxy answers for all target services of a site; the bytes of an
/// answer are bounded where it is received, by UDP to fewer.
pub const MATCHES_MAX: usize = 4_096;

/// Bytes of one URI (DPWS 1.1, MAX_URI_SIZE).
pub const URI_BYTES_MAX: usize = 2_048;

/// A discovery message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The dialect.
    pub dialect: Dialect,
    /// The message identifier.
    pub message_id: Str,
    /// The identifier of the request that it answers.
    pub relates_to: Option<Str>,
    /// The destination as the message names it.
    pub to: Option<Str>,
    /// Where the answer goes; absent means to the sender.
    pub reply_to: Option<Str>,
    /// Its position in the sender's sequence.
    pub sequence: Option<AppSequence>,
    /// The kind of message and its body.
    pub content: Content,
}

/// The body of a discovery message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A target service joins the network.
    Hello(Target),
    /// A target service leaves. Only its endpoint is mandatory.
    Bye(Target),
    /// Searches for target services.
    Probe(Probe),
    /// The target services that match a Probe.
    ProbeMatches(Vec<Target>),
    /// Asks for the transport addresses of an endpoint.
    Resolve(EndpointReference),
    /// The endpoint's description; absent when it is unknown.
    ResolveMatches(Option<Target>),
}

impl Content {
    /// The last segment of the action.
    #[must_use]
    pub const fn action(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Bye(_) => "Bye",
            Self::Probe(_) => "Probe",
            Self::ProbeMatches(_) => "ProbeMatches",
            Self::Resolve(_) => "Resolve",
            Self::ResolveMatches(_) => "ResolveMatches",
        }
    }
}

/// The criteria of a Probe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// Types that the target service must all implement; empty matches every one.
    pub types: Vec<Name>,
    /// Scopes that must each match a scope of the target service; empty matches every one.
    pub scopes: Vec<Str>,
    /// The URI of the match rule; absent means the dialect's default.
    pub match_by: Option<Str>,
}

/// A message's position in its sender's sequence (WS-Discovery 1.1, section 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppSequence {
    /// Increases with each start of the sender.
    pub instance_id: u32,
    /// Distinguishes sequences of one instance; absent differs from empty.
    pub sequence_id: Option<Str>,
    /// Increases with each message of the sequence.
    pub message_number: u32,
}

/// The reason why an envelope is not a usable discovery message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The action does not belong to discovery.
    #[error("action {0} is not a discovery action")]
    NotDiscovery(String),
    /// A fault in answer to a request.
    #[error("{0}")]
    Fault(String),
    /// A mandatory header is not understood.
    #[error("header {0} has mustUnderstand but is not understood")]
    NotUnderstood(Name),
    /// A part is missing or invalid.
    #[error("{0}")]
    Invalid(String),
}

impl MessageError {
    /// The reason under which a machine counts such a message.
    #[must_use]
    pub const fn drop_reason(&self) -> DropReason {
        match self {
            Self::NotDiscovery(_) => DropReason::NotDiscovery,
            Self::Fault(_) => DropReason::Fault,
            Self::NotUnderstood(_) => DropReason::NotUnderstood,
            Self::Invalid(_) => DropReason::Invalid,
        }
    }
}

/// The tags of one match with all its parts, and its metadata version, in bytes.
const MATCH_TAGS_BYTES: usize = 250;
/// Bytes of a prefix with its colon and the space after a type, and of a prefix's declaration without its namespace.
const PREFIX_BYTES: usize = 8;
const DECLARATION_BYTES: usize = 20;
/// Namespaces of types in the matches of one answer. Reason: more than all profiles of a site, and a writer or reader
/// looks through them for each name.
const NAMESPACES_MAX: usize = 1_024;

/// Counts the text of matches before they are written, so that an answer that is too long is never built.
#[derive(Debug, Default)]
pub(super) struct MatchesSize<'t> {
    /// At least the bytes of their text, and less than twice as many.
    bytes: usize,
    namespaces: BTreeSet<&'t str>,
    escaped: String,
}

impl<'t> MatchesSize<'t> {
    /// Adds a match. False if the matches are more than this, or have too many namespaces.
    pub(super) fn add(&mut self, target: &'t Target, bytes_max: usize) -> bool {
        let uris = target.scopes.iter().chain(&target.xaddrs);
        self.escaped.clear();
        for text in uris.chain([&target.endpoint.address]) {
            escape(&mut self.escaped, text, false);
            self.escaped.push(' ');
        }
        self.bytes += MATCH_TAGS_BYTES + self.escaped.len();
        let parameters = target.endpoint.reference_parameters.iter();
        self.bytes += parameters.map(|one| one.to_text().len()).sum::<usize>();
        for name in &target.types {
            self.bytes += PREFIX_BYTES + name.local.len();
            if self.namespaces.insert(&name.namespace) {
                self.bytes += DECLARATION_BYTES + name.namespace.len();
            }
        }
        self.bytes <= bytes_max && self.namespaces.len() <= NAMESPACES_MAX
    }
}

fn invalid(reason: impl Into<String>) -> MessageError {
    MessageError::Invalid(reason.into())
}

impl Message {
    /// Reads an envelope.
    ///
    /// # Errors
    /// [`MessageError`] if it is not a usable discovery message.
    pub fn from_envelope(envelope: &Envelope) -> Result<Self, MessageError> {
        let addressing = &envelope.addressing;
        if let Some(fault) = envelope.fault() {
            return Err(MessageError::Fault(fault.to_string()));
        }
        let Some((dialect, action)) = Dialect::of_discovery_action(&addressing.action) else {
            let action = addressing.action.chars().take(128).collect();
            return Err(MessageError::NotDiscovery(action));
        };
        let sequence_name = dialect.discovery_name("AppSequence");
        let understood = std::slice::from_ref(&sequence_name);
        if let Some(header) = envelope.not_understood(understood).next() {
            return Err(MessageError::NotUnderstood(header.name.clone()));
        }
        let body = envelope
            .body()
            .filter(|body| body.name.is(dialect.discovery(), action))
            .ok_or_else(|| invalid(format!("body has no {action} element")))?;
        let content = Reader { dialect }.content(action, body)?;
        let message_id = addressing.message_id.clone();
        let sequence = envelope.header(&sequence_name);
        Ok(Self {
            dialect,
            message_id: message_id
                .filter(|id| !id.is_empty() && id.len() <= URI_BYTES_MAX)
                .ok_or_else(|| invalid("MessageID is missing, empty or too long"))?,
            relates_to: addressing.relates_to.clone(),
            to: addressing.to.clone(),
            reply_to: addressing
                .reply_to
                .as_ref()
                .map(|reference| reference.address.clone()),
            sequence: sequence.map(AppSequence::from_element).transpose()?,
            content,
        })
    }

    /// The envelope, with `prefixes` for namespaces that are not the dialect's.
    #[must_use]
    pub fn to_envelope(&self, prefixes: &[(Str, Str)]) -> Envelope {
        let mut writer = Writer {
            dialect: self.dialect,
            caller_prefixes: prefixes,
            used: Vec::new(),
        };
        let action = self.content.action();
        let body = writer.content(action, &self.content);
        let version = self.dialect.addressing();
        let addressing = Addressing {
            message_id: Some(self.message_id.clone()),
            relates_to: self.relates_to.clone(),
            to: self.to.clone(),
            reply_to: self.reply_to.clone().map(EndpointReference::new),
            ..Addressing::new(version, self.dialect.discovery_action(action))
        };
        let mut envelope = Envelope::new(addressing).with_body(body);
        let [(prefix, namespace), _] = self.dialect.prefixes();
        envelope.namespaces.push((prefix.into(), namespace.into()));
        envelope.namespaces.extend(writer.used);
        if let Some(sequence) = &self.sequence {
            envelope
                .headers
                .push(sequence.to_element(self.dialect.discovery_name("AppSequence")));
        }
        envelope
    }
}

impl AppSequence {
    fn from_element(element: &Element) -> Result<Self, MessageError> {
        let number = |local| {
            element
                .attribute(&Name::local(local))
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| invalid(format!("AppSequence has no valid {local}")))
        };
        let sequence_id = element.attribute(&Name::local("SequenceId"));
        Ok(Self {
            instance_id: number("InstanceId")?,
            sequence_id: sequence_id.map(|id| id.to_owned().into()),
            message_number: number("MessageNumber")?,
        })
    }

    fn to_element(&self, name: Name) -> Element {
        let instance_id = self.instance_id.to_string();
        let mut element = Element::new(name).with_attribute(Name::local("InstanceId"), instance_id);
        if let Some(sequence_id) = &self.sequence_id {
            element = element.with_attribute(Name::local("SequenceId"), sequence_id.clone());
        }
        let number = self.message_number.to_string();
        element.with_attribute(Name::local("MessageNumber"), number)
    }
}

struct Reader {
    dialect: Dialect,
}

impl Reader {
    fn content(&self, action: &str, body: &Element) -> Result<Content, MessageError> {
        let children = |local| {
            let name = self.dialect.discovery_name(local);
            let found = body.elements().filter(move |child| child.name == name);
            found.take(MATCHES_MAX + 1).collect::<Vec<_>>()
        };
        Ok(match action {
            "Hello" => Content::Hello(self.target(&[], body)?),
            "Bye" => Content::Bye(self.target(&[], body)?),
            "Probe" => Content::Probe(self.probe(body)?),
            "ProbeMatches" => {
                let matches = children("ProbeMatch");
                if matches.len() > MATCHES_MAX {
                    return Err(invalid(format!(
                        "more than {MATCHES_MAX} ProbeMatch elements"
                    )));
                }
                let targets = matches.into_iter().map(|found| self.target(&[body], found));
                Content::ProbeMatches(targets.collect::<Result<_, _>>()?)
            }
            "Resolve" => Content::Resolve(endpoint(body)?),
            "ResolveMatches" => match children("ResolveMatch")[..] {
                [] => Content::ResolveMatches(None),
                [found] => Content::ResolveMatches(Some(self.target(&[body], found)?)),
                _ => return Err(invalid("more than one ResolveMatch element")),
            },
            other => {
                return Err(MessageError::NotDiscovery(
                    other.chars().take(128).collect(),
                ));
            }
        })
    }

    fn child<'e>(&self, element: &'e Element, local: &'static str) -> Option<&'e Element> {
        element.child(&self.dialect.discovery_name(local))
    }

    fn target(&self, ancestors: &[&Element], element: &Element) -> Result<Target, MessageError> {
        let version = self.child(element, "MetadataVersion");
        let version = version.map(|version| version.text().trim().parse());
        Ok(Target {
            endpoint: endpoint(element)?,
            types: self.types(ancestors, element)?,
            scopes: self.uris(element, "Scopes")?,
            xaddrs: self.uris(element, "XAddrs")?,
            metadata_version: version
                .transpose()
                .map_err(|_| invalid("MetadataVersion is not an unsigned integer"))?
                .unwrap_or_default(),
        })
    }

    fn probe(&self, element: &Element) -> Result<Probe, MessageError> {
        let match_by = self
            .child(element, "Scopes")
            .and_then(|scopes| scopes.attribute(&Name::local("MatchBy")));
        Ok(Probe {
            types: self.types(&[], element)?,
            scopes: self.uris(element, "Scopes")?,
            match_by: match_by.map(|uri| uri.trim().to_owned().into()),
        })
    }

    /// QNames, resolved with the prefixes in scope.
    fn types(&self, ancestors: &[&Element], element: &Element) -> Result<Vec<Name>, MessageError> {
        let Some(types) = self.child(element, "Types") else {
            return Ok(Vec::new());
        };
        let mut ancestors = ancestors.to_vec();
        ancestors.push(element);
        let text = types.text();
        let mut names = Vec::new();
        for qname in text.split_whitespace() {
            if names.len() == LIST_MAX {
                return Err(invalid(format!("more than {LIST_MAX} types")));
            }
            let name = types.resolve(&ancestors, qname);
            names.push(
                name.ok_or_else(|| invalid(format!("type {qname:.64} has an undeclared prefix")))?,
            );
        }
        Ok(names)
    }

    fn uris(&self, element: &Element, local: &'static str) -> Result<Vec<Str>, MessageError> {
        let Some(list) = self.child(element, local) else {
            return Ok(Vec::new());
        };
        let text = list.text();
        let mut uris: Vec<Str> = Vec::new();
        for uri in text.split_whitespace() {
            if uris.len() == LIST_MAX || uri.len() > URI_BYTES_MAX {
                return Err(invalid(format!(
                    "{local} exceeds {LIST_MAX} URIs of {URI_BYTES_MAX} bytes"
                )));
            }
            uris.push(uri.to_owned().into());
        }
        Ok(uris)
    }
}

/// The endpoint reference, in either version of WS-Addressing, since some devices mix them.
fn endpoint(element: &Element) -> Result<EndpointReference, MessageError> {
    let found = [AddressingVersion::V200508, AddressingVersion::V200408]
        .into_iter()
        .find_map(|version| Some((version, element.child(&version.name("EndpointReference"))?)));
    let (version, reference) = found.ok_or_else(|| invalid("EndpointReference is missing"))?;
    let reference = EndpointReference::from_element(version, reference)
        .map_err(|error| invalid(error.to_string()))?;
    if reference.address.is_empty() || reference.address.len() > URI_BYTES_MAX {
        return Err(invalid(
            "EndpointReference has an empty or too long address",
        ));
    }
    Ok(reference)
}

struct Writer<'p> {
    dialect: Dialect,
    caller_prefixes: &'p [(Str, Str)],
    /// Namespace declarations for QNames in content, in order of use.
    used: Vec<(Str, Namespace)>,
}

impl Writer<'_> {
    fn element(&self, local: &'static str) -> Element {
        Element::new(self.dialect.discovery_name(local))
    }

    fn content(&mut self, action: &'static str, content: &Content) -> Element {
        match content {
            Content::Hello(target) | Content::Bye(target) => self.target(action, target),
            Content::Probe(probe) => self.probe(probe),
            Content::ProbeMatches(targets) => {
                let matches: Vec<_> = targets
                    .iter()
                    .map(|target| self.target("ProbeMatch", target))
                    .collect();
                self.element(action).with_children(matches)
            }
            Content::Resolve(reference) => {
                self.element(action).with_child(self.endpoint(reference))
            }
            Content::ResolveMatches(target) => {
                let found = target
                    .as_ref()
                    .map(|target| self.target("ResolveMatch", target));
                self.element(action).with_children(found)
            }
        }
    }

    fn endpoint(&self, reference: &EndpointReference) -> Element {
        let version = self.dialect.addressing();
        reference.to_element(version, version.name("EndpointReference"))
    }

    fn target(&mut self, local: &'static str, target: &Target) -> Element {
        let mut element = self
            .element(local)
            .with_child(self.endpoint(&target.endpoint));
        if !target.types.is_empty() {
            element = element.with_child(self.types(&target.types));
        }
        for (local, uris) in [("Scopes", &target.scopes), ("XAddrs", &target.xaddrs)] {
            if !uris.is_empty() {
                element = element.with_child(self.element(local).with_text(uris.join(" ")));
            }
        }
        if local == "Bye" && target.metadata_version == 0 {
            return element;
        }
        let version = target.metadata_version.to_string();
        element.with_child(self.element("MetadataVersion").with_text(version))
    }

    fn probe(&mut self, probe: &Probe) -> Element {
        let mut element = self.element("Probe");
        if !probe.types.is_empty() {
            element = element.with_child(self.types(&probe.types));
        }
        if !probe.scopes.is_empty() || probe.match_by.is_some() {
            let mut scopes = self.element("Scopes").with_text(probe.scopes.join(" "));
            if let Some(uri) = &probe.match_by {
                scopes = scopes.with_attribute(Name::local("MatchBy"), uri.clone());
            }
            element = element.with_child(scopes);
        }
        element
    }

    fn types(&mut self, types: &[Name]) -> Element {
        let qnames: Vec<_> = types.iter().map(|name| self.qname(name)).collect();
        self.element("Types").with_text(qnames.join(" "))
    }

    fn qname(&mut self, name: &Name) -> String {
        if name.namespace.is_empty() {
            return name.local.to_string();
        }
        let known = self.used.iter().find(|(_, other)| *other == name.namespace);
        let prefix = match known {
            Some((prefix, _)) => prefix.clone(),
            None => {
                let prefix = self.fresh_prefix(&name.namespace);
                self.used.push((prefix.clone(), name.namespace.clone()));
                prefix
            }
        };
        format!("{prefix}:{}", name.local)
    }

    fn fresh_prefix(&self, namespace: &str) -> Str {
        let fixed = self.dialect.prefixes();
        if let Some((prefix, _)) = fixed.iter().find(|(_, bound)| *bound == namespace) {
            return Str::Borrowed(prefix);
        }
        let reserved = ["", "soap", "wsa", "xml", "xmlns"];
        let is_taken = |prefix: &str| {
            reserved.contains(&prefix)
                || fixed.iter().any(|(other, _)| *other == prefix)
                || self.used.iter().any(|(other, _)| other == prefix)
        };
        let caller_prefixes = self
            .caller_prefixes
            .iter()
            .find(|(prefix, bound)| bound == namespace && !is_taken(prefix));
        if let Some((prefix, _)) = caller_prefixes {
            return prefix.clone();
        }
        let mut number = self.used.len();
        loop {
            let prefix = format!("t{number}");
            if !is_taken(&prefix) {
                return prefix.into();
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_matches_is_counted_before_it_is_written() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..500 {
            let dialect = Dialect::ALL[random.usize(..2)];
            let mut uris = || {
                let count = random.usize(..4);
                let uri = |_| Str::from("a&b<c>".repeat(random.usize(1..50)));
                (0..count).map(uri).collect::<Vec<_>>()
            };
            let (scopes, xaddrs) = (uris(), uris());
            let of = |number: usize| Target {
                endpoint: EndpointReference::new(format!("urn:uuid:{number}")),
                types: ["urn:one", "urn:other", "urn:third"]
                    .into_iter()
                    .take(number % 4)
                    .map(|namespace| Name::new(namespace, "Type"))
                    .collect(),
                scopes: scopes.clone(),
                xaddrs: xaddrs.clone(),
                metadata_version: 1,
            };
            let targets: Vec<Target> = (0..random.usize(1..20)).map(of).collect();
            let mut size = MatchesSize::default();
            assert!(targets.iter().all(|target| size.add(target, usize::MAX)));
            let text = |targets| {
                let message = Message {
                    dialect,
                    message_id: "urn:a".into(),
                    relates_to: None,
                    to: None,
                    reply_to: None,
                    sequence: None,
                    content: Content::ProbeMatches(targets),
                };
                message.to_envelope(&[]).to_text().len()
            };
            let (empty, counted) = (text(Vec::new()), size.bytes);
            let written = text(targets) - empty;
            assert!(
                written <= counted + 20 && counted < 2 * written,
                "{counted} counted, {written} written"
            );
        }
    }
}
