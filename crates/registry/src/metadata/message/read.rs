//! Requests from XML.

use chappe_xml::{Element, Name};

use super::{Message, NAMESPACE, Part, Request};
use crate::metadata::annotate::Draft;
use crate::metadata::find::{Criterion, MAX_CRITERIA};
use crate::metadata::operations::{FindMessage, FindOperations};
use crate::metadata::piece::Value;
use crate::metadata::wsdl_part::WsdlPart;
use crate::piece_keys::{date_of, day_of};
use crate::uddi::message::{NAMESPACE as UDDI, Port, Request as UddiRequest, read_body};
use crate::uddi::{Error, ErrorCode};

/// The datatype of a value that is XML.
pub(super) const XML_LITERAL: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral";
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// Maximum number of names in find_operation, as in every find call of UDDI.
const MAX_NAMES: usize = 5;

fn malformed(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::FatalError, detail)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// An element of a request.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Element);

impl<'a> Node<'a> {
    /// The element, whose children are all of these names. The token may be of UDDI's namespace.
    fn with(element: &'a Element, names: &[&str]) -> Result<Self, Error> {
        for child in element.elements() {
            let local = &*child.name.local;
            let is_token = local == "authInfo" && child.name.namespace == *UDDI;
            let is_known = names.contains(&local) && child.name.namespace == *NAMESPACE;
            if !is_token && !is_known {
                let (name, child) = (&element.name.local, shown(local));
                return Err(malformed(format!("{name} does not contain {child}")));
            }
        }
        Ok(Self(element))
    }

    fn all(self, local: &'static str) -> impl Iterator<Item = &'a Element> {
        let children = self.0.elements();
        children.filter(move |child| child.name.local == local)
    }

    /// The child of this name, of which there is at most one.
    fn maybe(self, local: &'static str) -> Result<Option<&'a Element>, Error> {
        let mut found = self.all(local);
        let first = found.next();
        match found.next() {
            None => Ok(first),
            Some(_) => {
                let name = &self.0.name.local;
                Err(malformed(format!("{name} has more than one {local}")))
            }
        }
    }

    fn one(self, local: &'static str) -> Result<&'a Element, Error> {
        let name = &self.0.name.local;
        self.maybe(local)?
            .ok_or_else(|| malformed(format!("{local} is missing in {name}")))
    }

    fn text_of(self, local: &'static str) -> Result<String, Error> {
        Ok(text(self.one(local)?))
    }
}

fn text(element: &Element) -> String {
    element.text().trim().to_owned()
}

/// An attribute, qualified or not.
fn attribute<'a>(element: &'a Element, local: &'static str) -> Option<&'a str> {
    let qualified = element.attribute(&Name::new(NAMESPACE, local));
    qualified.or_else(|| element.attribute(&Name::local(local)))
}

/// The key of an entity: an IRI, or a UUID as UDDI writes it.
fn key(text: &str) -> String {
    let bare = match text.get(..5) {
        Some(prefix) if prefix.eq_ignore_ascii_case("uuid:") => text.get(5..).unwrap_or_default(),
        _ => text,
    };
    let is_uuid = bare.len() == 36
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    match is_uuid {
        true => format!("urn:uuid:{}", bare.to_ascii_lowercase()),
        false => text.to_owned(),
    }
}

fn entity(element: &Element) -> Result<String, Error> {
    let names = [
        "stringKey",
        "metadataKey",
        "messagePartReference",
        "operationReference",
    ];
    Node::with(element, &names)?;
    let mut children = element.elements();
    let (Some(child), None) = (children.next(), children.next()) else {
        return Err(malformed("entityReference does not have one child"));
    };
    match &*child.name.local {
        "operationReference" => {
            let node = Node::with(
                child,
                &["portTypeNamespace", "portTypeName", "operationName"],
            )?;
            let part = WsdlPart::Operation {
                namespace: node.text_of("portTypeNamespace")?,
                port_type: node.text_of("portTypeName")?,
                name: node.text_of("operationName")?,
            };
            Ok(part.iri())
        }
        "messagePartReference" => {
            let node = Node::with(
                child,
                &["messageNamespace", "messageName", "messagePartName"],
            )?;
            let part = WsdlPart::MessagePart {
                namespace: node.text_of("messageNamespace")?,
                message: node.text_of("messageName")?,
                name: node.text_of("messagePartName")?,
            };
            Ok(part.iri())
        }
        _ => Ok(key(&text(child))),
    }
}

/// The graph of a triplesAssertion. Its resourceIdentifier is not evaluated: the triples name their
/// subjects.
fn graph(element: &Element, subject: &str) -> Result<Value, Error> {
    let names = ["triples", "resourceIdentifier", "language", "base"];
    let node = Node::with(element, &names)?;
    let language = node.maybe("language")?.map(text).unwrap_or_default();
    let is_one_of = |known: &[&str]| {
        let mut known = known.iter();
        known.any(|known| language.eq_ignore_ascii_case(known))
    };
    let is_xml = is_one_of(&["RDF/XML", "RDF/XML-ABBREV"]);
    if !is_xml && !is_one_of(&["", "TURTLE", "TTL", "N-TRIPLE", "N-TRIPLES", "N3"]) {
        let detail = format!(
            "the language {:?} of triples is not supported; send TURTLE, N-TRIPLE or RDF/XML",
            shown(&language)
        );
        return Err(Error::new(ErrorCode::Unsupported, detail));
    }
    let base = node
        .maybe("base")?
        .map(text)
        .filter(|base| !base.is_empty());
    let base = base.as_deref().unwrap_or(subject);
    let triples = node.one("triples")?;
    Ok(match is_xml {
        false => Value::from_turtle(base, &triples.text())?,
        // The document as text, or the element rdf:RDF itself.
        true => match triples.elements().next() {
            None => Value::from_rdf_xml(base, triples.text().trim_start())?,
            Some(document) => Value::from_rdf_xml(base, &document.to_text())?,
        },
    })
}

fn value(element: &Element, subject: &str) -> Result<Value, Error> {
    let names = ["stringValue", "uriValue", "xmlValue", "triplesAssertion"];
    Node::with(element, &names)?;
    let mut children = element.elements();
    let (Some(child), None) = (children.next(), children.next()) else {
        return Err(malformed("metadataValue does not have one child"));
    };
    Ok(match &*child.name.local {
        "uriValue" => Value::Uri(text(child)),
        "triplesAssertion" => graph(child, subject)?,
        "xmlValue" => {
            let mut inner = child.elements();
            let (Some(inner), None) = (inner.next(), inner.next()) else {
                return Err(malformed("xmlValue does not have one element"));
            };
            Value::Typed {
                value: inner.to_text(),
                datatype: XML_LITERAL.to_owned(),
            }
        }
        _ => {
            let value = child.text().into_owned();
            match attribute(child, "datatype") {
                Some(datatype) => Value::Typed {
                    value,
                    datatype: datatype.trim().to_owned(),
                },
                None => Value::Text(value),
            }
        }
    })
}

fn draft(node: Node<'_>) -> Result<Draft, Error> {
    let subject = entity(node.one("entityReference")?)?;
    let metadata = node.one("metadata")?;
    let known = attribute(metadata, "metadataKey").map(str::trim);
    let node = Node::with(metadata, &["metadataType", "metadataValue"])?;
    Ok(Draft {
        key: known.filter(|text| !text.is_empty()).map(key),
        piece_type: node.text_of("metadataType")?,
        value: value(node.one("metadataValue")?, &subject)?,
        subject,
        rule: None,
        lease_s: None,
    })
}

/// A day, a time, or an interval of two of these, of which one may be absent: the first millisecond,
/// and the one after the last.
fn dates(text: &str) -> Result<(Option<i64>, Option<i64>), Error> {
    let one = |text: &str| match text.trim() {
        "" => Ok(None),
        text => {
            let day = day_of(text).map(|day| (day * DAY_MS, (day + 1) * DAY_MS));
            let time = || date_of(text).map(|time| (time, time + 1));
            day.or_else(time).map(Some).ok_or_else(|| {
                let detail = format!(
                    "the date {:?} is not like 2026-03-20, 2026-03-20T09:48:43Z, or two of these with a slash",
                    shown(text)
                );
                Error::new(ErrorCode::ValueNotAllowed, detail)
            })
        }
    };
    match text.split_once('/') {
        None => {
            let found = one(text)?;
            Ok((found.map(|(from, _)| from), found.map(|(_, until)| until)))
        }
        Some((from, until)) => {
            let (from, until) = (one(from)?, one(until)?);
            Ok((from.map(|(from, _)| from), until.map(|(_, until)| until)))
        }
    }
}

fn criteria(bag: Option<&Element>) -> Result<Vec<Criterion>, Error> {
    let Some(bag) = bag else {
        return Ok(Vec::new());
    };
    let node = Node::with(bag, &["metadataQuery"])?;
    let queries = node.all("metadataQuery").take(MAX_CRITERIA + 1);
    let read = queries.map(|query| -> Result<Criterion, Error> {
        let names = [
            "findQualifiers",
            "metadataType",
            "metadataValue",
            "author",
            "date",
        ];
        let node = Node::with(query, &names)?;
        if let Some(qualifiers) = node.maybe("findQualifiers")?
            && qualifiers.elements().next().is_some()
        {
            let detail = "a metadataQuery has no findQualifiers here: values match exactly";
            return Err(Error::new(ErrorCode::Unsupported, detail));
        }
        let date = node.maybe("date")?.map(text).unwrap_or_default();
        let (from_ms, until_ms) = dates(&date)?;
        let piece_type = node.maybe("metadataType")?.map(text);
        let found = node.maybe("metadataValue")?;
        let found = found.filter(|element| element.elements().next().is_some());
        Ok(Criterion {
            piece_type: piece_type.filter(|text| !text.is_empty()),
            value: found.map(|element| value(element, "")).transpose()?,
            authors: node
                .all("author")
                .take(MAX_CRITERIA + 1)
                .map(text)
                .collect(),
            from_ms,
            until_ms,
        })
    });
    read.collect()
}

fn part(element: &Element) -> Result<Part, Error> {
    let rows = attribute(element, "maxRows").map(str::trim);
    let rows = rows.filter(|rows| !rows.is_empty()).map(|rows| {
        let wrong = |_| malformed(format!("maxRows {:?} is not a number", shown(rows)));
        rows.parse::<i64>().map_err(wrong)
    });
    let rows = rows.transpose()?.filter(|rows| *rows > 0);
    Ok(Part {
        max_rows: rows.and_then(|rows| usize::try_from(rows).ok()),
        cursor: attribute(element, "cursor").map(str::to_owned),
    })
}

/// The element with its descendants in UDDI's namespace.
fn in_uddi(element: &Element) -> Element {
    let mut renamed = element.clone();
    let mut waiting = vec![&mut renamed];
    while let Some(element) = waiting.pop() {
        if element.name.namespace == *NAMESPACE {
            element.name = Name::owned(UDDI, (*element.name.local).to_owned());
        }
        for node in &mut element.children {
            if let chappe_xml::Node::Element(child) = node {
                waiting.push(child);
            }
        }
    }
    renamed
}

/// find_service: that of UDDI, with metadata.
fn find_service(body: &Element) -> Result<Request, Error> {
    let bag = Name::new(NAMESPACE, "metadataQueryBag");
    let asked = criteria(body.child(&bag))?;
    let mut plain = body.clone();
    plain.children.retain(|node| match node {
        chappe_xml::Node::Element(child) => child.name != bag,
        _ => true,
    });
    match read_body(&in_uddi(&plain), Port::Inquiry)?.request {
        UddiRequest::FindService(ask) => Ok(Request::FindService(ask, asked)),
        _ => Err(malformed("not find_service")),
    }
}

/// find_operation.
fn find_operation(node: Node<'_>) -> Result<FindOperations, Error> {
    let several = |local: &'static str| -> Result<Vec<String>, Error> {
        let found: Vec<String> = node.all(local).take(MAX_NAMES + 1).map(text).collect();
        if found.len() > MAX_NAMES {
            let detail = format!("find_operation has {local} more than {MAX_NAMES} times");
            return Err(Error::new(ErrorCode::TooManyOptions, detail));
        }
        Ok(found)
    };
    Ok(FindOperations {
        names: several("name")?,
        metadata: criteria(node.maybe("operationMetadataQueryBag")?)?,
        message: FindMessage {
            names: several("messageName")?,
            namespaces: several("messageNamespace")?,
            part_names: several("messagePartName")?,
            part_metadata: criteria(node.maybe("messagePartMetadataQueryBag")?)?,
        },
        of: node.maybe("entityReference")?.map(entity).transpose()?,
    })
}

/// The names of all requests.
pub(super) const NAMES: [&str; 10] = [
    "addMetadataToEntity",
    "deleteMetadata",
    "get_metadataDetail",
    "get_entityMetadata",
    "find_entityByMetadata",
    "get_supportedEntityType",
    "find_service",
    "find_operation",
    "find_interfaceByOperationMetadata",
    "find_interfaceByMessagePartMetadata",
];

/// Reads the element in the body of a request.
pub(super) fn message(body: &Element) -> Result<Message, Error> {
    let local = &*body.name.local;
    let name = NAMES.into_iter().find(|name| *name == local);
    let name = name.filter(|_| body.name.namespace == *NAMESPACE);
    let name = name.ok_or_else(|| {
        let detail = format!("{:?} is not a request about metadata", shown(local));
        Error::new(ErrorCode::Unsupported, detail)
    })?;
    let mut tokens = body.elements();
    let token = tokens
        .find(|child| &*child.name.local == "authInfo")
        .map(text);
    let node = |names: &[&str]| {
        let names: Vec<&str> = names.iter().copied().chain(["authInfo"]).collect();
        Node::with(body, &names)
    };
    let request = match name {
        "addMetadataToEntity" => Request::Attach(draft(node(&["entityReference", "metadata"])?)?),
        "deleteMetadata" => Request::Delete(key(&node(&["metadataKey"])?.text_of("metadataKey")?)),
        "get_metadataDetail" => {
            Request::Detail(key(&node(&["metadataKey"])?.text_of("metadataKey")?))
        }
        "get_entityMetadata" => {
            let reference = node(&["entityReference"])?.one("entityReference")?;
            Request::OfEntity(entity(reference)?, part(body)?)
        }
        "find_entityByMetadata" => {
            let bag = node(&["metadataQueryBag"])?.one("metadataQueryBag")?;
            Request::FindEntities(criteria(Some(bag))?, part(body)?)
        }
        "get_supportedEntityType" => {
            node(&["dummyToGetClass"])?;
            Request::EntityTypes
        }
        "find_service" => find_service(body)?,
        "find_operation" => {
            let node = node(&[
                "findQualifiers",
                "name",
                "operationMetadataQueryBag",
                "messageName",
                "messageNamespace",
                "messagePartName",
                "messagePartMetadataQueryBag",
                "entityReference",
            ])?;
            Request::FindOperations(find_operation(node)?, part(body)?)
        }
        "find_interfaceByOperationMetadata" => {
            let bag = node(&["metadataQueryBag"])?.one("metadataQueryBag")?;
            Request::FindInterfaces(criteria(Some(bag))?, part(body)?)
        }
        // find_interfaceByMessagePartMetadata.
        _ => {
            let bag = node(&["metadataQueryBag"])?.one("metadataQueryBag")?;
            Request::FindInterfacesByPart(criteria(Some(bag))?, part(body)?)
        }
    };
    Ok(Message {
        name,
        token,
        request,
    })
}
