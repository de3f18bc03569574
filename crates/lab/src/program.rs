//! The program `chappe`, for scenarios that measure it the way users run it.

use std::path::PathBuf;

use crate::{Error, Settings, checkout};

impl Settings {
    /// The program under test: the one named by `program`; in a checkout, the release build of its
    /// current sources; elsewhere, the program `chappe` in the folder of this one.
    pub(crate) fn chappe(&self) -> Result<PathBuf, Error> {
        let path = match (&self.program, checkout::root()) {
            (Some(path), _) => path.clone(),
            (None, Some(root)) => {
                (self.progress)("building chappe");
                let arguments = ["--release", "-p", "chappe"];
                return checkout::build(&root, "chappe", &arguments);
            }
            (None, None) => std::env::current_exe()
                .map_err(Error::io("finding this program"))?
                .with_file_name("chappe"),
        };
        match path.is_file() {
            true => Ok(path),
            false => Err(Error::NoProgram { path }),
        }
    }
}
