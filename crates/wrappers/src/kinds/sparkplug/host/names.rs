//! The streams of metrics: their names, and what says which metric a stream is of.
//!
//! Names of streams have no capitals and few other characters, so that different metrics can ask for the same one:
//! `Temp` and `temp`. The first to come has it. The description of its field begins with the name of the metric, and
//! tells after a restart whose it is, whatever comes first then.

use std::sync::Arc;

use chappe_stream::{check_name, name_part};
use ring::digest::{SHA256, digest};

use super::super::payload::Topic;
use super::{Host, NAME_BYTES_MAX};

/// Bytes of the hash of a name that distinguish it from another; reason: two of a thousand names have the same ones
/// with a chance of 3 in 100, and then the second metric is refused.
const HASH_BYTES: usize = 3;
/// Most characters of the documentation of a metric that are kept.
const TEXT_CHARACTERS_MAX: usize = 500;
/// Longest URI of an observed property in bytes.
const URI_BYTES_MAX: usize = 256;

/// The description of the field of a metric: its name, and what its birth certificate says of it.
pub(super) fn label(name: &str, text: Option<&str>) -> String {
    match text.filter(|text| !text.is_empty()) {
        None => name.to_owned(),
        Some(text) => {
            let text: String = text.chars().take(TEXT_CHARACTERS_MAX).collect();
            format!("{name}: {text}")
        }
    }
}

/// Whether a description is one of the metric of this name.
fn is_label_of(description: &str, name: &str) -> bool {
    let rest = description.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// The observed property of a metric, if it is a URI.
pub(super) fn observed_property(text: Option<&str>) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_graphic() && !"<>\"{}|\\^`".contains(c);
    let uri = text.filter(|uri| uri.len() <= URI_BYTES_MAX && uri.chars().all(is_allowed))?;
    let scheme = uri.split_once(':')?.0;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then(|| uri.to_owned())
}

impl Host {
    /// The name of the stream of a metric; `former` is the one that it had since this host began.
    ///
    /// # Errors
    /// It can have none.
    pub(super) fn stream_name(
        &self,
        topic: Topic<'_>,
        name: &str,
        former: Option<&Arc<str>>,
    ) -> Result<Arc<str>, String> {
        if let Some(former) = former.filter(|former| !self.streams.contains(*former)) {
            return Ok(former.clone());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("its name is longer than {NAME_BYTES_MAX} bytes"));
        }
        let ids = [topic.group, topic.node].into_iter().chain(topic.device);
        let parts = ids.chain(name.split('/')).map(name_part);
        let plain = [self.name.clone()].into_iter().chain(parts);
        let plain = plain.collect::<Vec<_>>().join(".");
        check_name(&plain).map_err(|error| error.to_string())?;
        let is_of_other = self.streams.contains(&*plain)
            || (self.parts.stream)(&plain).is_some_and(|stored| {
                let field = stored.schema.fields.first();
                let text = field.and_then(|field| field.description.as_deref());
                stored.last > 0 && text.is_some_and(|text| !is_label_of(text, name))
            });
        if !is_of_other {
            return Ok(plain.into());
        }
        // Names of edge nodes and devices can differ in their case only, too.
        let exact = [
            topic.group,
            topic.node,
            topic.device.unwrap_or_default(),
            name,
        ]
        .join("/");
        let hash = digest(&SHA256, exact.as_bytes());
        let hash = hash.as_ref()[..HASH_BYTES].iter();
        let hash: String = hash.map(|byte| format!("{byte:02x}")).collect();
        let own = format!("{plain}-{hash}");
        check_name(&own).map_err(|error| error.to_string())?;
        match self.streams.contains(&*own) {
            true => Err(format!("another metric has the stream {own:?}")),
            false => Ok(own.into()),
        }
    }

    /// Whether one more metric has room. A stream that was there before has its room already: birth certificates that
    /// somebody made up do not take it.
    pub(super) fn has_room_for(&self, stream: &str) -> bool {
        self.streams.len() < self.metrics_max || (self.parts.stream)(stream).is_some()
    }
}
