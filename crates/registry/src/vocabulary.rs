//! The IRIs that describe entities: SOSA/SSN, Thing Description, QUDT, RDF, RDFS and Chappe's own terms.
//!
//! Own terms exist only where the standards define none. Units are UCUM codes as plain literals, and
//! units of QUDT where [`qudt`] has them.
//! Sources: SOSA/SSN (W3C and OGC Recommendation, 19 October 2017); RDF Schema 1.1; Web of Things
//! Thing Description 1.1; QUDT 2.1.

use oxrdf::NamedNodeRef;

pub mod qudt;
pub mod td;
pub mod uddi;
pub mod wsdl;

/// Namespace of Chappe's own terms.
pub const CHAPPE: &str = "https://chappe.example/ns#";
/// Namespace of properties without an IRI of their own, which descriptors of virtual sensors name.
pub const METADATA: &str = "https://chappe.example/ns/metadata#";
/// Namespace of WGS84 positions.
pub const GEO: &str = "http://www.w3.org/2003/01/geo/wgs84_pos#";
/// Namespace of SOSA.
pub const SOSA: &str = "http://www.w3.org/ns/sosa/";
/// Namespace of SSN.
pub const SSN: &str = "http://www.w3.org/ns/ssn/";

/// The type of entities that are ontologies.
pub const ONTOLOGY_TYPE: &str = "{http://www.w3.org/2002/07/owl#}Ontology";

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident = $iri:literal;)*) => {
        $($(#[$doc])* pub const $name: NamedNodeRef<'static> = NamedNodeRef::new_unchecked($iri);)*
    };
}

terms! {
    /// The class of a thing.
    RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
    /// Name for people; every entity has its name under it.
    RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label";
    /// Text about a thing.
    RDFS_COMMENT = "http://www.w3.org/2000/01/rdf-schema#comment";
    /// A class is narrower than another.
    SUB_CLASS_OF = "http://www.w3.org/2000/01/rdf-schema#subClassOf";
    /// A property is narrower than another.
    SUB_PROPERTY_OF = "http://www.w3.org/2000/01/rdf-schema#subPropertyOf";
    /// A sensor observes a property.
    OBSERVES = "http://www.w3.org/ns/sosa/observes";
    /// A field or observation is about a property.
    OBSERVED_PROPERTY = "http://www.w3.org/ns/sosa/observedProperty";
    /// A sensor is hosted by a platform: a service by its device.
    IS_HOSTED_BY = "http://www.w3.org/ns/sosa/isHostedBy";
    /// A platform hosts a sensor: a device its service.
    HOSTS = "http://www.w3.org/ns/sosa/hosts";
    /// The class of sensors.
    SENSOR = "http://www.w3.org/ns/sosa/Sensor";
    /// The class of platforms.
    PLATFORM = "http://www.w3.org/ns/sosa/Platform";
    /// Unit of a field's values, a unit of QUDT.
    HAS_UNIT = "http://qudt.org/schema/qudt/hasUnit";
    /// Type of an entity, a literal `{namespace}local`.
    TYPE = "https://chappe.example/ns#type";
    /// Scope of an entity, a literal URI.
    SCOPE = "https://chappe.example/ns#scope";
    /// Owner of an entity, a literal.
    OWNER = "https://chappe.example/ns#owner";
    /// Access rule of an entity in an export: `public`, `owner` or `readers`.
    ACCESS = "https://chappe.example/ns#access";
    /// A principal that may see an entity, in an export; a literal.
    READER = "https://chappe.example/ns#reader";
    /// Who may read an entity; a literal as of [`crate::Holder`]. Visible to those who may administer it, as the
    /// next three, and in an export.
    MAY_READ = "https://chappe.example/ns#mayRead";
    /// Who may annotate an entity; in an export `nobody` if it is stated that nobody may.
    MAY_ANNOTATE = "https://chappe.example/ns#mayAnnotate";
    /// Who may change an entity.
    MAY_WRITE = "https://chappe.example/ns#mayWrite";
    /// Who may administer an entity.
    MAY_ADMINISTER = "https://chappe.example/ns#mayAdminister";
    /// A device or virtual sensor has a stream.
    STREAM = "https://chappe.example/ns#stream";
    /// A stream is produced by a device or virtual sensor.
    PRODUCED_BY = "https://chappe.example/ns#producedBy";
    /// A stream has a field, a blank node.
    FIELD = "https://chappe.example/ns#field";
    /// Name of a field, a literal.
    FIELD_NAME = "https://chappe.example/ns#fieldName";
    /// Type of a field's values, a literal.
    FIELD_TYPE = "https://chappe.example/ns#fieldType";
    /// Unit of a field's values, a UCUM code.
    UNIT = "https://chappe.example/ns#unit";
    /// A network address of an entity, a literal.
    ADDRESS = "https://chappe.example/ns#address";
    /// Manufacturer of a device, a literal.
    MANUFACTURER = "https://chappe.example/ns#manufacturer";
    /// Model name of a device, a literal.
    MODEL = "https://chappe.example/ns#model";
    /// Firmware version of a device, a literal.
    FIRMWARE = "https://chappe.example/ns#firmware";
    /// Serial number of a device, a literal.
    SERIAL_NUMBER = "https://chappe.example/ns#serialNumber";
    /// Name of a command that a virtual sensor's device accepts, a literal.
    COMMAND = "https://chappe.example/ns#command";
    /// Class of nodes.
    NODE_CLASS = "https://chappe.example/ns#Node";
    /// Class of devices.
    DEVICE_CLASS = "https://chappe.example/ns#Device";
    /// Class of services.
    SERVICE_CLASS = "https://chappe.example/ns#Service";
    /// Class of streams.
    STREAM_CLASS = "https://chappe.example/ns#Stream";
    /// Class of virtual sensors.
    VIRTUAL_SENSOR_CLASS = "https://chappe.example/ns#VirtualSensor";
    /// Class of WSDL documents and schemas.
    DOCUMENT_CLASS = "https://chappe.example/ns#Document";
    /// The businessService of a device's service.
    BUSINESS_SERVICE = "https://chappe.example/ns#businessService";
    /// Class of everything else.
    OTHER_CLASS = "https://chappe.example/ns#Other";
    /// Class of pieces of metadata.
    METADATA_CLASS = "https://chappe.example/ns#Metadata";
    /// Class of the operations of WSDL documents, as subjects of metadata.
    WSDL_OPERATION = "https://chappe.example/ns#wsdlOperation";
    /// Class of the parts of messages of WSDL documents.
    WSDL_MESSAGE_PART = "https://chappe.example/ns#wsdlMessagePart";
    /// Class of other parts of WSDL documents.
    WSDL_PART = "https://chappe.example/ns#wsdlPart";
    /// A piece of metadata is about this.
    ABOUT = "https://chappe.example/ns#about";
    /// The account that attached a piece, a literal.
    AUTHOR = "https://chappe.example/ns#author";
    /// What a piece states, an IRI.
    METADATA_TYPE = "https://chappe.example/ns#metadataType";
    /// The value of a piece that is no graph.
    METADATA_VALUE = "https://chappe.example/ns#metadataValue";
    /// When a piece was attached or last updated, an `xsd:dateTime`.
    METADATA_DATE = "https://chappe.example/ns#metadataDate";
}

/// The property that states who has a right.
#[must_use]
pub const fn right(right: crate::Right) -> NamedNodeRef<'static> {
    use crate::Right;
    match right {
        Right::Read => MAY_READ,
        Right::Annotate => MAY_ANNOTATE,
        Right::Write => MAY_WRITE,
        Right::Administer => MAY_ADMINISTER,
    }
}

/// Terms that only a piece of metadata has, and only about itself: nobody says in another's name
/// what they wrote.
pub const RESERVED: [NamedNodeRef<'static>; 5] =
    [ABOUT, AUTHOR, METADATA_TYPE, METADATA_VALUE, METADATA_DATE];

/// Fields of an entity, which the registry alone states: nobody makes an entity look like another's, or its rights
/// like other ones.
pub const FIELDS: [NamedNodeRef<'static>; 7] = [
    OWNER,
    ACCESS,
    READER,
    MAY_READ,
    MAY_ANNOTATE,
    MAY_WRITE,
    MAY_ADMINISTER,
];

/// The class an entity of `kind` is an instance of.
#[must_use]
pub const fn class(kind: crate::EntityKind) -> NamedNodeRef<'static> {
    use crate::EntityKind;
    match kind {
        EntityKind::Node => NODE_CLASS,
        EntityKind::Device => DEVICE_CLASS,
        EntityKind::Service => SERVICE_CLASS,
        EntityKind::Stream => STREAM_CLASS,
        EntityKind::VirtualSensor => VIRTUAL_SENSOR_CLASS,
        EntityKind::Other => OTHER_CLASS,
        EntityKind::Metadata => METADATA_CLASS,
        EntityKind::Thing => td::THING,
        EntityKind::Document => DOCUMENT_CLASS,
    }
}
