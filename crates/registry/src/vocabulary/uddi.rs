//! The IRIs that describe UDDI data, documented in docs/reference/registry-graph.md.
//!
//! Local names are those of the elements and attributes of the UDDI 2.0 schema. An element that
//! holds others is a blank node; one that holds only text is a literal.

use oxrdf::NamedNodeRef;

/// Namespace of the terms.
pub const NAMESPACE: &str = "https://chappe.example/ns/uddi#";

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $local:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = concat!("{https://chappe.example/ns/uddi#}", $local);)*
    };
}

types! {
    /// Type of the entity of a businessEntity.
    BUSINESS_TYPE = "businessEntity";
    /// Type of the entity of a businessService.
    SERVICE_TYPE = "businessService";
    /// Type of the entity of a bindingTemplate.
    BINDING_TYPE = "bindingTemplate";
    /// Type of the entity of a tModel.
    TMODEL_TYPE = "tModel";
    /// Type of the entity of a publisherAssertion.
    ASSERTION_TYPE = "publisherAssertion";
}

macro_rules! own {
    ($($(#[$doc:meta])* $name:ident = $local:literal;)*) => {
        $($(#[$doc])* pub const $name: NamedNodeRef<'static> =
            NamedNodeRef::new_unchecked(concat!("https://chappe.example/ns/uddi#", $local));)*
    };
}

/// The time of the last save, an `xsd:dateTime` in UTC with milliseconds.
pub const MODIFIED: NamedNodeRef<'static> =
    NamedNodeRef::new_unchecked("http://purl.org/dc/terms/modified");

own! {
    /// A name, a literal with its language.
    NAME = "name";
    /// A description, a literal with its language.
    DESCRIPTION = "description";
    /// The business of a service, or the business from whose services a projection is.
    BUSINESS_KEY = "businessKey";
    /// The service of a binding, or the service that is projected.
    SERVICE_KEY = "serviceKey";
    /// The tModel of a keyed reference, of an address or of a tModelInstanceInfo.
    TMODEL_KEY = "tModelKey";
    /// The position of a service in its business, or of a binding in its service, an integer.
    POSITION = "position";
    /// A service of another business that this business shows, a blank node.
    PROJECTION = "serviceProjection";
    /// A discovery URL, a blank node.
    DISCOVERY_URL = "discoveryURL";
    /// The text of a URL, phone, address or line in its blank node.
    VALUE = "value";
    /// The kind of use.
    USE_TYPE = "useType";
    /// A contact, a blank node.
    CONTACT = "contact";
    /// The name of a person.
    PERSON_NAME = "personName";
    /// A phone number, a blank node.
    PHONE = "phone";
    /// An e-mail address, a blank node.
    EMAIL = "email";
    /// A postal address, a blank node.
    ADDRESS = "address";
    /// How the lines of an address are ordered.
    SORT_CODE = "sortCode";
    /// A line of an address, a blank node.
    ADDRESS_LINE = "addressLine";
    /// A reference of the identifier bag, a blank node.
    IDENTIFIER = "identifierBag";
    /// A reference of the category bag, a blank node.
    CATEGORY = "categoryBag";
    /// The reference of an assertion, a blank node.
    KEYED_REFERENCE = "keyedReference";
    /// The name in a reference.
    KEY_NAME = "keyName";
    /// The value in a reference.
    KEY_VALUE = "keyValue";
    /// The address of a binding.
    ACCESS_POINT = "accessPoint";
    /// The kind of an access point.
    URL_TYPE = "URLType";
    /// The binding that a binding redirects to.
    HOSTING_REDIRECTOR = "hostingRedirector";
    /// A reference of a binding to a tModel, a blank node.
    INSTANCE_INFO = "tModelInstanceInfo";
    /// Details of such a reference, a blank node.
    INSTANCE_DETAILS = "instanceDetails";
    /// The parameters in the details.
    INSTANCE_PARMS = "instanceParms";
    /// A document about it, a blank node.
    OVERVIEW_DOC = "overviewDoc";
    /// Where the document is.
    OVERVIEW_URL = "overviewURL";
    /// Whether a tModel was deleted, and thereby hidden; true or absent.
    HIDDEN = "isHidden";
    /// The first business of an assertion.
    FROM_KEY = "fromKey";
    /// The second business of an assertion.
    TO_KEY = "toKey";
}
