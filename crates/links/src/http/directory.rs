//! The directory over HTTP.

use crate::handle::Links;
use crate::serialization::DOCUMENT_BYTES_MAX;
use crate::{HttpRefusal, Reader, Serialization, directory};

impl Links {
    /// The directory for other nodes, as documents: the streams that match `streams` (a name, or a
    /// prefix ending in `*`; empty: the list of names) and that `reader` may read.
    ///
    /// # Errors
    /// An invalid selection.
    pub fn http_directory(
        &self,
        streams: &str,
        serialization: Serialization,
        reader: &Reader,
    ) -> Result<bytes::Bytes, HttpRefusal> {
        let entries = self.shared().host.directory(reader);
        let question = format!("{streams}\n{}", serialization.as_str());
        directory::answer(question.as_bytes(), &entries, DOCUMENT_BYTES_MAX)
            .map_err(|error| HttpRefusal::new(400, "no selection", error.to_string()))
    }
}
