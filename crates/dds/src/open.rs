//! Opens a participant of the library that the configuration names.

use crate::{Backend, DdsError, Participant, ParticipantConfig};

/// Takes part in a domain.
///
/// # Errors
/// What is wrong with the configuration, or what the library says.
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
