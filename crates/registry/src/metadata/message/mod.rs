//! The messages of GRIMOIRES' metadata interfaces, in SOAP 1.1.
//!
//! Source: `metadata.xsd`, `metadata_uddi.xsd` and `metadata_wsdl.xsd` of GRIMOIRES 1.7, of which
//! every valid message is understood. Added are `authInfo`, `datatype`, `maxRows` and cursors; all
//! are optional. A fault has UDDI's dispositionReport besides the faultDetailList.

mod call;
mod read;
mod write;
mod wsdl;

use chappe_soap::v1_1::Fault;
use chappe_xml::{Element, Limits, Name};

use super::annotate::Draft;
use super::error::Error as MetadataError;
use super::find::{Criterion, Page};
use super::operations::FindOperations;
use super::piece::Piece;
use super::wsdl_part::WsdlPart;
use crate::uddi::message as uddi_message;
use crate::uddi::{Error, ErrorCode, FindService, List, ServiceInfo};

pub use wsdl::wsdl;

/// The namespace of the messages.
pub const NAMESPACE: &str = "http://www.grimoires.org/metadata.xsd";

/// A request with the token of its sender.
#[derive(Clone, Debug)]
pub struct Message {
    /// The name of the request.
    pub name: &'static str,
    /// The token (authInfo).
    pub token: Option<String>,
    /// The request.
    pub request: Request,
}

/// The part of a list that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Maximum number of items (`maxRows`).
    pub max_rows: Option<usize>,
    /// The attribute `next` of the answer before (`cursor`).
    pub cursor: Option<String>,
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// addMetadataToEntity.
    Attach(Draft),
    /// deleteMetadata.
    Delete(String),
    /// get_metadataDetail.
    Detail(String),
    /// get_entityMetadata.
    OfEntity(String, Part),
    /// find_entityByMetadata.
    FindEntities(Vec<Criterion>, Part),
    /// get_supportedEntityType.
    EntityTypes,
    /// find_service.
    FindService(FindService, Vec<Criterion>),
    /// find_operation.
    FindOperations(FindOperations, Part),
    /// find_interfaceByOperationMetadata.
    FindInterfaces(Vec<Criterion>, Part),
    /// find_interfaceByMessagePartMetadata.
    FindInterfacesByPart(Vec<Criterion>, Part),
}

impl Request {
    /// Whether it changes the registry, if it succeeds.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        matches!(self, Self::Attach(_) | Self::Delete(_))
    }
}

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// metadataInfo.
    Piece(Box<Piece>),
    /// metadataInfos.
    Pieces(Page<Piece>),
    /// entityReferenceList: keys with the types of the entities.
    Entities(Page<(String, String)>),
    /// uriBag.
    Uris(Page<String>),
    /// operationReferenceList.
    Operations(Page<WsdlPart>),
    /// serviceList of UDDI.
    Services(List<ServiceInfo>),
    /// success.
    Success,
}

impl From<MetadataError> for Error {
    fn from(error: MetadataError) -> Self {
        let code = match &error {
            MetadataError::UnknownPiece(_) | MetadataError::UnknownSubject(_) => {
                ErrorCode::InvalidKeyPassed
            }
            MetadataError::Refused { .. } => ErrorCode::UserMismatch,
            MetadataError::Invalid { .. } => ErrorCode::ValueNotAllowed,
            MetadataError::Registry(error) => return error.clone().into(),
        };
        Self::new(code, error.to_string())
    }
}

/// Reads a request.
///
/// # Errors
/// The fault to answer with: the document is not SOAP 1.1, has a mandatory header, or its body is not
/// a request about metadata.
pub fn receive(document: &[u8], limits: Limits, operator: &str) -> Result<Message, Fault> {
    let body = uddi_message::body(document, limits, operator)?;
    read::message(&body).map_err(|error| fault(&error, operator))
}

/// The fault of a request that failed.
#[must_use]
pub fn fault(error: &Error, operator: &str) -> Fault {
    let mut fault = uddi_message::fault(error, operator);
    let name = |local| Name::new(NAMESPACE, local);
    let message = Element::new(name("errorMessage")).with_text(error.detail.clone());
    let detail = Element::new(name("faultDetail"))
        .with_attribute(Name::local("errorNumber"), error.code.errno().to_string())
        .with_attribute(Name::local("errorCode"), error.code.as_str())
        .with_child(message);
    let list = Element::new(name("faultDetailList")).with_namespace("meta", NAMESPACE);
    fault.detail.push(list.with_child(detail));
    fault
}
