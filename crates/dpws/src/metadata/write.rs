//! Writing of metadata.

use chappe_xml::{Element, Name, Str};

use super::{
    Host, Hosted, LocalizedString, Metadata, OtherSection, Relationship, ThisDevice, ThisModel,
    WSDL_DIALECT, WsdlSection,
};
use crate::Dialect;
use crate::dialect::METADATA_EXCHANGE;

impl Metadata {
    /// The `mex:Metadata` element in this dialect.
    #[must_use]
    pub fn to_element(&self, dialect: Dialect) -> Element {
        let section = |uri: Str, content: Element| {
            mex("MetadataSection")
                .with_attribute(Name::local("Dialect"), uri)
                .with_child(content)
        };
        let own = |local: &str| Str::Owned(format!("{}/{local}", dialect.dpws()));
        let model = self
            .this_model
            .as_ref()
            .map(|model| this_model(dialect, model));
        let device = self
            .this_device
            .as_ref()
            .map(|device| this_device(dialect, device));
        let related = self
            .relationship
            .as_ref()
            .map(|related| relationship(dialect, related));
        mex("Metadata")
            .with_namespace("mex", METADATA_EXCHANGE)
            .with_namespace(dialect.prefixes()[1].0, dialect.dpws())
            .with_children(model.map(|content| section(own("ThisModel"), content)))
            .with_children(device.map(|content| section(own("ThisDevice"), content)))
            .with_children(related.map(|content| section(own("Relationship"), content)))
            .with_children(
                self.wsdl
                    .iter()
                    .map(|wsdl| section(WSDL_DIALECT.into(), content(dialect, wsdl))),
            )
            .with_children(self.other.iter().map(other))
    }
}

fn mex(local: &'static str) -> Element {
    Element::new(Name::new(METADATA_EXCHANGE, local))
}

fn content(dialect: Dialect, wsdl: &WsdlSection) -> Element {
    match wsdl {
        WsdlSection::Location(location) => mex("Location").with_text(location.clone()),
        WsdlSection::Reference(reference) => {
            let name = Name::new(METADATA_EXCHANGE, "MetadataReference");
            reference.to_element(dialect.addressing(), name)
        }
        WsdlSection::Inline(element) => element.clone(),
    }
}

fn other(section: &OtherSection) -> Element {
    let mut element =
        mex("MetadataSection").with_attribute(Name::local("Dialect"), section.dialect.clone());
    if let Some(identifier) = &section.identifier {
        element = element.with_attribute(Name::local("Identifier"), identifier.clone());
    }
    element.with_children(section.content.clone())
}

fn texts<'a>(
    dialect: Dialect,
    local: &'static str,
    texts: &'a [LocalizedString],
) -> impl Iterator<Item = Element> + 'a {
    texts.iter().map(move |text| {
        let element = Element::new(dialect.dpws_name(local)).with_text(text.text.clone());
        match &text.language {
            Some(language) => {
                let name = Name::new("http://www.w3.org/XML/1998/namespace", "lang");
                element.with_attribute(name, language.clone())
            }
            None => element,
        }
    })
}

fn text(dialect: Dialect, local: &'static str, text: Option<&String>) -> Option<Element> {
    text.map(|text| Element::new(dialect.dpws_name(local)).with_text(text.clone()))
}

fn this_model(dialect: Dialect, model: &ThisModel) -> Element {
    let url = |local, url: &Option<String>| text(dialect, local, url.as_ref());
    Element::new(dialect.dpws_name("ThisModel"))
        .with_children(texts(dialect, "Manufacturer", &model.manufacturer))
        .with_children(url("ManufacturerUrl", &model.manufacturer_url))
        .with_children(texts(dialect, "ModelName", &model.model_name))
        .with_children(url("ModelNumber", &model.model_number))
        .with_children(url("ModelUrl", &model.model_url))
        .with_children(url("PresentationUrl", &model.presentation_url))
        .with_children(model.extensions.iter().cloned())
}

fn this_device(dialect: Dialect, device: &ThisDevice) -> Element {
    Element::new(dialect.dpws_name("ThisDevice"))
        .with_children(texts(dialect, "FriendlyName", &device.friendly_name))
        .with_children(text(
            dialect,
            "FirmwareVersion",
            device.firmware_version.as_ref(),
        ))
        .with_children(text(dialect, "SerialNumber", device.serial_number.as_ref()))
        .with_children(device.extensions.iter().cloned())
}

fn relationship(dialect: Dialect, relationship: &Relationship) -> Element {
    let kind = format!("{}/host", dialect.dpws());
    Element::new(dialect.dpws_name("Relationship"))
        .with_attribute(Name::local("Type"), kind)
        .with_children(relationship.host.iter().map(|known| host(dialect, known)))
        .with_children(
            relationship
                .hosted
                .iter()
                .map(|known| hosted(dialect, known)),
        )
}

fn host(dialect: Dialect, host: &Host) -> Element {
    let version = dialect.addressing();
    let endpoint = host
        .endpoint
        .to_element(version, version.name("EndpointReference"));
    let element = Element::new(dialect.dpws_name("Host")).with_child(endpoint);
    match host.types.is_empty() {
        true => element,
        false => element.with_child(types(dialect, &host.types)),
    }
}

fn hosted(dialect: Dialect, hosted: &Hosted) -> Element {
    let version = dialect.addressing();
    let endpoints = hosted
        .endpoints
        .iter()
        .map(|endpoint| endpoint.to_element(version, version.name("EndpointReference")));
    let id = Element::new(dialect.dpws_name("ServiceId")).with_text(hosted.service_id.clone());
    Element::new(dialect.dpws_name("Hosted"))
        .with_children(endpoints)
        .with_child(types(dialect, &hosted.types))
        .with_child(id)
}

/// A list of QNames with all prefixes declared on the element.
fn types(dialect: Dialect, names: &[Name]) -> Element {
    let mut element = Element::new(dialect.dpws_name("Types"));
    let mut text = String::new();
    for name in names {
        let name = dialect.translate(name);
        if !text.is_empty() {
            text.push(' ');
        }
        if name.namespace.is_empty() {
            text += &name.local;
            continue;
        }
        let bound = element
            .namespaces
            .iter()
            .find(|(_, known)| *known == name.namespace);
        let prefix = match bound {
            Some((prefix, _)) => prefix.clone(),
            None => {
                let fixed = dialect.prefixes();
                let fixed = fixed.iter().find(|(_, known)| *known == name.namespace);
                let prefix: Str = match fixed {
                    Some((prefix, _)) => (*prefix).into(),
                    None => format!("t{}", element.namespaces.len()).into(),
                };
                element = element.with_namespace(prefix.clone(), name.namespace.clone());
                prefix
            }
        };
        text += &format!("{prefix}:{}", name.local);
    }
    element.with_text(text)
}
