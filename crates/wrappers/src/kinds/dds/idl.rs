//! The type that an IDL file of a wrapper's or exporter's file has.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use chappe_dds::types::{Structure, idl};
use chappe_stream::DescriptorError;

use crate::{CommonKeys, PeerFile};

/// Bytes of an IDL file that are read; reason: one more than the parser takes, so that it reports a longer one.
const IDL_BYTES_MAX: u64 = (1 << 20) + 1;

/// The struct with this name, or the last one, of an IDL file. Files that it includes are relative to it.
pub(super) fn structure<C: CommonKeys>(
    file: &PeerFile<C>,
    path: &Path,
    type_name: Option<&str>,
) -> Result<Arc<Structure>, DescriptorError> {
    let path = file.path(path);
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let read = |path: &Path| {
        let mut text = String::new();
        // A pipe or a device may never end.
        let is_file = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if !is_file.is_file() {
            return Err("it is not a file".to_owned());
        }
        let opened = File::open(path).map_err(|error| error.to_string())?;
        let mut bounded = opened.take(IDL_BYTES_MAX);
        bounded
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        Ok(text)
    };
    let name = path.display().to_string();
    let text = read(&path).map_err(|why| file.fault("idl", format!("{name}: {why}"), None))?;
    let types = idl(&name, &text, &mut |included| read(&folder.join(included)))
        .map_err(|error| file.fault("idl", error.to_string(), None))?;
    let wanted = type_name.map(|name| name.replace('/', "::"));
    let found = match &wanted {
        Some(wanted) => types.iter().find(|it| it.name == *wanted),
        None => types.last(),
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = types.iter().map(|it| &*it.name).collect();
        let message = format!("{name} has no such struct");
        file.fault(
            "type_name",
            message,
            Some(format!("it has {}", names.join(", "))),
        )
    })
}
