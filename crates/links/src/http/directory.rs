//! The directory over HTTP.

use crate::handle::Links;
use crate::serialization::DOCUMENT_BYTES_MAX;
use crate::{HttpRefusal, Reader, Serialization, directory};

impl Links {
    /// The directory for other nodes: those of the streams `streams` (a name, or a prefix ending in
    /// `*`; empty: the list of names) that `reader` may read and `is_visible` accepts, as documents.
    ///
    /// # Errors
    /// An invalid selection.
    pub fn http_directory(
        &self,
        streams: &str,
        serialization: Serialization,
        reader: &Reader,
        is_visible: impl Fn(&str) -> bool,
    ) -> Result<bytes::Bytes, HttpRefusal> {
        let mut entries = self.shared().host.directory(reader);
        // All names refer to the same stream.
        entries.retain(|entry| entry.names.first().is_some_and(|name| is_visible(name)));
        let question = format!("{streams}\n{}", serialization.as_str());
        directory::answer(question.as_bytes(), &entries, DOCUMENT_BYTES_MAX)
            .map_err(|error| HttpRefusal::new(400, "no selection", error.to_string()))
    }
}
