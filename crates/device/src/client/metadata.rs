//! Asking for metadata (DPWS 1.1, section 5).

use chappe_dpws::Dialect;
use chappe_dpws::metadata::{Deviation, Metadata};
use chappe_identity::{CertificateName, Contact};
use chappe_soap::Envelope;

use super::{Note, Shared};
use crate::Error;

/// The operation that may be sent to all known devices at the same time.
pub(super) const GET: &str = "Get";
/// The largest answer to it. Default 256 KiB: the metadata of 64 services take 40.
pub(super) const GET_BYTES: usize = 256 << 10;

pub(super) fn deviation_note(deviation: &Deviation) -> Note {
    Note {
        reason: "odd metadata",
        detail: deviation.to_string(),
        hint: None,
    }
}

/// An answer with metadata.
pub(super) struct MetadataAnswer {
    pub(super) metadata: Metadata,
    pub(super) dialect: Dialect,
    pub(super) deviations: Vec<Deviation>,
    /// The certificate that signed it.
    pub(super) signer: Option<CertificateName>,
}

/// Requests metadata and reads the answer. If earlier answers are signed by `signer`, this one has to be.
pub(super) async fn request_metadata(
    shared: &Shared,
    contact: &Contact,
    request: &Envelope,
    operation: &'static str,
    signer: Option<&CertificateName>,
) -> Result<MetadataAnswer, Error> {
    let http = match operation {
        GET => &shared.small,
        _ => &shared.http,
    };
    let answer = shared.ask(http, contact, request, signer).await?;
    let (envelope, signer) = (answer.envelope, answer.signer);
    // The tree may have 64 MiB: it is read and freed there.
    let reading = http.parsers().run(move || {
        let body = envelope.and_then(|envelope| envelope.body.into_iter().next());
        body.as_ref().and_then(Metadata::from_element)
    });
    let read = reading.await?.ok_or_else(|| Error::Answer {
        operation,
        what: "it has no mex:Metadata".to_owned(),
    });
    let (metadata, dialect, deviations) = read?;
    Ok(MetadataAnswer {
        metadata,
        dialect,
        deviations,
        signer,
    })
}
