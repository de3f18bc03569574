//! The messages about WSDL documents, in SOAP 1.1.
//!
//! The calls have the names of those of GRIMOIRES; the elements and their namespace are this registry's own,
//! described by its WSDL. [`receive`] reads a request, [`Request::answer`] runs an inquiry, and [`Answer::to_text`]
//! and [`fault`](crate::uddi::message::fault) write what the sender gets. The caller authenticates senders, fetches
//! documents, and adds or removes them.

mod schema;
mod write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_soap::v1_1::Fault;
use chappe_xml::{Element, Limits};

use super::{
    Direction, Document, Exchange, FindInterface, FindOperation, FindServices, Interface,
    Operation, OperationMessage, SavedDocument,
};
use crate::uddi::{
    BusinessKey, Error, ErrorCode, Inquiry, KeyType, List, ServiceInfo, message as uddi,
};

pub use schema::wsdl;

/// The namespace of the messages.
pub const NAMESPACE: &str = "https://chappe.example/ns/wsdl-registry";

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

/// What addWSDLFile and addWSDLFileAdvert ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Add {
    /// The key of the document.
    pub key: Option<String>,
    /// Its URL, from which it is fetched if it has no content here.
    pub url: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Its bytes.
    pub content: Option<Vec<u8>>,
    /// The business whose services those of the document become.
    pub business: Option<BusinessKey>,
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// addWSDLFile, or with a business addWSDLFileAdvert.
    Add(Add),
    /// removeWSDLFile: a key or a URL.
    Remove(String),
    /// getWSDLAdvertContent: a key.
    Content(String),
    /// getWSDLAdvertContentByURL.
    ContentByUrl(String),
    /// getAllWSDLFiles.
    All {
        /// Only documents after this key.
        after: Option<String>,
        /// Maximum number of documents.
        max_rows: Option<usize>,
    },
    /// getOperationsByURL.
    Operations(String),
    /// getInputMessageOfOperation, getOutputMessageOfOperation and getFaultMessageOfOperation.
    Messages(String, Exchange),
    /// findInterfaceByOperation.
    Interfaces(FindInterface),
    /// findOperationByMessagePart.
    OperationsOf(FindOperation),
    /// findServicesByInterface.
    Services(FindServices),
}

/// A document that was not read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its URL.
    pub url: String,
    /// Why.
    pub reason: String,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Documents that were added, and imports that were not.
    Added(Vec<SavedDocument>, Vec<Unread>),
    /// The key of a document that was removed.
    Removed(String),
    /// Documents.
    Documents(List<Document>),
    /// A document with its bytes.
    Content(Box<Document>, Vec<u8>),
    /// Operations.
    Operations(List<Operation>),
    /// Messages of an operation.
    Messages(Vec<OperationMessage>),
    /// Interfaces.
    Interfaces(List<Interface>),
    /// Services.
    Services(List<ServiceInfo>),
}

impl Request {
    /// Whether it changes the registry, if it succeeds.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Remove(_))
    }

    /// Answers an inquiry.
    ///
    /// # Errors
    /// Those of [`Inquiry`]; `E_unsupported` for a change.
    pub fn answer(&self, inquiry: &Inquiry) -> Result<Answer, Error> {
        Ok(match self {
            Self::Add(_) | Self::Remove(_) => {
                let detail = "the request is not an inquiry";
                return Err(Error::new(ErrorCode::Unsupported, detail));
            }
            Self::Content(key) => {
                let (document, bytes) = inquiry.document(key)?;
                Answer::Content(Box::new(document), bytes)
            }
            Self::ContentByUrl(url) => {
                let (document, bytes) = inquiry.document_at(url)?;
                Answer::Content(Box::new(document), bytes)
            }
            Self::All { after, max_rows } => {
                Answer::Documents(inquiry.documents(after.as_deref(), *max_rows)?)
            }
            Self::Operations(url) => Answer::Operations(List {
                items: inquiry.operations_at(url)?,
                is_truncated: false,
            }),
            Self::Messages(operation, exchange) => {
                Answer::Messages(inquiry.messages_of(operation, *exchange)?)
            }
            Self::Interfaces(ask) => Answer::Interfaces(inquiry.find_interfaces(ask)?),
            Self::OperationsOf(ask) => Answer::Operations(inquiry.find_operations(ask)?),
            Self::Services(ask) => Answer::Services(inquiry.find_services(ask)?),
        })
    }
}

/// Reads a request.
///
/// # Errors
/// The fault to answer with: the document is not SOAP 1.1, has a mandatory header, or its body is not a request.
pub fn receive(document: &[u8], limits: Limits, operator: &str) -> Result<Message, Fault> {
    let body = uddi::body(document, limits, operator)?;
    message(&body).map_err(|error| uddi::client_fault(&error, operator))
}

fn malformed(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::FatalError, detail)
}

fn message(body: &Element) -> Result<Message, Error> {
    let local: String = body.name.local.chars().take(80).collect();
    let name = schema::call(body).ok_or_else(|| {
        let detail = format!("the request {local} is not supported at this address");
        Error::new(ErrorCode::Unsupported, detail)
    })?;
    schema::check(body, name)?;
    let text = |local: &str| {
        let mut children = body.elements();
        let child = children.find(|child| child.name.local == *local);
        child.map(|child| child.text().trim().to_owned())
    };
    let optional = |local| text(local).filter(|text| !text.is_empty());
    let required = |local| {
        let found = optional(local);
        found.ok_or_else(|| malformed(format!("{local} is empty or missing in {name}")))
    };
    let max_rows = || {
        let rows = optional("maxRows").map(|rows| {
            let number = rows.parse::<usize>().ok().filter(|rows| *rows > 0);
            number.ok_or_else(|| malformed(format!("maxRows {rows:.80?} is not a number above 0")))
        });
        rows.transpose()
    };
    let operation = || FindInterface {
        operation: optional("operation"),
        input: optional("input"),
        output: optional("output"),
        ..FindInterface::default()
    };
    let request = match name {
        "addWSDLFile" | "addWSDLFileAdvert" => {
            let content = optional("content").map(|content| {
                let content: String = content.split_ascii_whitespace().collect();
                STANDARD.decode(content)
            });
            let content = content.transpose();
            let business = optional("businessKey").map(|key| {
                let unknown = format!("businessKey {key:.80?} is not known");
                let detail =
                    || Error::of_key(ErrorCode::InvalidKeyPassed, KeyType::Business, unknown);
                BusinessKey::parse(&key).ok_or_else(detail)
            });
            let add = Add {
                key: optional("key"),
                url: optional("url"),
                media_type: optional("mediaType"),
                content: content.map_err(|_| malformed("the content is not base64"))?,
                business: business.transpose()?,
            };
            if add.url.is_none() && add.content.is_none() {
                return Err(malformed(format!("{name} has neither url nor content")));
            }
            if name == "addWSDLFileAdvert" {
                required("businessKey")?;
            }
            Request::Add(add)
        }
        "removeWSDLFile" => Request::Remove(match optional("key") {
            Some(key) => key,
            None => required("url")?,
        }),
        "getWSDLAdvertContent" => Request::Content(required("key")?),
        "getWSDLAdvertContentByURL" => Request::ContentByUrl(required("url")?),
        "getAllWSDLFiles" => Request::All {
            after: optional("after"),
            max_rows: max_rows()?,
        },
        "getOperationsByURL" => Request::Operations(required("url")?),
        "getInputMessageOfOperation" => Request::Messages(required("operation")?, Exchange::Input),
        "getOutputMessageOfOperation" => {
            Request::Messages(required("operation")?, Exchange::Output)
        }
        "getFaultMessageOfOperation" => Request::Messages(required("operation")?, Exchange::Fault),
        "findInterfaceByOperation" => Request::Interfaces(FindInterface {
            after: optional("after"),
            max_rows: max_rows()?,
            ..operation()
        }),
        "findOperationByMessagePart" => Request::OperationsOf(FindOperation {
            part: required("part")?,
            direction: match optional("direction").as_deref() {
                None => Direction::Any,
                Some("input") => Direction::Only(Exchange::Input),
                Some("output") => Direction::Only(Exchange::Output),
                Some("fault") => Direction::Only(Exchange::Fault),
                Some(other) => {
                    let detail = format!("direction {other:.80?} is not input, output or fault");
                    return Err(malformed(detail));
                }
            },
            after: optional("after"),
            max_rows: max_rows()?,
        }),
        _ => Request::Services(FindServices {
            interface: optional("interface"),
            operation: operation(),
            after: optional("after"),
            max_rows: max_rows()?,
        }),
    };
    Ok(Message {
        name,
        token: optional("authInfo"),
        request,
    })
}
