//! The settings that both kinds have.

use std::collections::BTreeMap;

use chappe_stream::ucum::Unit;
use chappe_stream::{DescriptorError, check_name};

use crate::WrapperFile;

/// Tags or labels that may be parts of the names of streams; reason: a name has at most 16 parts.
const SPLITS_MAX: usize = 8;

/// How streams are named.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The first parts of the names of streams.
    pub(crate) prefix: String,
    /// Tags whose values are further parts of the names.
    pub(crate) split_by: Vec<String>,
    /// Units by `NAME` or `NAME.FIELD`.
    pub(crate) units: BTreeMap<String, String>,
    /// `tag` or `label`: the word of the protocol.
    pub(crate) label: &'static str,
    /// Names of columns that no tag or label gets, because a field of each stream has them.
    pub(crate) reserved: &'static [&'static str],
}

impl Options {
    /// Checks the settings, and that the file has no keys of kinds that need a format.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn check(self, file: &WrapperFile) -> Result<Self, DescriptorError> {
        let own = |key: &str, hint: &str| {
            let message = "this kind makes its streams itself".to_owned();
            Err(file.fault(key, message, Some(hint.to_owned())))
        };
        if file.keys.format.is_some() {
            return own("format", "remove the key");
        }
        if !file.keys.streams.is_empty() {
            return own(
                "stream",
                "remove the tables; `prefix` and `split_by` name the streams",
            );
        }
        if let Err(error) = check_name(&self.prefix) {
            let hint = "write parts of a-z, 0-9, `_` and `-`, joined by dots".to_owned();
            return Err(file.fault("prefix", error.to_string(), Some(hint)));
        }
        if self.split_by.len() > SPLITS_MAX {
            let message = format!("there are more than {SPLITS_MAX} parts");
            return Err(file.fault("split_by", message, None));
        }
        fault_of_units(file, &self.units)?;
        Ok(self)
    }
}

/// Checks the units of a file.
///
/// # Errors
/// The first that is none.
fn fault_of_units(
    file: &WrapperFile,
    units: &BTreeMap<String, String>,
) -> Result<(), DescriptorError> {
    for (name, unit) in units {
        if let Err(error) = Unit::parse(unit) {
            let hint = "units are UCUM codes: Cel, kPa, By, %".to_owned();
            return Err(file.fault("units", format!("{name}: {error}"), Some(hint)));
        }
    }
    Ok(())
}
