//! Requests from XML. [`super::schema::check`] has checked their structure.

use chappe_xml::{Element, Name};

use super::request::{GENERIC, Message, NAMESPACE, NAMESPACES, Port, Request, XML_NAMESPACE};
use super::schema;
use crate::uddi::assertion::{CompletionStatus, FindRelatedBusinesses};
use crate::uddi::error::{Error, ErrorCode, KeyType};
use crate::uddi::find::{FindBinding, FindBusiness, FindService, FindTModel};
use crate::uddi::key::{BusinessKey, Key, ServiceKey, TModelKey};
use crate::uddi::qualifier::{FindCall, FindQualifiers};
use crate::uddi::taxonomy::Values;
use crate::uddi::value::{
    Address, AddressLine, BindingTemplate, BusinessEntity, BusinessService, Contact, DiscoveryUrl,
    Endpoint, InstanceDetails, KeyedReference, Language, OverviewDoc, PublisherAssertion,
    Reachable, TModel, TModelInstanceInfo, Text, UrlType,
};

/// An element of a request.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Element);

impl<'a> Node<'a> {
    fn attribute(self, local: &'static str) -> Option<&'a str> {
        self.0.attribute(&Name::local(local))
    }

    /// An attribute of any text; absent and empty differ.
    fn optional(self, local: &'static str) -> Option<String> {
        self.attribute(local).map(str::to_owned)
    }

    fn required(self, local: &'static str) -> String {
        self.optional(local).unwrap_or_default()
    }

    fn all(self, local: &'static str) -> impl Iterator<Item = Node<'a>> {
        let children = self.0.elements();
        children
            .filter(move |child| child.name.local == local)
            .map(Node)
    }

    fn one(self, local: &'static str) -> Option<Node<'a>> {
        self.all(local).next()
    }

    fn text(self) -> String {
        trimmed(&self.0.text()).to_owned()
    }

    fn text_of(self, local: &'static str) -> Option<String> {
        self.one(local).map(Node::text)
    }

    fn each<T>(
        self,
        local: &'static str,
        read: impl Fn(Node<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.all(local).map(read).collect()
    }

    /// The children `local` of the child `container`.
    fn inside<T>(
        self,
        container: &'static str,
        local: &'static str,
        read: impl Fn(Node<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let container = self.one(container);
        container.map_or_else(|| Ok(Vec::new()), |one| one.each(local, read))
    }
}

/// Without the white space of XML around it. Other blanks, such as a no-break space, are data.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

fn parse_key<K: Key>(text: &str) -> Result<K, Error> {
    let text = text.trim();
    K::from_text(text).ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        Error::unknown_key(K::TYPE, format!("{shown:?}"))
    })
}

/// The key in an attribute; an empty one is none.
fn key<K: Key>(node: Node<'_>, local: &'static str) -> Result<Option<K>, Error> {
    let text = node.attribute(local).map(str::trim);
    let text = text.filter(|text| !text.is_empty());
    text.map(parse_key).transpose()
}

/// The key in an element's text.
fn key_text<K: Key>(node: Node<'_>) -> Result<K, Error> {
    parse_key(&node.text())
}

fn key_of<K: Key>(node: Node<'_>, local: &'static str) -> Result<K, Error> {
    parse_key(&node.text_of(local).unwrap_or_default())
}

fn text(node: Node<'_>) -> Result<Text, Error> {
    let tag = node.0.attribute(&Name::new(XML_NAMESPACE, "lang"));
    let tag = tag.map(str::trim).filter(|tag| !tag.is_empty());
    let language = tag.map(|tag| {
        Language::parse(tag).ok_or_else(|| {
            let shown: String = tag.chars().take(80).collect();
            let detail = format!("xml:lang {shown:?} is not a language tag");
            Error::new(ErrorCode::LanguageError, detail)
        })
    });
    Ok(Text {
        language: language.transpose()?,
        text: node.text(),
    })
}

fn reference(node: Node<'_>) -> Result<KeyedReference, Error> {
    Ok(KeyedReference {
        tmodel_key: key(node, "tModelKey")?,
        key_name: node.optional("keyName"),
        key_value: node.required("keyValue"),
    })
}

fn bag(node: Node<'_>, container: &'static str) -> Result<Vec<KeyedReference>, Error> {
    node.inside(container, "keyedReference", reference)
}

fn discovery_url(node: Node<'_>) -> Result<DiscoveryUrl, Error> {
    Ok(DiscoveryUrl {
        use_type: node.required("useType"),
        url: node.text(),
    })
}

fn reachable(node: Node<'_>) -> Result<Reachable, Error> {
    Ok(Reachable {
        use_type: node.optional("useType"),
        value: node.text(),
    })
}

fn address(node: Node<'_>) -> Result<Address, Error> {
    Ok(Address {
        use_type: node.optional("useType"),
        sort_code: node.optional("sortCode"),
        tmodel_key: key(node, "tModelKey")?,
        lines: node.each("addressLine", |line| {
            Ok(AddressLine {
                key_name: line.optional("keyName"),
                key_value: line.optional("keyValue"),
                text: line.text(),
            })
        })?,
    })
}

fn contact(node: Node<'_>) -> Result<Contact, Error> {
    Ok(Contact {
        use_type: node.optional("useType"),
        descriptions: node.each("description", text)?,
        person_name: node.text_of("personName").unwrap_or_default(),
        phones: node.each("phone", reachable)?,
        emails: node.each("email", reachable)?,
        addresses: node.each("address", address)?,
    })
}

fn overview(node: Node<'_>) -> Result<OverviewDoc, Error> {
    Ok(OverviewDoc {
        descriptions: node.each("description", text)?,
        url: node.text_of("overviewURL"),
    })
}

fn instance(node: Node<'_>) -> Result<TModelInstanceInfo, Error> {
    let details = |node: Node<'_>| {
        Ok::<_, Error>(InstanceDetails {
            descriptions: node.each("description", text)?,
            overview_doc: node.one("overviewDoc").map(overview).transpose()?,
            parameters: node.text_of("instanceParms"),
        })
    };
    Ok(TModelInstanceInfo {
        tmodel_key: parse_key(node.attribute("tModelKey").unwrap_or_default())?,
        descriptions: node.each("description", text)?,
        details: node.one("instanceDetails").map(details).transpose()?,
    })
}

fn endpoint(node: Node<'_>) -> Result<Endpoint, Error> {
    if let Some(redirector) = node.one("hostingRedirector") {
        let key = redirector.attribute("bindingKey").unwrap_or_default();
        return Ok(Endpoint::HostingRedirector(parse_key(key)?));
    }
    let point = node.one("accessPoint");
    let url_type = point.and_then(|point| point.attribute("URLType"));
    let url_type = url_type.unwrap_or_default().trim();
    let url_type = UrlType::from_word(url_type).ok_or_else(|| {
        let shown: String = url_type.chars().take(80).collect();
        let detail = format!("the URLType {shown:?} is not known");
        Error::new(ErrorCode::ValueNotAllowed, detail)
    })?;
    Ok(Endpoint::AccessPoint {
        url_type,
        address: point.map(Node::text).unwrap_or_default(),
    })
}

fn binding(node: Node<'_>) -> Result<BindingTemplate, Error> {
    Ok(BindingTemplate {
        key: key(node, "bindingKey")?,
        service_key: key(node, "serviceKey")?,
        descriptions: node.each("description", text)?,
        endpoint: endpoint(node)?,
        tmodels: node.inside("tModelInstanceDetails", "tModelInstanceInfo", instance)?,
    })
}

fn service(node: Node<'_>) -> Result<BusinessService, Error> {
    Ok(BusinessService {
        key: key(node, "serviceKey")?,
        business_key: key(node, "businessKey")?,
        names: node.each("name", text)?,
        descriptions: node.each("description", text)?,
        bindings: node.inside("bindingTemplates", "bindingTemplate", binding)?,
        category_bag: bag(node, "categoryBag")?,
    })
}

fn business(node: Node<'_>) -> Result<BusinessEntity, Error> {
    Ok(BusinessEntity {
        key: key(node, "businessKey")?,
        discovery_urls: node.inside("discoveryURLs", "discoveryURL", discovery_url)?,
        names: node.each("name", text)?,
        descriptions: node.each("description", text)?,
        contacts: node.inside("contacts", "contact", contact)?,
        services: node.inside("businessServices", "businessService", service)?,
        identifier_bag: bag(node, "identifierBag")?,
        category_bag: bag(node, "categoryBag")?,
    })
}

fn tmodel(node: Node<'_>) -> Result<TModel, Error> {
    let name = node.one("name").map(text).transpose()?;
    Ok(TModel {
        key: key(node, "tModelKey")?,
        name: name.unwrap_or_else(|| Text::plain("")),
        descriptions: node.each("description", text)?,
        overview_doc: node.one("overviewDoc").map(overview).transpose()?,
        identifier_bag: bag(node, "identifierBag")?,
        category_bag: bag(node, "categoryBag")?,
    })
}

fn assertion(node: Node<'_>) -> Result<PublisherAssertion, Error> {
    let read = node.one("keyedReference").map(reference).transpose()?;
    Ok(PublisherAssertion {
        from_key: key_of(node, "fromKey")?,
        to_key: key_of(node, "toKey")?,
        reference: read.unwrap_or(KeyedReference {
            tmodel_key: None,
            key_name: None,
            key_value: String::new(),
        }),
    })
}

/// An assertion that is made: all parts of its reference are there, if only empty (API, add_publisherAssertions).
fn whole_assertion(node: Node<'_>) -> Result<PublisherAssertion, Error> {
    let reference = node.one("keyedReference");
    let absent = ["tModelKey", "keyName"]
        .into_iter()
        .find(|local| reference.is_some_and(|reference| reference.attribute(local).is_none()));
    match absent {
        Some(local) => {
            let detail = format!("the keyedReference of an assertion has no {local}");
            Err(Error::new(ErrorCode::FatalError, detail))
        }
        None => assertion(node),
    }
}

/// What all find calls have: the qualifiers, and the number of rows. One below 1 is none.
fn options(node: Node<'_>, call: FindCall) -> Result<(FindQualifiers, Option<usize>), Error> {
    let words = node.inside("findQualifiers", "findQualifier", |word| Ok(word.text()))?;
    let qualifiers = FindQualifiers::parse(call, words.iter().map(String::as_str))?;
    let rows = node.attribute("maxRows").map(str::trim);
    let rows = rows.filter(|rows| !rows.is_empty()).map(|rows| {
        rows.parse::<i64>().map_err(|_| {
            let shown: String = rows.chars().take(80).collect();
            let detail = format!("maxRows {shown:?} is not a number");
            Error::new(ErrorCode::FatalError, detail)
        })
    });
    let rows = rows.transpose()?.filter(|rows| *rows > 0);
    Ok((qualifiers, rows.and_then(|rows| usize::try_from(rows).ok())))
}

fn tmodel_bag(node: Node<'_>) -> Result<Vec<TModelKey>, Error> {
    node.inside("tModelBag", "tModelKey", key_text)
}

/// Reads the element in the body of a request.
pub(super) fn message(body: &Element, port: Port) -> Result<Message, Error> {
    let namespace = &*body.name.namespace;
    if namespace != NAMESPACE {
        let shown: String = namespace.chars().take(80).collect();
        let (code, detail) = match namespace.starts_with(NAMESPACES) {
            true => (ErrorCode::UnrecognizedVersion, "another version of UDDI"),
            false => (ErrorCode::Unsupported, "not of UDDI"),
        };
        let detail = format!("the request in namespace {shown:?} is {detail}");
        return Err(Error::new(code, detail));
    }
    if let Some(generic) = schema::other_version(body) {
        let shown: String = generic.chars().take(80).collect();
        let detail = format!("generic {shown:?} is not {GENERIC:?}");
        return Err(Error::new(ErrorCode::UnrecognizedVersion, detail));
    }
    let name = schema::call(port, &body.name.local).ok_or_else(|| {
        let shown: String = body.name.local.chars().take(80).collect();
        let detail = format!("the request {shown} is not supported at this address");
        Error::new(ErrorCode::Unsupported, detail)
    })?;
    schema::check(body, name)?;
    let node = Node(body);
    Ok(Message {
        name,
        token: node.text_of("authInfo").filter(|token| !token.is_empty()),
        request: request(node, name)?,
    })
}

fn request(node: Node<'_>, name: &str) -> Result<Request, Error> {
    if node.one("uploadRegister").is_some() {
        let detail = "uploadRegister is not supported: send the entity itself";
        return Err(Error::new(ErrorCode::Unsupported, detail));
    }
    Ok(match name {
        "find_binding" => {
            let (qualifiers, max_rows) = options(node, FindCall::Binding)?;
            let Some(service_key) = key::<ServiceKey>(node, "serviceKey")? else {
                return Err(Error::unknown_key(KeyType::Service, "\"\""));
            };
            Request::FindBinding(FindBinding {
                max_rows,
                qualifiers,
                service_key,
                tmodel_bag: tmodel_bag(node)?,
            })
        }
        "find_business" => {
            let (qualifiers, max_rows) = options(node, FindCall::Business)?;
            Request::FindBusiness(FindBusiness {
                max_rows,
                qualifiers,
                names: node.each("name", text)?,
                discovery_urls: node.inside("discoveryURLs", "discoveryURL", discovery_url)?,
                identifier_bag: bag(node, "identifierBag")?,
                category_bag: bag(node, "categoryBag")?,
                tmodel_bag: tmodel_bag(node)?,
            })
        }
        "find_relatedBusinesses" => {
            let (qualifiers, max_rows) = options(node, FindCall::RelatedBusinesses)?;
            Request::FindRelatedBusinesses(FindRelatedBusinesses {
                max_rows,
                qualifiers,
                business_key: key_of(node, "businessKey")?,
                reference: node.one("keyedReference").map(reference).transpose()?,
            })
        }
        "find_service" => {
            let (qualifiers, max_rows) = options(node, FindCall::Service)?;
            Request::FindService(FindService {
                max_rows,
                qualifiers,
                business_key: key::<BusinessKey>(node, "businessKey")?,
                names: node.each("name", text)?,
                category_bag: bag(node, "categoryBag")?,
                tmodel_bag: tmodel_bag(node)?,
            })
        }
        "find_tModel" => {
            let (qualifiers, max_rows) = options(node, FindCall::TModel)?;
            Request::FindTModel(FindTModel {
                max_rows,
                qualifiers,
                name: node.one("name").map(text).transpose()?,
                identifier_bag: bag(node, "identifierBag")?,
                category_bag: bag(node, "categoryBag")?,
            })
        }
        "get_bindingDetail" => Request::BindingDetail(node.each("bindingKey", key_text)?),
        "get_businessDetail" => Request::BusinessDetail(node.each("businessKey", key_text)?),
        "get_businessDetailExt" => Request::BusinessDetailExt(node.each("businessKey", key_text)?),
        "get_serviceDetail" => Request::ServiceDetail(node.each("serviceKey", key_text)?),
        "get_tModelDetail" => Request::TModelDetail(node.each("tModelKey", key_text)?),
        "validate_values" => Request::ValidateValues(Values {
            businesses: node.each("businessEntity", business)?,
            services: node.each("businessService", service)?,
            tmodels: node.each("tModel", tmodel)?,
        }),
        "get_authToken" => Request::AuthToken {
            user_id: node.required("userID"),
            credential: node.required("cred"),
        },
        "discard_authToken" => Request::DiscardAuthToken,
        "save_binding" => Request::SaveBinding(node.each("bindingTemplate", binding)?),
        "save_business" => Request::SaveBusiness(node.each("businessEntity", business)?),
        "save_service" => Request::SaveService(node.each("businessService", service)?),
        "save_tModel" => Request::SaveTModel(node.each("tModel", tmodel)?),
        "delete_binding" => Request::DeleteBinding(node.each("bindingKey", key_text)?),
        "delete_business" => Request::DeleteBusiness(node.each("businessKey", key_text)?),
        "delete_service" => Request::DeleteService(node.each("serviceKey", key_text)?),
        "delete_tModel" => Request::DeleteTModel(node.each("tModelKey", key_text)?),
        "add_publisherAssertions" => {
            Request::AddAssertions(node.each("publisherAssertion", whole_assertion)?)
        }
        "delete_publisherAssertions" => {
            Request::DeleteAssertions(node.each("publisherAssertion", assertion)?)
        }
        "set_publisherAssertions" => {
            Request::SetAssertions(node.each("publisherAssertion", whole_assertion)?)
        }
        "get_publisherAssertions" => Request::Assertions,
        "get_assertionStatusReport" => {
            let asked = node.text_of("completionStatus");
            let asked = asked.filter(|asked| !asked.is_empty());
            let asked = asked.map(|asked| CompletionStatus::parse(&asked));
            Request::AssertionStatusReport(asked.transpose()?)
        }
        _ => Request::RegisteredInfo,
    })
}

/// Reads a `businessEntity` that stands alone, with the name in `authorizedName`.
pub(crate) fn business_alone(element: &Element) -> Result<(BusinessEntity, Option<String>), Error> {
    schema::check_element(element)?;
    let node = Node(element);
    Ok((business(node)?, node.optional("authorizedName")))
}

/// Reads a `tModel` that stands alone, with the name in `authorizedName`.
pub(crate) fn tmodel_alone(element: &Element) -> Result<(TModel, Option<String>), Error> {
    schema::check_element(element)?;
    let node = Node(element);
    Ok((tmodel(node)?, node.optional("authorizedName")))
}

/// Reads a `publisherAssertion` that stands alone.
pub(crate) fn assertion_alone(element: &Element) -> Result<PublisherAssertion, Error> {
    schema::check_element(element)?;
    assertion(Node(element))
}
