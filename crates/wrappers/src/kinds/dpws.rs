//! Elements as events of a DPWS device: any WS-Eventing sink subscribes to the streams of a node, a virtual
//! sensor for example.
//!
//! Each stream is an event of the device's one service; its element has the fields of the stream, the time
//! and the key, with types and units in the WSDL's schema. So another Chappe, or a client generated from
//! the WSDL, gets typed values.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_device::host::endpoint_from;
use chappe_device::{DeviceHost, HostOptions, Selection};
use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_soap::schema::{FlatField, FlatType, XsdType, format_date_time, to_schema};
use chappe_soap::security::Mode;
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_stream::{
    DescriptorError, Field, FieldType, Position, Quality, StreamElement, StreamSchema, Value,
};
use chappe_transport::Drops;
use chappe_transport::signatures::Signing;
use chappe_xml::{Element, Name};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Part, Step,
    StreamDefinition, WrapperError, Written,
};

/// Most events of a device; reason: a client reads the whole WSDL.
const EVENTS_MAX: usize = 1_000;

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "dpws",
    about: "a DPWS device whose events are the elements, for WS-Eventing sinks",
    written: "its event source has queued the event for each current subscriber",
    may_double: "after a crash between sending and moving the cursor",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `dpws`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The friendly name of the device. Default: the name of the file.
    name: Option<String>,
    /// Interfaces to announce it on, by name or address. Default: every interface except loopback.
    #[serde(default)]
    interfaces: Vec<String>,
    /// The HTTP port; 0 picks a free one. Default: 0.
    #[serde(default)]
    port: u16,
    /// The namespace of its elements and actions. Default: `urn:chappe:events:NAME`.
    namespace: Option<String>,
    /// Its types, `{namespace}local`.
    #[serde(default)]
    types: Vec<String>,
    /// Its scopes, URIs.
    #[serde(default)]
    scopes: Vec<String>,
    /// Whether signatures in requests to the device are ignored (off), accepted or required. Unless it is off, answers
    /// and events are signed with the certificate of the node. Default: `hosted` under `[signatures]` of the node.
    signatures: Option<Signatures>,
}

/// Whether requests are signed.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Signatures {
    /// Signatures are ignored.
    Off,
    /// A signature may be missing, but must be valid if present.
    Accepted,
    /// Every request has one.
    Required,
}

impl From<Signatures> for Mode {
    fn from(signatures: Signatures) -> Self {
        match signatures {
            Signatures::Off => Self::Off,
            Signatures::Accepted => Self::Accepted,
            Signatures::Required => Self::Required,
        }
    }
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, message: String| Err(file.fault(key, message, None));
    for name in &settings.types {
        if read_name(name).is_none() {
            return wrong(
                "types",
                format!("{name:?} is not of the form {{namespace}}local"),
            );
        }
    }
    for text in settings.namespace.iter().chain(&settings.scopes) {
        if !text.contains(':') || text.contains(char::is_whitespace) {
            let key = if settings.namespace.as_ref() == Some(text) {
                "namespace"
            } else {
                "scopes"
            };
            return wrong(key, format!("{text:?} is not a URI"));
        }
    }
    Ok(settings)
}

fn read_name(text: &str) -> Option<Name> {
    let (namespace, local) = text.strip_prefix('{')?.split_once('}')?;
    let is_local = local.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && local
            .chars()
            .all(|c| c.is_alphanumeric() || "._-".contains(c));
    is_local.then(|| Name::owned(namespace.to_owned(), local.to_owned()))
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let path = file.path("".as_ref());
    let path = path.canonicalize().unwrap_or(path);
    // Two nodes may have exporters of one name.
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let texts = [
        "exporter",
        machine.trim(),
        &path.to_string_lossy(),
        &file.name,
    ];
    let namespace = settings.namespace.clone();
    Ok(Box::new(DeviceExporter {
        endpoint: endpoint_from(&texts),
        namespace: namespace.unwrap_or_else(|| format!("urn:chappe:events:{}", file.name)),
        name: settings.name.clone().unwrap_or_else(|| file.name.clone()),
        settings,
        events: BTreeMap::new(),
        host: None,
        drops: opening.drops,
        version: 0,
        signing: None,
    }))
}

/// A device whose events are elements.
struct DeviceExporter {
    endpoint: String,
    namespace: String,
    name: String,
    settings: Settings,
    events: BTreeMap<Arc<str>, Event>,
    /// `None` until there is an event, and while it is announced again.
    host: Option<DeviceHost>,
    drops: Drops,
    version: u32,
    signing: Option<Signing>,
}

/// The event of a stream.
struct Event {
    definition: Arc<StreamDefinition>,
    element: FlatType,
    action: String,
}

impl Exporter for DeviceExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        _: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        let own = self.settings.signatures.map(Mode::from);
        if node.signing.is_none() && own.is_some_and(|mode| mode != Mode::Off) {
            let text =
                "signatures: the node trusts no signer (hint: set authorities under [signatures])";
            return Err(WrapperError::settings(text));
        }
        self.signing = node.signing.clone().map(|signing| Signing {
            mode: own.unwrap_or(signing.mode),
            ..signing
        });
        self.signing.take_if(|signing| signing.mode == Mode::Off);
        Ok(())
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            let mut is_new = false;
            for part in &batch.parts {
                is_new |= self.define(part)?;
            }
            if is_new || self.host.is_none() {
                self.announce().await?;
            }
            let Some(host) = &self.host else {
                return Ok(Written::default());
            };
            for part in &batch.parts {
                let Some(event) = self.events.get(&part.stream) else {
                    continue;
                };
                for element in &part.elements {
                    let body = body(&event.element, &event.definition.schema, element);
                    let sent = host.notify(event.action.clone(), body).await;
                    sent.map_err(|error| WrapperError::peer(error.to_string()))?;
                }
            }
            Ok(Written::default())
        })
    }
}

impl DeviceExporter {
    /// Whether the stream is new, or has another schema now.
    fn define(&mut self, part: &Part) -> Result<bool, WrapperError> {
        let known = self.events.get(&part.stream);
        if known.is_some_and(|event| event.definition.schema == part.definition.schema) {
            return Ok(false);
        }
        if known.is_none() && self.events.len() == EVENTS_MAX {
            let text = format!("a device has at most {EVENTS_MAX} streams");
            return Err(WrapperError::settings(text));
        }
        let element = flat(&self.namespace, &part.stream, &part.definition);
        let event = Event {
            definition: part.definition.clone(),
            element,
            action: String::new(),
        };
        self.events.insert(part.stream.clone(), event);
        Ok(true)
    }

    /// Puts the device on the network with its present events. Subscriptions to an
    /// earlier description end with a message.
    async fn announce(&mut self) -> Result<(), WrapperError> {
        if let Some(host) = self.host.take() {
            host.stop().await;
        }
        let service = self.service();
        for event in self.events.values_mut() {
            let mut operations = service.operations.iter();
            let operation = operations.find(|one| *one.name == *event.element.name.local);
            let action = operation.and_then(|operation| service.output_action(operation));
            event.action = action.unwrap_or_default();
        }
        // Increases with each description, of later runs too.
        let now = u32::try_from(crate::clock::now().0 / 1_000_000_000).unwrap_or(u32::MAX);
        self.version = now.max(self.version.saturating_add(1));
        let id = format!("{}/service", self.namespace);
        let host = DeviceHost::builder(&*self.endpoint)
            .model(ThisModel {
                manufacturer: vec!["Chappe".into()],
                model_name: vec!["streams".into()],
                ..ThisModel::default()
            })
            .device(ThisDevice {
                friendly_name: vec![self.name.as_str().into()],
                ..ThisDevice::default()
            })
            .types(
                self.settings
                    .types
                    .iter()
                    .filter_map(|name| read_name(name)),
            )
            .scopes(self.settings.scopes.iter().cloned())
            .service(HostedService::new(id, "/service", service.to_wsdl()))
            .options(HostOptions {
                selection: selection(&self.settings.interfaces),
                port: self.settings.port,
                metadata_version: self.version,
                signing: self.signing.clone(),
                ..HostOptions::default()
            })
            .start(self.drops.clone());
        let host = host.map_err(|error| WrapperError::peer(error.to_string()))?;
        self.host = Some(host);
        Ok(())
    }

    fn service(&self) -> Service {
        let elements: Vec<FlatType> = self
            .events
            .values()
            .map(|one| one.element.clone())
            .collect();
        let operation =
            |element: &FlatType| ServiceOperation::event(&element.name.local, element.name.clone());
        Service {
            target_namespace: self.namespace.clone(),
            name: "StreamService".to_owned(),
            operations: elements.iter().map(operation).collect(),
            schemas: vec![to_schema(&self.namespace, &elements)],
            address: None,
        }
    }
}

fn selection(interfaces: &[String]) -> Selection {
    if interfaces.is_empty() {
        return Selection::Network;
    }
    let addresses: Result<Vec<_>, _> = interfaces.iter().map(|one| one.parse()).collect();
    match addresses {
        Ok(addresses) => Selection::Addresses(addresses),
        Err(_) => Selection::Named(interfaces.to_vec()),
    }
}

/// The element of a stream: its name is that of the stream.
fn flat(namespace: &str, stream: &str, definition: &StreamDefinition) -> FlatType {
    let named = |local: &str| Name::owned(namespace.to_owned(), local.to_owned());
    let mut fields = vec![FlatField::new(named("source_time"), XsdType::DateTime)];
    if definition.schema.key.is_some() {
        fields.push(FlatField::new(named("key"), XsdType::String));
    }
    fields.push(FlatField::new(named("quality"), XsdType::Token));
    for field in &definition.schema.fields {
        fields.extend(flat_fields(namespace, field));
    }
    // A name of XML does not start with a digit.
    let starts_well = stream.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let local = if starts_well {
        stream.to_owned()
    } else {
        format!("_{stream}")
    };
    FlatType {
        name: named(&local),
        fields,
        doc: definition.description.clone(),
    }
}

fn flat_fields(namespace: &str, field: &Field) -> Vec<FlatField> {
    let data_type = match field.field_type {
        FieldType::Boolean => XsdType::Boolean,
        FieldType::Integer => XsdType::Long,
        FieldType::Double | FieldType::Samples => XsdType::Double,
        FieldType::Text => XsdType::String,
        FieldType::Bytes => XsdType::Base64Binary,
    };
    let named = |local: String| Name::owned(namespace.to_owned(), local);
    let mut flat = FlatField::new(named(field.name.clone()), data_type);
    flat.optional = true;
    flat.unit.clone_from(&field.unit);
    flat.doc.clone_from(&field.description);
    flat.model_reference.extend(field.observed_property.clone());
    if field.field_type != FieldType::Samples {
        return vec![flat];
    }
    flat.list = true;
    let mut period = FlatField::new(named(format!("{}_period", field.name)), XsdType::Double);
    period.optional = true;
    period.unit = Some("s".to_owned());
    vec![flat, period]
}

/// The body of an event. Null is an element that is left out.
fn body(flat: &FlatType, schema: &StreamSchema, element: &StreamElement) -> Element {
    let namespace = flat.name.namespace.clone();
    let mut children = Vec::new();
    let mut add = |local: &str, text: String| {
        let name = Name::inside(&namespace, local.to_owned());
        children.push(Element::new(name).with_text(text));
    };
    add("source_time", format_date_time(element.source_time.0));
    if schema.key.is_some() {
        add("key", text_of(element.key.as_deref().unwrap_or_default()));
    }
    let quality = match element.quality {
        Quality::Good => "good",
        Quality::Questionable => "questionable",
        Quality::Bad => "bad",
    };
    add("quality", quality.to_owned());
    for (field, value) in schema.fields.iter().zip(&element.values) {
        let text = match value {
            Value::Null => continue,
            Value::Boolean(flag) => flag.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Double(number) => double(*number),
            Value::Text(text) => text_of(text),
            Value::Bytes(bytes) => STANDARD.encode(bytes),
            Value::Samples(samples) => {
                let mut text = String::new();
                for sample in &samples.values {
                    let space = if text.is_empty() { "" } else { " " };
                    let _ = write!(text, "{space}{}", double(*sample));
                }
                text
            }
        };
        add(&field.name, text);
        if let Value::Samples(samples) = value {
            add(
                &format!("{}_period", field.name),
                double(samples.period_ns as f64 / 1e9),
            );
        }
    }
    let body = Element::new(flat.name.clone()).with_namespace("", namespace);
    children.into_iter().fold(body, Element::with_child)
}

/// A text without the characters that XML cannot contain: each becomes U+FFFD.
fn text_of(text: &str) -> String {
    let is_xml = |c: char| c >= ' ' || matches!(c, '\t' | '\n' | '\r');
    let replaced = |c: char| {
        if is_xml(c) && !matches!(c, '\u{fffe}' | '\u{ffff}') {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    text.chars().map(replaced).collect()
}

/// A number as `xs:double` writes it.
fn double(number: f64) -> String {
    if number.is_finite() {
        number.to_string()
    } else if number.is_nan() {
        "NaN".to_owned()
    } else if number > 0.0 {
        "INF".to_owned()
    } else {
        "-INF".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_soap::schema::Schemas;
    use chappe_stream::{Samples, Timestamp};

    fn definition() -> StreamDefinition {
        let field = |name: &str, field_type, unit: Option<&str>| Field {
            name: name.to_owned(),
            field_type,
            unit: unit.map(str::to_owned),
            observed_property: None,
            description: None,
        };
        StreamDefinition {
            schema: StreamSchema {
                fields: vec![
                    field("celsius", FieldType::Double, Some("Cel")),
                    field("count", FieldType::Integer, None),
                    field("note", FieldType::Text, None),
                    field("is_open", FieldType::Boolean, None),
                    field("image", FieldType::Bytes, None),
                    field("ecg", FieldType::Samples, Some("mV")),
                ],
                key: Some("bed".to_owned()),
            },
            ..StreamDefinition::default()
        }
    }

    #[test]
    fn an_event_has_the_fields_of_its_stream() {
        let definition = definition();
        let flat = flat("urn:t", "ward.2", &definition);
        let mut element = crate::tests::element(-0.5);
        element.key = Some("4".to_owned());
        element.values.extend([
            Value::Integer(i64::MIN),
            Value::Text("a<b & \u{1}".to_owned()),
            Value::Null,
            Value::Bytes(vec![0, 255]),
            Value::Samples(Samples {
                start: Timestamp(0),
                period_ns: 5_000_000,
                values: vec![1.0, f64::NAN, f64::INFINITY],
            }),
        ]);
        let body = body(&flat, &definition.schema, &element);
        let read: Vec<(String, String)> = body
            .elements()
            .map(|child| (child.name.local.to_string(), child.text().to_string()))
            .collect();
        let expected = [
            ("source_time", "1970-01-01T00:00:00.000000001Z"),
            ("key", "4"),
            ("quality", "good"),
            ("celsius", "-0.5"),
            ("count", "-9223372036854775808"),
            ("note", "a<b & \u{fffd}"),
            ("image", "AP8="),
            ("ecg", "1 NaN INF"),
            ("ecg_period", "0.005"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read, expected);
        assert_eq!(&*body.name.local, "ward.2");
    }

    #[test]
    fn the_schema_describes_the_event() {
        let flat = flat("urn:t", "2nd.ward", &definition());
        assert_eq!(&*flat.name.local, "_2nd.ward");
        let mut schemas = Schemas::default();
        schemas
            .add("t.xsd", &to_schema("urn:t", std::slice::from_ref(&flat)))
            .unwrap();
        let read = schemas.flat(&flat.name).unwrap();
        let names = |flat: &FlatType| -> Vec<(String, XsdType, Option<String>, bool)> {
            let of = |field: &FlatField| {
                let name = field.name.local.to_string();
                (name, field.data_type, field.unit.clone(), field.list)
            };
            flat.fields.iter().map(of).collect()
        };
        assert_eq!(names(&read), names(&flat));
    }

    #[test]
    fn faults_of_the_file_name_their_key() {
        let cases = [
            ("types = [\"Alarm\"]", "types"),
            ("types = [\"{urn:t}2\"]", "types"),
            ("namespace = \"events\"", "namespace"),
            ("scopes = [\"a b\"]", "scopes"),
            ("port = 70000", "port"),
        ];
        for (keys, key) in cases {
            let text = format!("kind = \"dpws\"\nstreams = [\"a\"]\n{keys}");
            let file = ExporterFile::parse(std::path::Path::new("a.toml"), &text).unwrap();
            let error = file.kind().map(|kind| kind.name).unwrap_err();
            assert_eq!((error.line, error.key.as_str()), (3, key), "{error}");
        }
    }
}
