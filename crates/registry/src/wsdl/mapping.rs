//! Parts of documents as UDDI data.
//!
//! Source: OASIS technical note "Using WSDL in a UDDI Registry", version 2.0, for UDDI version 2. SOAP
//! 1.2 is given the note's tModel of SOAP: it knows no other.

use super::parts::{Binding, PortType, Service, Wire};
use crate::uddi::{
    BindingTemplate, BusinessKey, BusinessService, Endpoint, InstanceDetails, KeyedReference,
    MAX_TEXT_CHARACTERS, OverviewDoc, ServiceKey, TModel, TModelInstanceInfo, TModelKey, TYPES,
    Text, UrlType,
};

/// `uddi-org:wsdl:types`, the kinds of parts.
pub const WSDL_TYPES: TModelKey = TModelKey::new(0x6E09_0AFA_33E5_36EB_81B7_1CA1_8373_F457);
/// `uddi-org:xml:namespace`.
pub const XML_NAMESPACE: TModelKey = TModelKey::new(0xD019_87D1_AB2E_3013_9BE2_2A66_EB99_D824);
/// `uddi-org:xml:localName`.
pub const XML_LOCAL_NAME: TModelKey = TModelKey::new(0x2EC6_5201_9109_3919_9BEC_C9DB_EFCA_CCF6);
/// `uddi-org:wsdl:portTypeReference`, from a binding to its port type.
pub const PORT_TYPE_REFERENCE: TModelKey =
    TModelKey::new(0x082B_0851_25D8_303C_B332_F24A_6D53_E38E);
/// `uddi-org:wsdl:categorization:protocol`.
pub const PROTOCOL: TModelKey = TModelKey::new(0x4DC7_4177_7806_34D9_AECD_33C5_7DC3_A865);
/// `uddi-org:wsdl:categorization:transport`.
pub const TRANSPORT: TModelKey = TModelKey::new(0xE5C4_3936_86E4_37BF_8196_1D04_B35C_0099);
/// `uddi-org:protocol:soap`.
pub const SOAP_PROTOCOL: TModelKey = TModelKey::new(0xAA25_4698_93DE_3870_8DF3_A5C0_75D6_4A0E);
/// `uddi-org:protocol:http`.
pub const HTTP_PROTOCOL: TModelKey = TModelKey::new(0x6E10_B91B_BABC_3442_B8FC_5A3C_8FDE_0794);
/// `uddi-org:http`, the transport.
pub const HTTP_TRANSPORT: TModelKey = TModelKey::new(0x68DE_9E80_AD09_469D_8A37_0884_22BF_BC36);

pub(crate) fn reference(key: TModelKey, name: &str, value: impl Into<String>) -> KeyedReference {
    KeyedReference {
        tmodel_key: Some(key),
        key_name: Some(name.to_owned()),
        key_value: value.into(),
    }
}

/// The reference to the document; an URL that is too long for UDDI is left out.
fn overview(location: Option<&str>) -> Option<OverviewDoc> {
    let url = location.filter(|url| url.chars().count() <= MAX_TEXT_CHARACTERS)?;
    Some(OverviewDoc {
        descriptions: Vec::new(),
        url: Some(url.to_owned()),
    })
}

fn tmodel(key: TModelKey, name: &str, location: Option<&str>, bag: Vec<KeyedReference>) -> TModel {
    TModel {
        key: Some(key),
        name: Text::plain(name),
        descriptions: Vec::new(),
        overview_doc: overview(location),
        identifier_bag: Vec::new(),
        category_bag: bag,
    }
}

/// The tModel of a port type.
pub(crate) fn port_type(key: TModelKey, part: &PortType, location: Option<&str>) -> TModel {
    let bag = vec![
        reference(XML_NAMESPACE, "portType namespace", &*part.name.namespace),
        reference(WSDL_TYPES, "WSDL type", "portType"),
    ];
    tmodel(key, &part.name.local, location, bag)
}

/// The tModel of a binding; `port_type` is that of its port type, if it is known.
pub(crate) fn binding(
    key: TModelKey,
    part: &Binding,
    port_type: Option<TModelKey>,
    location: Option<&str>,
) -> TModel {
    let mut bag = vec![
        reference(XML_NAMESPACE, "binding namespace", &*part.name.namespace),
        reference(WSDL_TYPES, "WSDL type", "binding"),
    ];
    let port_type = port_type.map(|key| key.to_string());
    bag.extend(port_type.map(|key| reference(PORT_TYPE_REFERENCE, "portType reference", key)));
    let protocol = match part.wire {
        Wire::Soap11 | Wire::Soap12 => Some((SOAP_PROTOCOL, "SOAP protocol")),
        Wire::Http => Some((HTTP_PROTOCOL, "HTTP protocol")),
        Wire::Other => None,
    };
    bag.extend(protocol.map(|(key, name)| reference(PROTOCOL, name, key.to_string())));
    if part.is_over_http {
        bag.push(reference(
            TRANSPORT,
            "HTTP transport",
            HTTP_TRANSPORT.to_string(),
        ));
    }
    bag.push(reference(TYPES, "uddi-org:types", "wsdlSpec"));
    tmodel(key, &part.name.local, location, bag)
}

/// The categories of a service.
pub(crate) fn service_bag(part: &Service) -> Vec<KeyedReference> {
    vec![
        reference(WSDL_TYPES, "WSDL type", "service"),
        reference(XML_NAMESPACE, "service namespace", &*part.name.namespace),
        reference(XML_LOCAL_NAME, "service local name", &*part.name.local),
    ]
}

/// The service of a document; `tmodels` gives the tModels of a binding and of its port type. A port without an
/// address has no binding in UDDI.
pub(crate) fn service(
    key: ServiceKey,
    business: BusinessKey,
    part: &Service,
    tmodels: impl Fn(&oxrdf::NamedNode) -> (Option<TModelKey>, Option<TModelKey>),
) -> BusinessService {
    let bindings = part.ports.iter().filter_map(|port| {
        let (of_binding, of_port_type) = port.binding.as_ref().map(&tmodels).unwrap_or_default();
        let infos = of_binding.map(|key| instance(key, Some(&port.name)));
        let infos = infos
            .into_iter()
            .chain(of_port_type.map(|key| instance(key, None)));
        Some(template(port.address.as_ref()?, infos.collect()))
    });
    BusinessService {
        key: Some(key),
        business_key: Some(business),
        names: vec![Text::plain(&*part.name.local)],
        descriptions: Vec::new(),
        bindings: bindings.collect(),
        category_bag: service_bag(part),
    }
}

/// The use of a tModel by a port: of its binding with the port's local name, or of its port type.
pub(crate) fn instance(key: TModelKey, port: Option<&str>) -> TModelInstanceInfo {
    let details = port.map(|port| InstanceDetails {
        descriptions: Vec::new(),
        overview_doc: None,
        parameters: Some(port.to_owned()),
    });
    TModelInstanceInfo {
        tmodel_key: key,
        descriptions: Vec::new(),
        details,
    }
}

/// A binding at an address.
pub(crate) fn template(address: &str, tmodels: Vec<TModelInstanceInfo>) -> BindingTemplate {
    let scheme = address.split(':').next().unwrap_or_default();
    let url_type = match scheme.to_ascii_lowercase().as_str() {
        "http" => UrlType::Http,
        "https" => UrlType::Https,
        "ftp" => UrlType::Ftp,
        "mailto" => UrlType::Mailto,
        _ => UrlType::Other,
    };
    BindingTemplate {
        key: None,
        service_key: None,
        descriptions: Vec::new(),
        endpoint: Endpoint::AccessPoint {
            url_type,
            address: address.to_owned(),
        },
        tmodels,
    }
}
