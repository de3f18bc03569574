//! The named groups of a regular expression.
//!
//! A path is the name of a group. The time of a search is linear in the text: the library has no
//! backtracking.

use std::borrow::Cow;

use regex::{Captures, Regex, RegexBuilder};

use super::{OptionFault, lines};
use crate::config::{RegexConfig, Unmatched};
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason, shown};
use crate::value::Raw;

/// Longest expression, and its size when compiled; reason: the time of a search is their product with the text.
const PATTERN_BYTES_MAX: usize = 4_096;
const COMPILED_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct RegexFormat {
    regex: Regex,
    is_whole: bool,
    unmatched: Unmatched,
}

impl RegexFormat {
    pub(crate) fn new(config: &RegexConfig) -> Result<Self, OptionFault> {
        let pattern = config.pattern.get_ref();
        let fault = |message: String| OptionFault::new(config.pattern.span(), "pattern", message);
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(fault(format!(
                "it is longer than {PATTERN_BYTES_MAX} bytes"
            )));
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .build();
        let regex = regex.map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            fault(last.trim_start_matches("error: ").to_owned())
        })?;
        if regex.capture_names().flatten().next().is_none() {
            let hint = "name the groups, such as (?<celsius>[0-9.]+)";
            return Err(fault("it has no named group".to_owned()).hint(hint));
        }
        Ok(Self {
            regex,
            is_whole: config.whole,
            unmatched: config.unmatched,
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.regex.capture_names().flatten();
        names.map(str::to_owned).collect()
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        let mut names = self.regex.capture_names();
        let found = names.position(|name| name == Some(path));
        found.ok_or_else(|| {
            format!(
                "there is no group {path:?}, only {}",
                self.names().join(", ")
            )
        })
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        if self.is_whole {
            let fault = |reason| whole(Location::default(), reason);
            let text = std::str::from_utf8(text).map_err(|_| fault(Reason::Encoding))?;
            let mut is_matched = false;
            for captures in self.regex.captures_iter(text) {
                is_matched = true;
                let start = captures.get(0).map_or(0, |found| found.start());
                let location = Location {
                    record: sink.next_record(),
                    line: 0,
                    byte: start as u64,
                };
                if sink
                    .record(
                        location,
                        &Groups {
                            format: self,
                            captures,
                        },
                    )
                    .is_err()
                {
                    break;
                }
            }
            return match (is_matched, self.unmatched) {
                (false, Unmatched::Refuse) => Err(fault(Reason::Unmatched(shown(text)))),
                _ => Ok(()),
            };
        }
        for line in lines(text) {
            let location = Location {
                record: sink.next_record(),
                line: line.number,
                byte: line.byte,
            };
            let Ok(text) = std::str::from_utf8(line.bytes) else {
                sink.fault(location, Reason::Encoding);
                continue;
            };
            match (self.regex.captures(text), self.unmatched) {
                (Some(captures), _) => {
                    if sink
                        .record(
                            location,
                            &Groups {
                                format: self,
                                captures,
                            },
                        )
                        .is_err()
                    {
                        break;
                    }
                }
                (None, Unmatched::Skip) => sink.ignore(),
                (None, Unmatched::Refuse) => sink.fault(location, Reason::Unmatched(shown(text))),
            }
        }
        Ok(())
    }
}

struct Groups<'r> {
    format: &'r RegexFormat,
    captures: Captures<'r>,
}

impl Record for Groups<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let group = self.captures.get(slot);
        Ok(group.map_or(Raw::Missing, |group| {
            Raw::Text(Cow::Borrowed(group.as_str()))
        }))
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut names = self.format.regex.capture_names();
        let slot = names.position(|other| other == Some(name))?;
        self.captures
            .get(slot)
            .map(|group| Cow::Borrowed(group.as_str()))
    }
}
