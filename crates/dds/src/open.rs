//! Opens a participant.

use crate::{DdsError, Participant, ParticipantConfig};

/// Joins a domain.
///
/// # Errors
/// The configuration is invalid, the library fails, or this program was built without it.
pub fn open(config: &ParticipantConfig) -> Result<Box<dyn Participant>, DdsError> {
    config.check()?;
    config.check_host()?;
    config.security.check_files()?;
    #[cfg(cyclone)]
    return crate::cyclone::open(config);
    #[cfg(not(cyclone))]
    Err(DdsError::Missing)
}

#[cfg(all(test, not(cyclone)))]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_a_participant_is_refused() {
        println!("skipped: the tests of participants (built without the library: install CMake)");
        let refused = open(&ParticipantConfig::default()).map(drop);
        assert_eq!(refused, Err(DdsError::Missing));
    }
}
