//! The IRIs that describe entities: SOSA/SSN, RDF, RDFS and Chappe's own terms.
//!
//! Own terms exist only where the standards define none. Units are UCUM codes as plain literals.
//! Sources: SOSA/SSN (W3C and OGC Recommendation, 19 October 2017); RDF Schema 1.1.

use oxrdf::NamedNodeRef;

pub mod uddi;

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
    /// Type of an entity, a literal `{namespace}local`.
    TYPE = "https://chappe.example/ns#type";
    /// Scope of an entity, a literal URI.
    SCOPE = "https://chappe.example/ns#scope";
    /// Owner of an entity, a literal.
    OWNER = "https://chappe.example/ns#owner";
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

/// Terms that only a piece of metadata has, and only about itself: nobody says in another's name
/// what they wrote.
pub const RESERVED: [NamedNodeRef<'static>; 5] =
    [ABOUT, AUTHOR, METADATA_TYPE, METADATA_VALUE, METADATA_DATE];

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
    }
}
