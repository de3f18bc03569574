//! UDDI XML.

use std::io::{BufRead, Write};

use chappe_identity::Principal;
use chappe_xml::{Element, Limits};

use super::split::{MAX_ELEMENT_BYTES, Splitter};
use super::{ExportError, ImportError};
use crate::state::State;
use crate::uddi::message::{NAMESPACE, read};
use crate::uddi::restore::{self, Value};

/// The root of an export. Any other root is read as well.
const ROOT: &str = "export";

pub(super) fn export(
    state: &State,
    principal: &Principal,
    mut to: impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let namespace = crate::vocabulary::CHAPPE;
    write!(
        to,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<c:{ROOT} xmlns:c=\"{namespace}\" xmlns=\"{NAMESPACE}\">\n"
    )?;
    let mut count = 0;
    restore::elements(state, principal, |element| {
        let mut text = element.to_text();
        text.push('\n');
        to.write_all(text.as_bytes())?;
        count += 1;
        progress(count);
        Ok::<_, ExportError>(())
    })?;
    writeln!(to, "</c:{ROOT}>")?;
    to.flush()?;
    Ok(count)
}

/// Reads the values of a file in order.
pub(super) struct UddiReader<R>(Splitter<R>);

/// A value of a file, with the owner that it names.
pub(super) struct Read {
    pub(super) line: u64,
    pub(super) bytes: usize,
    pub(super) value: Value,
    pub(super) owner: Option<String>,
}

impl<R: BufRead> UddiReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self(Splitter::new(reader))
    }

    /// The next value.
    pub(super) fn read(&mut self) -> Result<Option<Read>, ImportError> {
        let Some(part) = self.0.next()? else {
            return Ok(None);
        };
        let line = part.line;
        let refused = |reason: String| ImportError::Refused { line, reason };
        let bytes = part.document.len();
        let limits = Limits {
            bytes: 2 * MAX_ELEMENT_BYTES,
            ..Limits::default()
        };
        let root = Element::parse_within(&part.document, limits);
        let root = root.map_err(|error| refused(error.to_string()))?;
        let Some(element) = root.elements().next() else {
            return Err(refused("the element cannot be read".to_owned()));
        };
        let of_uddi = |error: crate::uddi::Error| refused(error.to_string());
        let (value, owner) = match &*element.name.local {
            "businessEntity" => {
                let (business, owner) = read::business_alone(element).map_err(of_uddi)?;
                (Value::Business(Box::new(business)), owner)
            }
            "tModel" => {
                let (tmodel, owner) = read::tmodel_alone(element).map_err(of_uddi)?;
                (Value::TModel(Box::new(tmodel)), owner)
            }
            "publisherAssertion" => {
                let assertion = read::assertion_alone(element).map_err(of_uddi)?;
                (Value::Assertion(assertion), None)
            }
            other => {
                let other: String = other.chars().take(80).collect();
                return Err(refused(format!(
                    "{other} is not a tModel, businessEntity or publisherAssertion below the root"
                )));
            }
        };
        restore::check(&value).map_err(of_uddi)?;
        Ok(Some(Read {
            line,
            bytes,
            value,
            owner: owner.filter(|owner| !owner.trim().is_empty()),
        }))
    }
}
