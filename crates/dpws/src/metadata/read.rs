//! Reading of metadata in both dialects.

use chappe_soap::{AddressingVersion, EndpointReference};
use chappe_xml::{Element, Name};

use super::{
    Deviation, Host, Hosted, LocalizedString, Metadata, OtherSection, ThisDevice, ThisModel,
    WSDL_DIALECT, WsdlSection,
};
use crate::Dialect;
use crate::dialect::METADATA_EXCHANGE;

/// Characters read from any text. Default 4,096: 16 times the profile's limit.
const TEXT_CHARS_MAX: usize = 4_096;
/// Elements read of one kind: hosted services, languages, types, sections. Default 256.
const ELEMENTS_MAX: usize = 256;

/// Bytes of all names of types with their namespaces. Default 32 KiB: five times what the largest device
/// has. A name takes four bytes of the document, and may have a namespace of a kilobyte.
const TYPES_BYTES_MAX: usize = 32 << 10;

/// Collects deviations while reading.
struct Reader {
    dialect: Dialect,
    deviations: Vec<Deviation>,
    type_bytes_left: usize,
}

impl Metadata {
    /// Parses a `mex:Metadata` element that carries the namespace declarations in scope, like a
    /// body's child.
    ///
    /// `None` for another element. The first section with a dialect determines the result's
    /// dialect.
    #[must_use]
    pub fn from_element(element: &Element) -> Option<(Self, Dialect, Vec<Deviation>)> {
        if !element.name.is(METADATA_EXCHANGE, "Metadata") {
            return None;
        }
        let dialects: Vec<_> = element
            .elements()
            .filter_map(section_dialect)
            .filter_map(|uri| Dialect::of_namespace(uri.rsplit_once('/')?.0))
            .collect();
        let dialect = dialects.first().copied().unwrap_or_default();
        let mut reader = Reader {
            dialect,
            deviations: Vec::new(),
            type_bytes_left: TYPES_BYTES_MAX,
        };
        if dialects.iter().any(|other| *other != dialect) {
            reader.deviations.push(Deviation::MixedDialects);
        }
        let mut metadata = Self::default();
        for (index, section) in element.elements().enumerate() {
            if index == ELEMENTS_MAX {
                reader
                    .deviations
                    .push(Deviation::TooMany("MetadataSection"));
                break;
            }
            reader.section(&mut metadata, element, section);
        }
        reader.deviations.extend(metadata.deviations());
        Some((metadata, dialect, reader.deviations))
    }
}

fn section_dialect(section: &Element) -> Option<&str> {
    if !section.name.is(METADATA_EXCHANGE, "MetadataSection") {
        return None;
    }
    section.attribute(&Name::local("Dialect")).map(str::trim)
}

fn clip(text: &str) -> String {
    text.trim().chars().take(TEXT_CHARS_MAX).collect()
}

/// An endpoint reference in either version of WS-Addressing.
fn endpoint(element: &Element) -> Option<EndpointReference> {
    let versions = [AddressingVersion::V200508, AddressingVersion::V200408];
    let mut found = versions
        .into_iter()
        .filter_map(|version| EndpointReference::from_element(version, element).ok());
    found.next().filter(|endpoint| !endpoint.address.is_empty())
}

fn endpoints(element: &Element) -> impl Iterator<Item = EndpointReference> + '_ {
    let versions = [AddressingVersion::V200508, AddressingVersion::V200408];
    let is_reference = move |child: &&Element| {
        versions
            .iter()
            .any(|version| child.name == version.name("EndpointReference"))
    };
    element.elements().filter(is_reference).filter_map(endpoint)
}

impl Reader {
    fn section(&mut self, metadata: &mut Metadata, root: &Element, section: &Element) {
        let Some(uri) = section_dialect(section) else {
            self.unreadable(section);
            return;
        };
        let content = section.elements().next();
        let profile_section = uri
            .rsplit_once('/')
            .filter(|(namespace, _)| Dialect::of_namespace(namespace).is_some());
        let in_profile =
            |content: &&Element| Dialect::of_namespace(&content.name.namespace).is_some();
        match (
            profile_section.map(|(_, local)| local),
            content.filter(in_profile),
        ) {
            (Some("ThisModel"), Some(content)) if content.name.local == "ThisModel" => {
                let read = self.this_model(content);
                self.set_once(&mut metadata.this_model, "ThisModel", read);
            }
            (Some("ThisDevice"), Some(content)) if content.name.local == "ThisDevice" => {
                let read = self.this_device(content);
                self.set_once(&mut metadata.this_device, "ThisDevice", read);
            }
            (Some("Relationship"), Some(content)) if content.name.local == "Relationship" => {
                self.relationship(metadata, &[root, section, content]);
            }
            (Some(_), _) => self.unreadable(section),
            (None, _) if is_wsdl(uri) => match content.and_then(wsdl) {
                Some(wsdl) => metadata.wsdl.push(wsdl),
                None => self.unreadable(section),
            },
            (None, _) => metadata.other.push(OtherSection {
                dialect: clip(uri),
                identifier: section.attribute(&Name::local("Identifier")).map(clip),
                content: content.cloned(),
            }),
        }
    }

    fn unreadable(&mut self, element: &Element) {
        let uri = element
            .attribute(&Name::local("Dialect"))
            .unwrap_or_default();
        let element = format!("{} {}", element.name.local, clip(uri));
        self.deviations
            .push(Deviation::Unreadable(element.trim().to_owned()));
    }

    fn set_once<T>(&mut self, slot: &mut Option<T>, name: &'static str, value: T) {
        match slot {
            Some(_) => self.deviations.push(Deviation::Repeated(name)),
            None => *slot = Some(value),
        }
    }

    /// The children with this local name in a namespace of the profile.
    fn texts(&mut self, parent: &Element, local: &'static str) -> Vec<LocalizedString> {
        let language = Name::new("http://www.w3.org/XML/1998/namespace", "lang");
        let mut read: Vec<_> = profile_children(parent, local)
            .take(ELEMENTS_MAX + 1)
            .map(|text| LocalizedString {
                text: clip(&text.text()),
                language: text.attribute(&language).map(clip),
            })
            .collect();
        if read.len() > ELEMENTS_MAX {
            read.truncate(ELEMENTS_MAX);
            self.deviations.push(Deviation::TooMany(local));
        }
        read
    }

    fn text(&mut self, parent: &Element, local: &'static str) -> Option<String> {
        let mut texts = profile_children(parent, local).map(|text| clip(&text.text()));
        let first = texts.next();
        if texts.next().is_some() {
            self.deviations.push(Deviation::Repeated(local));
        }
        first.filter(|text| !text.is_empty())
    }

    fn this_model(&mut self, element: &Element) -> ThisModel {
        ThisModel {
            manufacturer: self.texts(element, "Manufacturer"),
            manufacturer_url: self.text(element, "ManufacturerUrl"),
            model_name: self.texts(element, "ModelName"),
            model_number: self.text(element, "ModelNumber"),
            model_url: self.text(element, "ModelUrl"),
            presentation_url: self.text(element, "PresentationUrl"),
            extensions: extensions(element),
        }
    }

    fn this_device(&mut self, element: &Element) -> ThisDevice {
        ThisDevice {
            friendly_name: self.texts(element, "FriendlyName"),
            firmware_version: self.text(element, "FirmwareVersion"),
            serial_number: self.text(element, "SerialNumber"),
            extensions: extensions(element),
        }
    }

    /// `path` ends with the Relationship element.
    fn relationship(&mut self, metadata: &mut Metadata, path: &[&Element; 3]) {
        let [_, _, element] = path;
        let kind = element
            .attribute(&Name::local("Type"))
            .unwrap_or_default()
            .trim();
        let host = Dialect::ALL.iter().any(|dialect| {
            kind.strip_prefix(dialect.dpws())
                .is_some_and(|rest| rest == "/host")
        });
        if !host {
            self.deviations.push(Deviation::Unreadable(format!(
                "Relationship {}",
                clip(kind)
            )));
            return;
        }
        let mut read = metadata.relationship.take().unwrap_or_default();
        for child in profile_children(element, "Host") {
            let types = self.types(path, child);
            match endpoints(child).next() {
                Some(endpoint) => self.set_once(&mut read.host, "Host", Host { endpoint, types }),
                None => self.unreadable(child),
            }
        }
        for child in profile_children(element, "Hosted") {
            if read.hosted.len() == ELEMENTS_MAX {
                self.deviations.push(Deviation::TooMany("Hosted"));
                break;
            }
            let id = profile_children(child, "ServiceId").next();
            let service_id = id.map(|id| clip(&id.text())).unwrap_or_default();
            let endpoints = self.endpoints(child, &service_id);
            read.hosted.push(Hosted {
                endpoints,
                types: self.types(path, child),
                service_id,
            });
        }
        metadata.relationship = Some(read);
    }

    /// The valid endpoints of a service.
    fn endpoints(&mut self, hosted: &Element, service_id: &str) -> Vec<EndpointReference> {
        let is_reference = |child: &&Element| child.name.local == "EndpointReference";
        let read: Vec<_> = endpoints(hosted).take(ELEMENTS_MAX).collect();
        if read.len() < hosted.elements().filter(is_reference).count() {
            let element = format!("EndpointReference of {service_id}");
            self.deviations.push(Deviation::Unreadable(element));
        }
        read
    }

    fn types(&mut self, path: &[&Element; 3], parent: &Element) -> Vec<Name> {
        let [root, section, relationship] = path;
        let ancestors = [*root, *section, *relationship, parent];
        let mut types = Vec::new();
        'names: for element in profile_children(parent, "Types") {
            for text in element.text().split_whitespace() {
                if types.len() == ELEMENTS_MAX {
                    self.deviations.push(Deviation::TooMany("Types"));
                    break 'names;
                }
                match element.resolve(&ancestors, text) {
                    Some(name) => {
                        let bytes = name.namespace.len() + name.local.len();
                        let Some(left) = self.type_bytes_left.checked_sub(bytes) else {
                            self.deviations.push(Deviation::TooMany("Types"));
                            break 'names;
                        };
                        self.type_bytes_left = left;
                        types.push(name);
                    }
                    None => self.deviations.push(Deviation::UnboundType(clip(text))),
                }
            }
        }
        // Types of the profile are translated to the message's dialect.
        types
            .iter()
            .map(|name| self.dialect.translate(name))
            .collect()
    }
}

fn profile_children<'a>(
    parent: &'a Element,
    local: &'static str,
) -> impl Iterator<Item = &'a Element> + 'a {
    parent.elements().filter(move |child| {
        child.name.local == local && Dialect::of_namespace(&child.name.namespace).is_some()
    })
}

fn extensions(element: &Element) -> Vec<Element> {
    let foreign = |child: &&Element| Dialect::of_namespace(&child.name.namespace).is_none();
    let foreign = element.elements().filter(foreign).take(ELEMENTS_MAX);
    foreign.cloned().collect()
}

/// Whether this is the dialect of WSDL, with or without trailing slash.
pub(super) fn is_wsdl(uri: &str) -> bool {
    uri == WSDL_DIALECT || WSDL_DIALECT.strip_suffix('/') == Some(uri)
}

fn wsdl(content: &Element) -> Option<WsdlSection> {
    if content.name.is(METADATA_EXCHANGE, "Location") {
        let location = clip(&content.text());
        return (!location.is_empty()).then_some(WsdlSection::Location(location));
    }
    if content.name.is(METADATA_EXCHANGE, "MetadataReference") {
        return endpoint(content).map(WsdlSection::Reference);
    }
    let inline = content.name.is(chappe_soap::wsdl::NAMESPACE, "definitions");
    inline.then(|| WsdlSection::Inline(content.clone()))
}
