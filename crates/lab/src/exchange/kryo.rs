//! The exchange in GSN's own frames (Kryo) between our nodes: each publishes its stream by an exporter of kind
//! `gsn-zeromq-async`, and reads the others by wrappers of that kind. Times are those of GSN, in milliseconds.

use std::path::Path;

use super::links;
use super::message::Role;
use super::node::{offered, received};
use crate::Error;

/// The folder of the wrappers' files of a node.
pub(crate) const WRAPPERS: &str = "wrappers";
/// The folder of the exporters' files of a node.
pub(crate) const EXPORTERS: &str = "exporters";
/// GSN's ports.
const PROXY: u16 = 22_022;
const DIRECTORY: u16 = 22_023;

/// Writes the exporter of a node.
pub(crate) fn publish(role: &Role) -> Result<(), Error> {
    let host = links::address(role.index);
    let text = format!(
        "kind = \"gsn-zeromq-async\"\nstreams = [\"{}\"]\nlisten = \"tcp://{host}:{PROXY}\"\n\
         directory = \"tcp://{host}:{DIRECTORY}\"\n",
        offered(role.index)
    );
    write(&role.folder.join(EXPORTERS), "own", &text)
}

/// Writes a wrapper for each node.
pub(crate) fn subscribe(role: &Role) -> Result<(), Error> {
    for from in 0..role.nodes {
        let host = links::address(from);
        let text = format!(
            "kind = \"gsn-zeromq-async\"\naddress = \"tcp://{host}:{PROXY}\"\n\
             directory = \"tcp://{host}:{DIRECTORY}\"\nsensor = \"{}\"\nstream_name = \"{}\"\n\
             level = \"power\"\n",
            offered(from),
            received(from)
        );
        let name = format!("from-{from:02}");
        write(&role.folder.join(WRAPPERS), &name, &text)?;
    }
    Ok(())
}

/// Writes a file under another name and renames it, because the node watches its folders.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(format!("{name}.toml"));
    let before = path.with_extension("new");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&before, text))
        .and_then(|()| std::fs::rename(&before, &path))
        .map_err(Error::io(format!("writing {}", path.display())))
}
