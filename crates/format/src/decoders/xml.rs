//! XML with paths: `Readings/Reading`, `Value`, `Sensor/@id`, as in the rules for devices.
//!
//! The root element of the message is where paths begin. A path that begins with `//` begins there although
//! `each` selects records; a time is looked up in the record, then in the message.

use chappe_xml::path::Path;
use chappe_xml::{Element, Limits};

use super::OptionFault;
use crate::config::XmlConfig;
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason};
use crate::value::Raw;
use std::borrow::Cow;
use std::cell::OnceCell;

#[derive(Debug)]
pub(crate) struct XmlFormat {
    each: Option<Path>,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    path: Path,
    is_of_message: bool,
    /// Looked up in the message if the record has none.
    is_of_either: bool,
}

impl XmlFormat {
    pub(crate) fn new(config: &XmlConfig) -> Result<Self, OptionFault> {
        let each = config.each.as_ref().map(|each| {
            Path::parse(each.get_ref())
                .map_err(|error| OptionFault::new(each.span(), "each", error.to_string()))
        });
        Ok(Self {
            each: each.transpose()?,
            slots: Vec::new(),
        })
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        self.add(path, false)
    }

    pub(crate) fn time_slot(&mut self, path: &str) -> Result<usize, String> {
        self.add(path, true)
    }

    fn add(&mut self, text: &str, is_of_either: bool) -> Result<usize, String> {
        let (text, is_of_message) = match text.strip_prefix("//") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        self.slots.push(Slot {
            path: Path::parse(text).map_err(|error| error.to_string())?,
            is_of_message,
            is_of_either,
        });
        Ok(self.slots.len() - 1)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        let limits = Limits {
            bytes: sink.limits().message_bytes,
            ..Limits::default()
        };
        let root = Element::parse_within(text, limits).map_err(|error| {
            let location = Location {
                byte: error.offset,
                ..Location::default()
            };
            whole(location, Reason::Syntax(error.reason.to_string()))
        })?;
        let items = match &self.each {
            Some(path) => path.elements(&root),
            None => vec![&root],
        };
        let of_message: Vec<_> = self.slots.iter().map(|_| OnceCell::new()).collect();
        for item in items {
            let record = XmlRecord {
                format: self,
                root: &root,
                of_message: &of_message,
                item,
            };
            let location = Location {
                record: sink.next_record(),
                ..Location::default()
            };
            if sink.record(location, &record).is_err() {
                break;
            }
        }
        Ok(())
    }
}

struct XmlRecord<'r> {
    format: &'r XmlFormat,
    root: &'r Element,
    /// What each slot finds in the message: searched once, not for each record.
    of_message: &'r [OnceCell<Option<String>>],
    item: &'r Element,
}

impl XmlRecord<'_> {
    fn of_message(&self, slot: usize) -> Option<&str> {
        let find = || text(&self.format.slots[slot].path, self.root);
        self.of_message[slot].get_or_init(find).as_deref()
    }
}

/// The trimmed text of a path.
fn text(path: &Path, from: &Element) -> Option<String> {
    path.first_text(from).map(|text| text.trim().to_owned())
}

impl Record for XmlRecord<'_> {
    fn value(&self, index: usize) -> Result<Raw<'_>, Reason> {
        let slot = &self.format.slots[index];
        let of_record = match slot.is_of_message {
            true => None,
            false => text(&slot.path, self.item).map(Cow::Owned),
        };
        let found = of_record.or_else(|| match slot.is_of_message || slot.is_of_either {
            true => self.of_message(index).map(Cow::Borrowed),
            false => None,
        });
        Ok(found.map_or(Raw::Missing, Raw::Text))
    }
}
