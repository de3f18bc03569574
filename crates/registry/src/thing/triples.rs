//! A Thing Description as triples of the W3C ontologies.
//!
//! Source: the JSON-LD contexts of Thing Description 1.1 and of Discovery. Written are types, titles,
//! affordances, forms, links, data schemas of up to four levels, security schemes, registrations, and
//! members whose prefix the document defines. The document itself has everything.

use oxrdf::vocab::{rdf, xsd};
use oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, NamedOrBlankNode, Term, Triple};
use serde_json::{Map, Value};

use super::names::{Names, resolve};
use super::registration::Registration;
use super::validation::texts;
use crate::entity::{
    MAX_ENTITY_BYTES, MAX_LIST, MAX_TERM_BYTES, MAX_TEXT_BYTES, MAX_TRIPLES, triple_bytes,
};
use crate::time::timestamp;
use crate::vocabulary::td;

type Members = Map<String, Value>;

/// Levels of data schemas that are written; reason: people search members, not their members'
/// members' members.
const SCHEMA_LEVELS: usize = 4;

/// The operations whose local name is more than one lower-case word.
const OPERATIONS: [(&str, &str); 18] = [
    ("readproperty", "readProperty"),
    ("writeproperty", "writeProperty"),
    ("observeproperty", "observeProperty"),
    ("unobserveproperty", "unobserveProperty"),
    ("invokeaction", "invokeAction"),
    ("queryaction", "queryAction"),
    ("cancelaction", "cancelAction"),
    ("subscribeevent", "subscribeEvent"),
    ("unsubscribeevent", "unsubscribeEvent"),
    ("readallproperties", "readAllProperties"),
    ("writeallproperties", "writeAllProperties"),
    ("readmultipleproperties", "readMultipleProperties"),
    ("writemultipleproperties", "writeMultipleProperties"),
    ("observeallproperties", "observeAllProperties"),
    ("unobserveallproperties", "unobserveAllProperties"),
    ("queryallactions", "queryAllActions"),
    ("subscribeallevents", "subscribeAllEvents"),
    ("unsubscribeallevents", "unsubscribeAllEvents"),
];

/// The triples of a valid document about `key`, without the types of the thing.
pub(super) fn of(key: &NamedNode, document: &Value) -> Vec<Triple> {
    let mut writer = Writer {
        names: Names::of(document),
        base: document.get("base").and_then(Value::as_str),
        triples: Vec::new(),
        bytes: 0,
        nodes: 0,
    };
    if let Some(thing) = document.as_object() {
        writer.thing(&key.clone().into(), thing);
    }
    if let Some(registration) = Registration::of(document) {
        writer.registration(&key.clone().into(), registration);
    }
    writer.triples
}

/// The types of a document as `{namespace}local`.
pub(super) fn types(document: &Value) -> Vec<String> {
    let names = Names::of(document);
    let mut types = vec![td::THING_TYPE.to_owned()];
    for name in document.get("@type").into_iter().flat_map(texts) {
        let Some(iri) = names.iri(name) else {
            continue;
        };
        let iri = iri.as_str();
        let end = iri.rfind(['#', '/', ':']).map_or(0, |index| index + 1);
        let (namespace, local) = iri.split_at(end);
        let name = format!("{{{namespace}}}{local}");
        // The entity is refused.
        let is_too_much = name.len() > MAX_TEXT_BYTES || types.len() > MAX_LIST;
        if !types.contains(&name) {
            types.push(name);
        }
        if is_too_much {
            break;
        }
    }
    types
}

struct Writer<'a> {
    names: Names<'a>,
    base: Option<&'a str>,
    triples: Vec<Triple>,
    /// Their size. A prefix or a base makes long IRIs of short names.
    bytes: usize,
    nodes: usize,
}

impl Writer<'_> {
    fn add(
        &mut self,
        subject: &NamedOrBlankNode,
        predicate: NamedNodeRef<'_>,
        object: impl Into<Term>,
    ) {
        if self.is_full() {
            return;
        }
        let triple = Triple::new(subject.clone(), predicate.into_owned(), object);
        self.bytes += triple_bytes(&triple);
        self.triples.push(triple);
    }

    /// There are more triples than an entity may have, so that the document is refused.
    fn is_full(&self) -> bool {
        self.bytes > MAX_ENTITY_BYTES || self.triples.len() > MAX_TRIPLES
    }

    fn node(
        &mut self,
        subject: &NamedOrBlankNode,
        predicate: NamedNodeRef<'_>,
    ) -> NamedOrBlankNode {
        self.nodes += 1;
        let node = BlankNode::new_unchecked(format!("n{}", self.nodes));
        self.add(subject, predicate, node.clone());
        node.into()
    }

    /// A literal of a string, number or boolean.
    fn scalar(&mut self, subject: &NamedOrBlankNode, predicate: NamedNodeRef<'_>, value: &Value) {
        let literal = match value {
            Value::String(text) => Literal::new_simple_literal(text.clone()),
            Value::Bool(value) => Literal::from(*value),
            Value::Number(number) if number.is_f64() => {
                Literal::new_typed_literal(number.to_string(), xsd::DOUBLE)
            }
            Value::Number(number) => Literal::new_typed_literal(number.to_string(), xsd::INTEGER),
            _ => return,
        };
        self.add(subject, predicate, literal);
    }

    fn member(
        &mut self,
        subject: &NamedOrBlankNode,
        predicate: NamedNodeRef<'_>,
        members: &Members,
        name: &str,
    ) {
        if let Some(value) = members.get(name) {
            self.scalar(subject, predicate, value);
        }
    }

    fn types(&mut self, subject: &NamedOrBlankNode, members: &Members) {
        for name in members.get("@type").into_iter().flat_map(texts) {
            if self.is_full() {
                return;
            }
            if let Some(iri) = self.names.iri(name) {
                self.add(subject, rdf::TYPE, iri);
            }
        }
    }

    /// Titles and descriptions, and members with a prefix.
    fn human(&mut self, subject: &NamedOrBlankNode, members: &Members) {
        self.member(subject, td::TITLE, members, "title");
        self.member(subject, td::DESCRIPTION, members, "description");
        for (name, predicate) in [
            ("titles", td::TITLE_IN_LANGUAGE),
            ("descriptions", td::DESCRIPTION_IN_LANGUAGE),
        ] {
            let languages = members.get(name).and_then(Value::as_object);
            for (language, text) in languages.into_iter().flatten() {
                let Some(text) = text.as_str() else { continue };
                let literal = Literal::new_language_tagged_literal(text, language);
                self.add(
                    subject,
                    predicate,
                    literal.unwrap_or_else(|_| Literal::new_simple_literal(text)),
                );
            }
        }
        for (name, value) in members {
            if !self.is_full()
                && name.contains(':')
                && let Some(predicate) = self.names.defined(name)
            {
                self.extension(subject, predicate.as_ref(), value);
            }
        }
    }

    fn extension(
        &mut self,
        subject: &NamedOrBlankNode,
        predicate: NamedNodeRef<'_>,
        value: &Value,
    ) {
        let text = |name| value.get(name).and_then(Value::as_str);
        match value {
            Value::Array(values) => {
                for value in values {
                    if !self.is_full() && !value.is_array() {
                        self.extension(subject, predicate, value);
                    }
                }
            }
            Value::Object(_) => {
                if let Some(iri) = text("@id").and_then(|id| self.names.defined(id)) {
                    self.add(subject, predicate, iri);
                } else if let Some(value) = text("@value") {
                    let literal = match (text("@language"), text("@type")) {
                        (Some(language), _) => {
                            Literal::new_language_tagged_literal(value, language).ok()
                        }
                        (None, Some(datatype)) => self
                            .names
                            .defined(datatype)
                            .map(|datatype| Literal::new_typed_literal(value, datatype)),
                        (None, None) => None,
                    };
                    let literal = literal.unwrap_or_else(|| Literal::new_simple_literal(value));
                    self.add(subject, predicate, literal);
                }
            }
            Value::String(text) if text.len() > MAX_TERM_BYTES => {}
            scalar => self.scalar(subject, predicate, scalar),
        }
    }

    fn thing(&mut self, subject: &NamedOrBlankNode, thing: &Members) {
        self.human(subject, thing);
        self.member(subject, td::BASE, thing, "base");
        self.member(subject, td::SUPPORT, thing, "support");
        for (name, predicate, class) in [
            ("properties", td::HAS_PROPERTY, td::PROPERTY),
            ("actions", td::HAS_ACTION, td::ACTION),
            ("events", td::HAS_EVENT, td::EVENT),
        ] {
            let affordances = thing.get(name).and_then(Value::as_object);
            for (name, affordance) in affordances.into_iter().flatten() {
                let node = self.node(subject, predicate);
                self.add(&node, rdf::TYPE, class.into_owned());
                self.add(&node, td::NAME, Literal::new_simple_literal(name.clone()));
                if let Some(affordance) = affordance.as_object() {
                    self.affordance(&node, affordance, class == td::PROPERTY);
                }
            }
        }
        self.forms(subject, thing);
        for link in thing
            .get("links")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(link) = link.as_object() else {
                continue;
            };
            let node = self.node(subject, td::HAS_LINK);
            self.target(&node, link);
            self.member(&node, td::RELATION, link, "rel");
            self.member(&node, td::MEDIA_TYPE, link, "type");
        }
        self.security(subject, thing);
        let definitions = thing.get("securityDefinitions").and_then(Value::as_object);
        for (name, definition) in definitions.into_iter().flatten() {
            let node = self.node(subject, td::DEFINES_SECURITY);
            self.add(&node, td::NAME, Literal::new_simple_literal(name.clone()));
            let scheme = definition.get("scheme").and_then(Value::as_str);
            if let Some(class) = scheme.and_then(|scheme| self.scheme(scheme)) {
                self.add(&node, rdf::TYPE, class);
            }
        }
    }

    /// The class of a security scheme.
    fn scheme(&self, scheme: &str) -> Option<NamedNode> {
        let local = match scheme {
            "nosec" => "NoSecurityScheme",
            "auto" => "AutoSecurityScheme",
            "combo" => "ComboSecurityScheme",
            "basic" => "BasicSecurityScheme",
            "digest" => "DigestSecurityScheme",
            "apikey" => "APIKeySecurityScheme",
            "bearer" => "BearerSecurityScheme",
            "psk" => "PSKSecurityScheme",
            "oauth2" => "OAuth2SecurityScheme",
            other => return self.names.defined(other),
        };
        Some(NamedNode::new_unchecked(format!("{}{local}", td::SECURITY)))
    }

    fn affordance(&mut self, node: &NamedOrBlankNode, affordance: &Members, is_property: bool) {
        self.types(node, affordance);
        self.human(node, affordance);
        for (name, predicate) in [
            ("observable", td::IS_OBSERVABLE),
            ("safe", td::IS_SAFE),
            ("idempotent", td::IS_IDEMPOTENT),
        ] {
            self.member(node, predicate, affordance, name);
        }
        self.forms(node, affordance);
        if is_property {
            return self.schema(node, affordance, SCHEMA_LEVELS);
        }
        for (name, predicate) in [
            ("input", td::HAS_INPUT),
            ("output", td::HAS_OUTPUT),
            ("data", td::HAS_DATA),
        ] {
            if let Some(schema) = affordance.get(name).and_then(Value::as_object) {
                let node = self.node(node, predicate);
                self.types(&node, schema);
                self.human(&node, schema);
                self.schema(&node, schema, SCHEMA_LEVELS);
            }
        }
    }

    /// The members of a data schema that say what its values are.
    fn schema(&mut self, node: &NamedOrBlankNode, schema: &Members, levels: usize) {
        let class = match schema.get("type").and_then(Value::as_str) {
            Some("object") => Some("ObjectSchema"),
            Some("array") => Some("ArraySchema"),
            Some("boolean") => Some("BooleanSchema"),
            Some("string") => Some("StringSchema"),
            Some("number") => Some("NumberSchema"),
            Some("integer") => Some("IntegerSchema"),
            Some("null") => Some("NullSchema"),
            _ => None,
        };
        if let Some(class) = class {
            let class = NamedNode::new_unchecked(format!("{}{class}", td::JSON_SCHEMA));
            self.add(node, rdf::TYPE, class);
        }
        if let Some(unit) = schema.get("unit").and_then(Value::as_str) {
            match self.names.defined(unit).filter(|_| unit.contains(':')) {
                Some(iri) => self.add(node, td::UNIT, iri),
                None => self.add(node, td::UNIT, Literal::new_simple_literal(unit)),
            }
        }
        for (name, predicate) in [
            ("readOnly", td::READ_ONLY),
            ("writeOnly", td::WRITE_ONLY),
            ("minimum", td::MINIMUM),
            ("maximum", td::MAXIMUM),
        ] {
            self.member(node, predicate, schema, name);
        }
        if levels == 0 {
            return;
        }
        if let Some(items) = schema.get("items").and_then(Value::as_object) {
            let item = self.node(node, td::ITEMS);
            self.types(&item, items);
            self.human(&item, items);
            self.schema(&item, items, levels - 1);
        }
        let members = schema.get("properties").and_then(Value::as_object);
        for (name, member) in members.into_iter().flatten() {
            let Some(schema) = member.as_object() else {
                continue;
            };
            let node = self.node(node, td::MEMBERS);
            self.add(
                &node,
                td::MEMBER_NAME,
                Literal::new_simple_literal(name.clone()),
            );
            self.types(&node, schema);
            self.human(&node, schema);
            self.schema(&node, schema, levels - 1);
        }
    }

    fn forms(&mut self, subject: &NamedOrBlankNode, members: &Members) {
        let forms = members.get("forms").and_then(Value::as_array);
        for form in forms.into_iter().flatten() {
            let Some(form) = form.as_object() else {
                continue;
            };
            let node = self.node(subject, td::HAS_FORM);
            self.target(&node, form);
            self.member(&node, td::CONTENT_TYPE, form, "contentType");
            self.member(&node, td::SUBPROTOCOL, form, "subprotocol");
            self.security(&node, form);
            for operation in form.get("op").into_iter().flat_map(texts) {
                let known = OPERATIONS.iter().find(|(name, _)| *name == operation);
                if let Some((_, local)) = known {
                    let operation = NamedNode::new_unchecked(format!("{}{local}", td::TD));
                    self.add(&node, td::OPERATION, operation);
                }
            }
        }
    }

    fn target(&mut self, node: &NamedOrBlankNode, members: &Members) {
        if let Some(target) = members.get("href").and_then(Value::as_str) {
            let target = resolve(self.base, target);
            self.add(
                node,
                td::TARGET,
                Literal::new_typed_literal(target, xsd::ANY_URI),
            );
        }
    }

    fn security(&mut self, subject: &NamedOrBlankNode, members: &Members) {
        for name in members.get("security").into_iter().flat_map(texts) {
            self.add(subject, td::HAS_SECURITY, Literal::new_simple_literal(name));
        }
    }

    fn registration(&mut self, subject: &NamedOrBlankNode, registration: Registration) {
        let node = self.node(subject, td::REGISTRATION);
        self.add(&node, rdf::TYPE, td::REGISTRATION_CLASS.into_owned());
        let times = [
            (td::CREATED, Some(registration.created_ms)),
            (td::MODIFIED, Some(registration.modified_ms)),
            (td::EXPIRES, registration.expires_ms),
        ];
        for (predicate, time) in times {
            if let Some(unix_ms) = time {
                let literal = Literal::new_typed_literal(timestamp(unix_ms), xsd::DATE_TIME);
                self.add(&node, predicate, literal);
            }
        }
        if let Some(ttl) = registration.ttl_s {
            self.scalar(&node, td::TTL, &Value::from(ttl));
        }
    }
}
