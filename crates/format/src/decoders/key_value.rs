//! Pairs of key and value: `t=21.5 h=40`, `t:21.5;h:40`, and the lines that programs log.
//!
//! A path is a key. A value in double quotes may contain any character, `\"` and `\\`. Of pairs of one key the
//! last counts.

use std::borrow::Cow;

use super::{Names, OptionFault, lines};
use crate::config::KeyValueConfig;
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason, shown};
use crate::value::Raw;

/// Most pairs of a record; reason: they are held, and looked through for each path.
const PAIRS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct KeyValueFormat {
    between: Vec<u8>,
    assign: u8,
    is_whole: bool,
    slots: Names,
}

impl KeyValueFormat {
    pub(crate) fn new(config: &KeyValueConfig) -> Result<Self, OptionFault> {
        let assign = match &config.assign {
            None => b'=',
            Some(text) => match text.get_ref().as_bytes() {
                [byte] if byte.is_ascii_graphic() && *byte != b'"' => *byte,
                _ => {
                    let message =
                        format!("{:?} is not one visible ASCII character", text.get_ref());
                    return Err(OptionFault::new(text.span(), "assign", message));
                }
            },
        };
        let between = match &config.between {
            None => b" \t,;&".to_vec(),
            Some(text) => {
                let bytes = text.get_ref().as_bytes();
                let is_usable = |byte: &u8| byte.is_ascii() && *byte != assign && *byte != b'"';
                if bytes.is_empty() || !bytes.iter().all(is_usable) {
                    let message = format!("{:?} are not ASCII characters", text.get_ref());
                    let hint = "a quote or the sign between key and value cannot be one of them";
                    return Err(OptionFault::new(text.span(), "between", message).hint(hint));
                }
                bytes.to_vec()
            }
        };
        Ok(Self {
            between,
            assign,
            is_whole: config.whole,
            slots: Names::default(),
        })
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        self.slots.slot(path)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        if self.is_whole {
            let location = Location::default();
            let fault = |reason| whole(location, reason);
            let text = std::str::from_utf8(text).map_err(|_| fault(Reason::Encoding))?;
            let pairs = self.pairs(text).map_err(fault)?;
            let record = sink.next_record();
            let location = Location { record, ..location };
            let _ = sink.record(
                location,
                &Pairs {
                    format: self,
                    pairs,
                },
            );
            return Ok(());
        }
        for line in lines(text) {
            let location = Location {
                record: sink.next_record(),
                line: line.number,
                byte: line.byte,
            };
            let text = std::str::from_utf8(line.bytes).map_err(|_| Reason::Encoding);
            match text.and_then(|text| self.pairs(text)) {
                Ok(pairs) => {
                    if sink
                        .record(
                            location,
                            &Pairs {
                                format: self,
                                pairs,
                            },
                        )
                        .is_err()
                    {
                        break;
                    }
                }
                Err(reason) => sink.fault(location, reason),
            }
        }
        Ok(())
    }

    fn is_between(&self, byte: u8) -> bool {
        self.between.contains(&byte) || self.is_whole && matches!(byte, b'\n' | b'\r')
    }

    fn pairs<'t>(&self, text: &'t str) -> Result<Vec<(&'t str, Cow<'t, str>)>, Reason> {
        let bytes = text.as_bytes();
        let mut pairs = Vec::new();
        let mut at = 0;
        loop {
            while bytes
                .get(at)
                .is_some_and(|byte| self.is_between(*byte) || *byte == b' ')
            {
                at += 1;
            }
            if at == bytes.len() {
                return Ok(pairs);
            }
            if pairs.len() == PAIRS_MAX {
                return Err(crate::decoder::limit("pairs", PAIRS_MAX as u64));
            }
            let start = at;
            while bytes
                .get(at)
                .is_some_and(|byte| *byte != self.assign && !self.is_between(*byte))
            {
                at += 1;
            }
            let key = text[start..at].trim();
            if bytes.get(at) != Some(&self.assign) || key.is_empty() {
                let assign = char::from(self.assign);
                let found = shown(&text[start..]);
                let text = format!("{found:?} is not a key, `{assign}` and value");
                return Err(Reason::Syntax(text));
            }
            at += 1;
            while bytes.get(at) == Some(&b' ') && !self.is_between(b' ') {
                at += 1;
            }
            if bytes.get(at) == Some(&b'"') {
                let (value, length) = quoted(&text[at + 1..])?;
                at += 1 + length;
                pairs.push((key, value));
                continue;
            }
            let start = at;
            while bytes.get(at).is_some_and(|byte| !self.is_between(*byte)) {
                at += 1;
            }
            pairs.push((key, Cow::Borrowed(text[start..at].trim_end())));
        }
    }
}

/// The text before the closing quote, and the length with it.
fn quoted(text: &str) -> Result<(Cow<'_, str>, usize), Reason> {
    let mut value = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let Some(end) = rest.find(['"', '\\']) else {
            return Err(Reason::syntax("a value in quotes has no closing quote"));
        };
        let at = text.len() - rest.len() + end;
        match (rest.as_bytes()[end], &mut value) {
            (b'"', Cow::Borrowed(_)) => return Ok((Cow::Borrowed(&text[..at]), at + 1)),
            (b'"', Cow::Owned(value)) => {
                value.push_str(&rest[..end]);
                return Ok((Cow::Owned(std::mem::take(value)), at + 1));
            }
            (_, value) => {
                let Some(escaped) = rest[end + 1..].chars().next() else {
                    return Err(Reason::syntax("a value in quotes has no closing quote"));
                };
                let owned = value.to_mut();
                owned.push_str(&rest[..end]);
                owned.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                });
                rest = &rest[end + 1 + escaped.len_utf8()..];
            }
        }
    }
}

struct Pairs<'r> {
    format: &'r KeyValueFormat,
    pairs: Vec<(&'r str, Cow<'r, str>)>,
}

impl Pairs<'_> {
    fn find(&self, key: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter().rev();
        let found = pairs.find(|(other, _)| *other == key);
        found.map(|(_, value)| &**value)
    }
}

impl Record for Pairs<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let found = self.find(&self.format.slots.0[slot]);
        Ok(found.map_or(Raw::Missing, |text| Raw::Text(Cow::Borrowed(text))))
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        self.find(name).map(Cow::Borrowed)
    }
}
