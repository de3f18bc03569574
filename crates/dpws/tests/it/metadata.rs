//! Goal: metadata round-trip in both dialects; deviations of devices are reported and harmless.
//! Method: generated values in a whole envelope as text, handwritten documents, arbitrary trees.

use chappe_dpws::Dialect;
use chappe_dpws::metadata::{
    Deviation, GetMetadata, Host, Hosted, LocalizedString, Metadata, OtherSection, Relationship,
    ThisDevice, ThisModel, WsdlSection, get_metadata, localized, transfer_get,
    transfer_get_response,
};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    "[A-Za-z<&äß]{1,8}( [A-Za-z]{1,8})?"
}

fn localized_strings() -> impl Strategy<Value = Vec<LocalizedString>> {
    let one = (text(), proptest::option::of("[a-z]{2}(-[A-Z]{2})?"));
    proptest::collection::vec(
        one.prop_map(|(text, language)| LocalizedString { text, language }),
        1..3,
    )
}

fn uri() -> impl Strategy<Value = String> {
    "(urn:uuid:|http://h/)[a-z0-9]{1,8}"
}

fn endpoint() -> impl Strategy<Value = EndpointReference> {
    (uri(), any::<bool>()).prop_map(|(address, parameter)| EndpointReference {
        address: address.into(),
        reference_parameters: parameter
            .then(|| Element::new(Name::new("urn:p", "Key")).with_text("7"))
            .into_iter()
            .collect(),
    })
}

fn types() -> impl Strategy<Value = Vec<Name>> {
    let name = ("urn:[a-c]", "[A-Z][a-z]{0,5}");
    proptest::collection::vec(
        name.prop_map(|(space, local)| Name::owned(space, local)),
        1..4,
    )
}

prop_compose! {
    fn model()(
        manufacturer in localized_strings(),
        model_name in localized_strings(),
        (manufacturer_url, model_number, model_url, presentation_url) in (
            proptest::option::of(uri()), proptest::option::of(text()),
            proptest::option::of(uri()), proptest::option::of(uri()),
        ),
    ) -> ThisModel {
        ThisModel {
            manufacturer, manufacturer_url, model_name, model_number, model_url, presentation_url,
            extensions: vec![Element::new(Name::new("urn:own", "More"))],
        }
    }
}

prop_compose! {
    fn device()(
        friendly_name in localized_strings(),
        firmware_version in proptest::option::of(text()),
        serial_number in proptest::option::of(text()),
    ) -> ThisDevice {
        ThisDevice { friendly_name, firmware_version, serial_number, extensions: Vec::new() }
    }
}

prop_compose! {
    fn relationship()(
        endpoint in endpoint(),
        host_types in types(),
        hosted in proptest::collection::vec(
            (proptest::collection::vec(endpoint(), 1..3), types(), uri()), 0..3),
    ) -> Relationship {
        let hosted = hosted.into_iter().map(|(endpoints, types, service_id)| Hosted {
            endpoints, types, service_id,
        });
        Relationship { host: Some(Host { endpoint, types: host_types }), hosted: hosted.collect() }
    }
}

fn wsdl() -> impl Strategy<Value = WsdlSection> {
    prop_oneof![
        uri().prop_map(WsdlSection::Location),
        endpoint().prop_map(WsdlSection::Reference),
        Just(WsdlSection::Inline(Element::new(Name::new(
            "http://schemas.xmlsoap.org/wsdl/",
            "definitions"
        )))),
    ]
}

prop_compose! {
    fn metadata()(
        this_model in proptest::option::of(model()),
        this_device in proptest::option::of(device()),
        relationship in proptest::option::of(relationship()),
        wsdl in proptest::collection::vec(wsdl(), 0..3),
        identifier in proptest::option::of(uri()),
    ) -> Metadata {
        let other = OtherSection { dialect: "urn:policy".into(), identifier, content: None };
        Metadata { this_model, this_device, relationship, wsdl, other: vec![other] }
    }
}

/// Removes namespace declarations, which writer and reader may choose differently.
fn strip_namespaces(element: &mut Element) {
    element.namespaces.clear();
    for child in &mut element.children {
        if let chappe_xml::Node::Element(child) = child {
            strip_namespaces(child);
        }
    }
}

fn normalized(mut metadata: Metadata) -> Metadata {
    let model = metadata
        .this_model
        .iter_mut()
        .flat_map(|model| &mut model.extensions);
    model.for_each(strip_namespaces);
    for section in &mut metadata.wsdl {
        match section {
            WsdlSection::Inline(element) => strip_namespaces(element),
            WsdlSection::Reference(to) => to
                .reference_parameters
                .iter_mut()
                .for_each(strip_namespaces),
            WsdlSection::Location(_) => {}
        }
    }
    if let Some(relationship) = &mut metadata.relationship {
        let hosts = relationship.host.iter_mut().map(|host| &mut host.endpoint);
        let hosted = relationship
            .hosted
            .iter_mut()
            .flat_map(|hosted| &mut hosted.endpoints);
        let parameters = hosts
            .chain(hosted)
            .flat_map(|to| &mut to.reference_parameters);
        parameters.for_each(strip_namespaces);
    }
    metadata
}

fn any_tree() -> impl Strategy<Value = Element> {
    let locals = vec![
        "Metadata",
        "MetadataSection",
        "ThisModel",
        "ThisDevice",
        "Relationship",
        "Host",
        "Hosted",
        "Types",
        "EndpointReference",
        "Address",
        "Location",
        "MetadataReference",
        "ServiceId",
        "Manufacturer",
        "GetMetadata",
        "Dialect",
    ];
    let spaces = vec![
        "http://schemas.xmlsoap.org/ws/2004/09/mex",
        "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01",
        "http://schemas.xmlsoap.org/ws/2006/02/devprof",
        "http://www.w3.org/2005/08/addressing",
    ];
    let dialects = vec![
        "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/ThisModel",
        "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Relationship",
        "http://schemas.xmlsoap.org/ws/2006/02/devprof/ThisDevice",
        "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/host",
        "http://schemas.xmlsoap.org/wsdl",
        "/",
    ];
    let node = (
        proptest::sample::select(spaces),
        proptest::sample::select(locals),
        proptest::sample::select(dialects),
        proptest::sample::select(vec!["", "t:X", "u:X :", "x"]),
    )
        .prop_map(|(space, local, dialect, text)| {
            Element::new(Name::new(space, local))
                .with_namespace("t", "urn:t")
                .with_attribute(Name::local("Dialect"), dialect)
                .with_attribute(Name::local("Type"), dialect)
                .with_text(text)
        });
    node.clone().prop_recursive(6, 48, 5, move |inner| {
        let children = proptest::collection::vec(inner, 0..5);
        (node.clone(), children).prop_map(|(element, children)| element.with_children(children))
    })
}

proptest! {
    #[test]
    fn metadata_round_trip(metadata in metadata(), old in any::<bool>()) {
        let dialect = if old { Dialect::V2005 } else { Dialect::V2009 };
        let to = EndpointReference::new("urn:uuid:1");
        let get = transfer_get(dialect.addressing(), &to, "urn:uuid:2");
        let get = Envelope::parse(get.to_text().as_bytes()).unwrap();
        let answer = transfer_get_response(&get, &metadata, "urn:uuid:3").to_text();
        let answer = Envelope::parse(answer.as_bytes()).unwrap();
        prop_assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:2"));
        let (read, read_dialect, deviations) = Metadata::from_element(answer.body().unwrap()).unwrap();
        prop_assert_eq!(deviations, []);
        let has_profile_section = metadata.this_model.is_some() || metadata.this_device.is_some()
            || metadata.relationship.is_some();
        prop_assert!(!has_profile_section || read_dialect == dialect);
        prop_assert_eq!(normalized(read), normalized(metadata));
    }

    #[test]
    fn no_tree_causes_a_panic(tree in any_tree()) {
        let mut root = tree;
        let _ = GetMetadata::from_element(&root);
        root.name = Name::new("http://schemas.xmlsoap.org/ws/2004/09/mex", "Metadata");
        let (metadata, ..) = Metadata::from_element(&root).unwrap();
        let _ = metadata.deviations();
    }

    #[test]
    fn requests_round_trip(
        dialect_uri in proptest::option::of(uri()), identifier in proptest::option::of(uri()),
    ) {
        let dialect_uri = GetMetadata { dialect: dialect_uri, identifier };
        let to = EndpointReference::new("http://h/s");
        let envelope = get_metadata(Dialect::V2009.addressing(), &to, &dialect_uri, "urn:uuid:1");
        let envelope = Envelope::parse(envelope.to_text().as_bytes()).unwrap();
        prop_assert_eq!(GetMetadata::from_element(envelope.body().unwrap()), Some(dialect_uri));
    }
}

#[test]
fn deviations_are_reported() {
    let long = "x".repeat(300);
    let document = format!(
        r#"<m:Metadata xmlns:m="http://schemas.xmlsoap.org/ws/2004/09/mex"
             xmlns:p="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01"
             xmlns:o="http://schemas.xmlsoap.org/ws/2006/02/devprof"
             xmlns:a="http://www.w3.org/2005/08/addressing">
           <m:MetadataSection Dialect="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/ThisDevice">
             <p:ThisDevice><p:FriendlyName>{long}</p:FriendlyName></p:ThisDevice></m:MetadataSection>
           <m:MetadataSection Dialect="http://schemas.xmlsoap.org/ws/2006/02/devprof/ThisDevice">
             <o:ThisDevice><o:FriendlyName>B</o:FriendlyName></o:ThisDevice></m:MetadataSection>
           <m:MetadataSection
             Dialect="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Relationship">
             <p:Relationship Type="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/host">
               <p:Host><p:Types>p:Device nope:T</p:Types></p:Host>
               <p:Hosted><a:EndpointReference><a:Address>http://h/</a:Address>
                 </a:EndpointReference></p:Hosted></p:Relationship></m:MetadataSection>
           <m:MetadataSection Dialect="http://schemas.xmlsoap.org/wsdl"/>
           </m:Metadata>"#
    );
    let root = Element::parse(document.as_bytes()).unwrap();
    let (metadata, dialect, deviations) = Metadata::from_element(&root).unwrap();
    assert_eq!(dialect, Dialect::V2009);
    assert_eq!(metadata.this_device.unwrap().friendly_name[0].text, long);
    assert_eq!(metadata.relationship.unwrap().hosted.len(), 1);
    assert_eq!(
        deviations,
        [
            Deviation::MixedDialects,
            Deviation::Repeated("ThisDevice"),
            Deviation::UnboundType("nope:T".into()),
            Deviation::Unreadable("Host".into()),
            Deviation::Unreadable("MetadataSection http://schemas.xmlsoap.org/wsdl".into()),
            Deviation::FieldTooLong {
                field: "FriendlyName",
                length: 300
            },
            Deviation::Missing("Host"),
            Deviation::Missing("Types"),
            Deviation::Missing("ServiceId"),
        ]
    );
}

#[test]
fn localized_text_falls_back() {
    let text = |text: &str, language: Option<&str>| LocalizedString {
        text: text.into(),
        language: language.map(str::to_owned),
    };
    let texts = [text("Uhr", Some("de-AT")), text("Clock", None)];
    assert_eq!(localized(&texts, "de"), Some("Uhr"));
    assert_eq!(localized(&texts, "fr"), Some("Clock"));
    assert_eq!(localized(&texts[..1], "fr"), Some("Uhr"));
    assert_eq!(localized(&[], "fr"), None);
}

#[test]
fn answer_has_only_selected_sections() {
    let metadata = Metadata {
        this_model: Some(ThisModel::default()),
        wsdl: vec![WsdlSection::Location("http://h/?wsdl".into())],
        ..Metadata::default()
    };
    let select_dialect = |uri: &str| GetMetadata {
        dialect: Some(uri.into()),
        identifier: None,
    };
    let wsdl = select_dialect("http://schemas.xmlsoap.org/wsdl").select(&metadata);
    assert!(wsdl.this_model.is_none() && wsdl.wsdl.len() == 1);
    let model =
        select_dialect("http://schemas.xmlsoap.org/ws/2006/02/devprof/ThisModel").select(&metadata);
    assert!(model.this_model.is_some() && model.wsdl.is_empty());
}

#[test]
fn names_of_types_are_read_up_to_a_number_of_bytes() {
    let space = "n".repeat(1_000);
    let types: String = (0..200).map(|number| format!("t:A{number} ")).collect();
    let hosted = format!(
        "<p:Hosted><a:EndpointReference><a:Address>http://h/s</a:Address></a:EndpointReference>\
         <p:Types>{types}</p:Types><p:ServiceId>urn:s</p:ServiceId></p:Hosted>"
    );
    let dpws = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01";
    let document = format!(
        "<m:Metadata xmlns:m='http://schemas.xmlsoap.org/ws/2004/09/mex' xmlns:p='{dpws}' \
         xmlns:a='http://www.w3.org/2005/08/addressing' xmlns:t='urn:{space}'>\
         <m:MetadataSection Dialect='{dpws}/Relationship'><p:Relationship Type='{dpws}/host'>{}\
         </p:Relationship></m:MetadataSection></m:Metadata>",
        hosted.repeat(20)
    );
    let element = Element::parse(document.as_bytes()).unwrap();
    let (metadata, _, deviations) = Metadata::from_element(&element).unwrap();
    let hosted = metadata.relationship.unwrap().hosted;
    assert_eq!(hosted.len(), 20);
    let types = hosted.iter().flat_map(|service| &service.types);
    let bytes: usize = types.map(|name| name.namespace.len()).sum();
    assert!(
        (30_000..=32 << 10).contains(&bytes),
        "{bytes} bytes of names"
    );
    assert!(deviations.contains(&Deviation::TooMany("Types")));
}
