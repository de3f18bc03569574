//! JSON (RFC 8259) with paths (RFC 9535).
//!
//! `$` in a path is the record that `each` selects, `$$` the whole message. A time is looked up in the
//! record, then in the message. Of several matches the first counts, but all of them for samples. Of members of
//! one name the last counts. Whole numbers of 64 bits are exact.

use std::cell::RefCell;

use serde_json::Value as Json;
use toml::Spanned;

use super::{OptionFault, lines};
use crate::config::JsonConfig;
use crate::decoder::{Record, Sink, limit, whole};
use crate::fault::{Fault, Location, Reason};
use crate::json::path::{JsonPath, Work};
use crate::value::Raw;

#[derive(Debug)]
pub(crate) struct JsonFormat {
    each: Option<JsonPath>,
    has_lines: bool,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    path: JsonPath,
    scope: Scope,
    /// All matches count.
    is_list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Record,
    Message,
    /// The record, then the message.
    Either,
}

impl JsonFormat {
    pub(crate) fn new(config: &JsonConfig) -> Result<Self, OptionFault> {
        let each = config.each.as_ref().map(|each: &Spanned<String>| {
            JsonPath::parse(each.get_ref()).map_err(|error| {
                let message = format!("{:?}: {error}", each.get_ref());
                OptionFault::new(each.span(), "each", message).hint("such as \"$.readings[*]\"")
            })
        });
        Ok(Self {
            each: each.transpose()?,
            has_lines: config.lines,
            slots: Vec::new(),
        })
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        self.add(path, Scope::Record, false)
    }

    pub(crate) fn time_slot(&mut self, path: &str) -> Result<usize, String> {
        self.add(path, Scope::Either, false)
    }

    pub(crate) fn samples_slot(&mut self, path: &str) -> Result<usize, String> {
        self.add(path, Scope::Record, true)
    }

    fn add(&mut self, text: &str, scope: Scope, is_list: bool) -> Result<usize, String> {
        let (text, scope) = match text.strip_prefix('$') {
            Some(rest) if rest.starts_with('$') => (rest, Scope::Message),
            _ => (text, scope),
        };
        let path = JsonPath::parse(text).map_err(|error| format!("{text:?}: {error}"))?;
        let is_list = is_list && !path.is_singular();
        self.slots.push(Slot {
            path,
            scope,
            is_list,
        });
        Ok(self.slots.len() - 1)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        let work = RefCell::new(Work::new(sink.limits().path_steps));
        if !self.has_lines {
            let location = Location::default();
            let root = parse(text).map_err(|(location, reason)| whole(location, reason))?;
            if let Err(reason) = self.document(&root, location, &work, sink) {
                return Err(whole(location, reason));
            }
            return Ok(());
        }
        for line in lines(text) {
            let location = Location {
                record: 0,
                line: line.number,
                byte: line.byte,
            };
            match parse(line.bytes) {
                Ok(root) => match self.document(&root, location, &work, sink) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(reason) => sink.fault(location, reason),
                },
                Err((within, reason)) => {
                    let byte = line.byte + within.byte;
                    sink.fault(Location { byte, ..location }, reason);
                }
            }
        }
        Ok(())
    }

    /// Whether more documents are wanted.
    fn document(
        &self,
        root: &Json,
        location: Location,
        work: &RefCell<Work>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Reason> {
        let items = match &self.each {
            Some(path) => {
                let steps = sink.limits().path_steps;
                let items = path.select(root, &mut work.borrow_mut());
                items.map_err(|_| limit("path_steps", steps))?
            }
            None => vec![root],
        };
        let path_steps = sink.limits().path_steps;
        for item in items {
            let record = JsonRecord {
                slots: &self.slots,
                root,
                item,
                work,
                path_steps,
            };
            let record_number = sink.next_record();
            let location = Location {
                record: record_number,
                ..location
            };
            if sink.record(location, &record).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Parses a document; its depth is at most 128, the limit of `serde_json`.
pub(super) fn parse(text: &[u8]) -> Result<Json, (Location, Reason)> {
    serde_json::from_slice(text).map_err(|error| {
        let before = text.split(|byte| *byte == b'\n').take(error.line() - 1);
        let start: usize = before.map(|line| line.len() + 1).sum();
        let location = Location {
            record: 0,
            line: error.line() as u64,
            byte: (start + error.column().saturating_sub(1)) as u64,
        };
        (location, Reason::syntax(format!("not JSON: {error}")))
    })
}

struct JsonRecord<'r> {
    slots: &'r [Slot],
    root: &'r Json,
    item: &'r Json,
    work: &'r RefCell<Work>,
    path_steps: u64,
}

impl Record for JsonRecord<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let slot = &self.slots[slot];
        let out_of_work = |_| limit("path_steps", self.path_steps);
        let mut work = self.work.borrow_mut();
        if slot.is_list {
            let from = match slot.scope {
                Scope::Message => self.root,
                _ => self.item,
            };
            let nodes = slot.path.select(from, &mut work).map_err(out_of_work)?;
            return Ok(match nodes[..] {
                [] => Raw::Missing,
                [only] => Raw::from(only),
                _ => {
                    let numbers = nodes.iter().map(|node| node.as_f64());
                    let numbers = numbers.collect::<Option<Vec<_>>>();
                    let wrong = || Reason::Type {
                        wanted: "samples",
                        found: "a list with other values than numbers".to_owned(),
                    };
                    Raw::Numbers(numbers.ok_or_else(wrong)?)
                }
            });
        }
        let from = match slot.scope {
            Scope::Message => self.root,
            _ => self.item,
        };
        let mut found = slot.path.first(from, &mut work).map_err(out_of_work)?;
        if found.is_none() && slot.scope == Scope::Either {
            found = slot.path.first(self.root, &mut work).map_err(out_of_work)?;
        }
        Ok(found.map_or(Raw::Missing, Raw::from))
    }
}
