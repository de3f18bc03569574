//! The IRIs of Thing Descriptions: the W3C ontologies of things, data schemas, hypermedia controls,
//! security and discovery, and Chappe's term for the document itself.
//!
//! Sources: Web of Things (WoT) Thing Description 1.1 and Web of Things (WoT) Discovery, both W3C
//! Recommendations of 5 December 2023, and their JSON-LD contexts.

use oxrdf::NamedNodeRef;

/// Namespace of things and their affordances; terms without a prefix in a Thing Description.
pub const TD: &str = "https://www.w3.org/2019/wot/td#";
/// Namespace of data schemas.
pub const JSON_SCHEMA: &str = "https://www.w3.org/2019/wot/json-schema#";
/// Namespace of security schemes.
pub const SECURITY: &str = "https://www.w3.org/2019/wot/security#";
/// Namespace of forms and links.
pub const HYPERMEDIA: &str = "https://www.w3.org/2019/wot/hypermedia#";
/// Namespace of directories and registrations.
pub const DISCOVERY: &str = "https://www.w3.org/2021/wot/discovery#";
/// The context of a Thing Description 1.1.
pub const TD_CONTEXT: &str = "https://www.w3.org/2022/wot/td/v1.1";
/// The context of a Thing Description 1.0.
pub const TD_1_0_CONTEXT: &str = "https://www.w3.org/2019/wot/td/v1";
/// The context of a Thing Description that carries its registration.
pub const DISCOVERY_CONTEXT: &str = "https://www.w3.org/2022/wot/discovery";
/// The class of things, as the type of an entity.
pub const THING_TYPE: &str = "{https://www.w3.org/2019/wot/td#}Thing";

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident = $iri:literal;)*) => {
        $($(#[$doc])* pub const $name: NamedNodeRef<'static> = NamedNodeRef::new_unchecked($iri);)*
    };
}

terms! {
    /// The class of things.
    THING = "https://www.w3.org/2019/wot/td#Thing";
    /// The class of properties.
    PROPERTY = "https://www.w3.org/2019/wot/td#PropertyAffordance";
    /// The class of actions.
    ACTION = "https://www.w3.org/2019/wot/td#ActionAffordance";
    /// The class of events.
    EVENT = "https://www.w3.org/2019/wot/td#EventAffordance";
    /// A thing or an affordance has a title, a literal.
    TITLE = "https://www.w3.org/2019/wot/td#title";
    /// Its title in a language.
    TITLE_IN_LANGUAGE = "https://www.w3.org/2019/wot/td#titleInLanguage";
    /// A description, a literal.
    DESCRIPTION = "https://www.w3.org/2019/wot/td#description";
    /// Its description in a language.
    DESCRIPTION_IN_LANGUAGE = "https://www.w3.org/2019/wot/td#descriptionInLanguage";
    /// The name of an affordance or a security scheme, a literal.
    NAME = "https://www.w3.org/2019/wot/td#name";
    /// A thing has a property.
    HAS_PROPERTY = "https://www.w3.org/2019/wot/td#hasPropertyAffordance";
    /// A thing has an action.
    HAS_ACTION = "https://www.w3.org/2019/wot/td#hasActionAffordance";
    /// A thing has an event.
    HAS_EVENT = "https://www.w3.org/2019/wot/td#hasEventAffordance";
    /// A thing or an affordance has a form.
    HAS_FORM = "https://www.w3.org/2019/wot/td#hasForm";
    /// A thing has a link.
    HAS_LINK = "https://www.w3.org/2019/wot/td#hasLink";
    /// A thing, or a form, uses the security scheme of this name.
    HAS_SECURITY = "https://www.w3.org/2019/wot/td#hasSecurityConfiguration";
    /// A thing defines a security scheme.
    DEFINES_SECURITY = "https://www.w3.org/2019/wot/td#definesSecurityScheme";
    /// The base of relative targets, a literal.
    BASE = "https://www.w3.org/2019/wot/td#baseURI";
    /// Where help is to be had, a literal.
    SUPPORT = "https://www.w3.org/2019/wot/td#supportContact";
    /// A property can be observed.
    IS_OBSERVABLE = "https://www.w3.org/2019/wot/td#isObservable";
    /// An action changes nothing.
    IS_SAFE = "https://www.w3.org/2019/wot/td#isSafe";
    /// An action may be repeated.
    IS_IDEMPOTENT = "https://www.w3.org/2019/wot/td#isIdempotent";
    /// The input of an action.
    HAS_INPUT = "https://www.w3.org/2019/wot/td#hasInputSchema";
    /// The output of an action.
    HAS_OUTPUT = "https://www.w3.org/2019/wot/td#hasOutputSchema";
    /// The data of an event.
    HAS_DATA = "https://www.w3.org/2019/wot/td#hasNotificationSchema";
    /// The target of a form or a link, an `xsd:anyURI`.
    TARGET = "https://www.w3.org/2019/wot/hypermedia#hasTarget";
    /// The operation of a form.
    OPERATION = "https://www.w3.org/2019/wot/hypermedia#hasOperationType";
    /// The content type of a form.
    CONTENT_TYPE = "https://www.w3.org/2019/wot/hypermedia#forContentType";
    /// The subprotocol of a form.
    SUBPROTOCOL = "https://www.w3.org/2019/wot/hypermedia#forSubProtocol";
    /// The relation of a link.
    RELATION = "https://www.w3.org/2019/wot/hypermedia#hasRelationType";
    /// The media type that a link's target may have.
    MEDIA_TYPE = "https://www.w3.org/2019/wot/hypermedia#hintsAtMediaType";
    /// A property cannot be written.
    READ_ONLY = "https://www.w3.org/2019/wot/json-schema#readOnly";
    /// A property cannot be read.
    WRITE_ONLY = "https://www.w3.org/2019/wot/json-schema#writeOnly";
    /// The smallest value.
    MINIMUM = "https://www.w3.org/2019/wot/json-schema#minimum";
    /// The largest value.
    MAXIMUM = "https://www.w3.org/2019/wot/json-schema#maximum";
    /// A data schema has members.
    MEMBERS = "https://www.w3.org/2019/wot/json-schema#properties";
    /// The name of a member.
    MEMBER_NAME = "https://www.w3.org/2019/wot/json-schema#propertyName";
    /// A data schema has items.
    ITEMS = "https://www.w3.org/2019/wot/json-schema#items";
    /// The unit of a value.
    UNIT = "http://schema.org/unitCode";
    /// A thing has a registration in this directory.
    REGISTRATION = "https://www.w3.org/2021/wot/discovery#hasRegistrationInformation";
    /// The class of registrations.
    REGISTRATION_CLASS = "https://www.w3.org/2021/wot/discovery#RegistrationInformation";
    /// When it was made.
    CREATED = "https://www.w3.org/2021/wot/discovery#dateCreated";
    /// When it was last changed.
    MODIFIED = "https://www.w3.org/2021/wot/discovery#dateModified";
    /// When it ends.
    EXPIRES = "https://www.w3.org/2021/wot/discovery#expires";
    /// The seconds from a change to its end.
    TTL = "https://www.w3.org/2021/wot/discovery#ttl";
    /// The document of a thing: a node whose members `rdf:_1`, `rdf:_2`, … joined are its JSON text.
    DOCUMENT = "https://chappe.example/ns#document";
}
