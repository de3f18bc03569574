//! Opens a participant of the configured library.

use crate::{Backend, DdsError, Participant, ParticipantConfig};

/// Joins a domain.
///
/// # Errors
/// The configuration is invalid, or the library fails.
pub fn open(
    backend: Backend,
    config: &ParticipantConfig,
) -> Result<Box<dyn Participant>, DdsError> {
    config.check()?;
    config.check_host()?;
    match backend {
        #[cfg(feature = "rustdds")]
        Backend::Rustdds => crate::rust_dds::open(config),
        #[cfg(not(feature = "rustdds"))]
        Backend::Rustdds => Err(DdsError::Library {
            doing: "opening rustdds",
            why: "this program was built without it".into(),
        }),
        #[cfg(feature = "cyclone")]
        Backend::Cyclone => crate::cyclone::open(config),
    }
}
