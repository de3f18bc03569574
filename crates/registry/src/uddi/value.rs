//! The data of UDDI v2 as typed values.
//!
//! Source: UDDI 2.03 data structure reference and the schema `uddi_v2.xsd`. Fields have the names
//! of the elements and attributes. An element that only collects others (`contacts`,
//! `discoveryURLs`, `identifierBag`, …) is a list; absent and empty are the same. The attributes
//! `operator` and `authorizedName` are not stored: the registry fills them in from its own name and
//! the owner.

use super::key::{BindingKey, BusinessKey, Key as _, ServiceKey, TModelKey};

/// Maximum length of a language tag.
pub const MAX_LANGUAGE_CHARACTERS: usize = 26;

/// A language tag (`xml:lang`) in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Language(String);

impl Language {
    /// Reads a tag of letters, digits and hyphens (BCP 47); `None` if it is not well-formed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let is_short = lower.len() <= MAX_LANGUAGE_CHARACTERS;
        // The graph's own rule decides: a literal must carry the tag.
        let literal = oxrdf::Literal::new_language_tagged_literal("", lower.as_str()).ok()?;
        (is_short && literal.language() == Some(&lower)).then_some(Self(lower))
    }

    /// The tag.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name or a description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Text {
    /// Its language.
    pub language: Option<Language>,
    /// The text.
    pub text: String,
}

impl Text {
    /// A text without a language.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            language: None,
            text: text.into(),
        }
    }
}

/// A reference to a value in a namespace (keyedReference).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyedReference {
    /// The namespace; absent: `uddi-org:general_keywords`.
    pub tmodel_key: Option<TModelKey>,
    /// A name for people, significant only in `uddi-org:general_keywords` and in assertions.
    pub key_name: Option<String>,
    /// The value.
    pub key_value: String,
}

/// A discoveryURL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiscoveryUrl {
    /// The kind of use.
    pub use_type: String,
    /// The URL.
    pub url: String,
}

/// The path from which HTTP GET has an entity. For a business, `?businessKey=` and the key follow.
pub const GET_PATH: &str = "/uddi/get";
/// The useType of the address that the registry gives each business.
const GENERATED: &str = "businessEntity";

impl DiscoveryUrl {
    /// The address that the registry gives a business, below `base`.
    pub(crate) fn generated(base: &str, key: BusinessKey) -> Self {
        Self {
            use_type: GENERATED.to_owned(),
            url: format!("{base}{GET_PATH}?businessKey={key}"),
        }
    }

    /// The business whose address this is, whatever the host; the useType may be left out.
    pub(crate) fn generated_for(&self) -> Option<BusinessKey> {
        let (base, key) = self.url.rsplit_once("?businessKey=")?;
        let is_generated =
            base.ends_with(GET_PATH) && (self.use_type.is_empty() || self.use_type == GENERATED);
        is_generated.then(|| BusinessKey::from_text(key))?
    }
}

/// A phone number or an e-mail address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reachable {
    /// The kind of use.
    pub use_type: Option<String>,
    /// The number or address.
    pub value: String,
}

/// A line of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressLine {
    /// The name of the part of the address.
    pub key_name: Option<String>,
    /// The code of the part of the address.
    pub key_value: Option<String>,
    /// The line.
    pub text: String,
}

/// A postal address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// The kind of use.
    pub use_type: Option<String>,
    /// How lines are ordered.
    pub sort_code: Option<String>,
    /// The namespace of the lines' names and codes.
    pub tmodel_key: Option<TModelKey>,
    /// The lines.
    pub lines: Vec<AddressLine>,
}

/// A contact of a business.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contact {
    /// The kind of use.
    pub use_type: Option<String>,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// The name of the person or role.
    pub person_name: String,
    /// Phone numbers.
    pub phones: Vec<Reachable>,
    /// E-mail addresses.
    pub emails: Vec<Reachable>,
    /// Postal addresses.
    pub addresses: Vec<Address>,
}

/// A businessEntity with its services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusinessEntity {
    /// Its key; absent in a request that creates it.
    pub key: Option<BusinessKey>,
    /// Where else it is described.
    pub discovery_urls: Vec<DiscoveryUrl>,
    /// Names, at least one.
    pub names: Vec<Text>,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// Contacts.
    pub contacts: Vec<Contact>,
    /// Services. One whose business is another is a projection of that business's service.
    pub services: Vec<BusinessService>,
    /// Identifiers.
    pub identifier_bag: Vec<KeyedReference>,
    /// Categories.
    pub category_bag: Vec<KeyedReference>,
}

/// A businessService with its bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusinessService {
    /// Its key; absent in a request that creates it.
    pub key: Option<ServiceKey>,
    /// Its business.
    pub business_key: Option<BusinessKey>,
    /// Names.
    pub names: Vec<Text>,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// Bindings.
    pub bindings: Vec<BindingTemplate>,
    /// Categories.
    pub category_bag: Vec<KeyedReference>,
}

/// The kind of an access point (attribute URLType).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UrlType {
    /// An e-mail address.
    Mailto,
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// FTP.
    Ftp,
    /// A fax number.
    Fax,
    /// A phone number.
    Phone,
    /// Anything else.
    Other,
}

impl UrlType {
    /// Every type.
    pub const ALL: [Self; 7] = [
        Self::Mailto,
        Self::Http,
        Self::Https,
        Self::Ftp,
        Self::Fax,
        Self::Phone,
        Self::Other,
    ];

    /// The value of the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mailto => "mailto",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ftp => "ftp",
            Self::Fax => "fax",
            Self::Phone => "phone",
            Self::Other => "other",
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Where a binding is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// At an address (accessPoint).
    AccessPoint {
        /// The kind of the address.
        url_type: UrlType,
        /// The address.
        address: String,
    },
    /// Where another binding says (hostingRedirector).
    HostingRedirector(BindingKey),
}

/// A document about something (overviewDoc).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OverviewDoc {
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// Where it is.
    pub url: Option<String>,
}

/// How a binding uses a tModel (instanceDetails).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InstanceDetails {
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// A document.
    pub overview_doc: Option<OverviewDoc>,
    /// Parameters.
    pub parameters: Option<String>,
}

/// A reference of a binding to a tModel (tModelInstanceInfo).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TModelInstanceInfo {
    /// The tModel.
    pub tmodel_key: TModelKey,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// How it is used.
    pub details: Option<InstanceDetails>,
}

/// A bindingTemplate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingTemplate {
    /// Its key; absent in a request that creates it.
    pub key: Option<BindingKey>,
    /// Its service.
    pub service_key: Option<ServiceKey>,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// What it implements (tModelInstanceDetails): its technical fingerprint.
    pub tmodels: Vec<TModelInstanceInfo>,
}

/// A tModel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TModel {
    /// Its key; absent in a request that creates it.
    pub key: Option<TModelKey>,
    /// Its name.
    pub name: Text,
    /// Descriptions by language.
    pub descriptions: Vec<Text>,
    /// A document.
    pub overview_doc: Option<OverviewDoc>,
    /// Identifiers.
    pub identifier_bag: Vec<KeyedReference>,
    /// Categories.
    pub category_bag: Vec<KeyedReference>,
}

/// A publisher's statement about two businesses (publisherAssertion).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublisherAssertion {
    /// The first business.
    pub from_key: BusinessKey,
    /// The second business.
    pub to_key: BusinessKey,
    /// How the first is related to the second.
    pub reference: KeyedReference,
}
