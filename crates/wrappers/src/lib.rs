//! Wrappers and exporters: how stream elements come from peers outside the node, and go to them.
//!
//! Every protocol implements one trait for each direction: [`Wrapper`] is the source, [`Exporter`] the
//! sink. Neither knows the log. The node is their host: it stores each [`Batch`] of a wrapper together
//! with its [`Mark`], and reads streams for an exporter by a cursor.
//!
//! [`dpws`] attaches a described device, without these traits: its events become elements by the
//! mappings of [`chappe_device::mapping`] that fit it.

#![forbid(unsafe_code)]

mod batch;
mod clock;
mod decode;
mod descriptor;
mod device;
pub mod dpws;
mod exporter;
mod inputs;
mod kind;
mod kinds;
mod node;
mod notes;
mod schema;
mod sent;
pub mod table_file;
mod wrapper;

pub use batch::{
    BATCH_BYTES_MAX, Batch, Lost, MARK_BYTES_MAX, Mark, MarkTooLong, Part, Sender,
    StreamDefinition, Undecodable, element_weight,
};
pub use descriptor::{
    CommandTable, CommonKeys, ExporterFile, ExporterKeys, FILE_BYTES_MAX, PeerFile, StartKey,
    TableStep, WrapperFile, WrapperKeys, WrapperLimits,
};
pub use device::{AnnouncedDevice, Argument, DeviceReport, Operation};
pub use exporter::{Delivered, Exporter, Partial, Refused, Written};
pub use inputs::{INPUT_BYTES_MAX, Inputs};
pub use kind::{
    Browse, Condition, Delivery, ExporterKind, ExporterOpening, Form, Inbound, Receipt,
    ShareExceeded, WrapperKind, WrapperOpening, databases, exporter_kinds, wrapper_kinds,
};
pub use kinds::browse::kind_of_address;
pub use kinds::program::{ProgramCheck, check_program};
pub use node::{NodeParts, StreamNow};
pub use notes::Notes;
pub use schema::{exporter_schema, wrapper_schema};

/// The lines that a program of kind `program` prints (docs/reference/programs.md).
pub mod program {
    pub use crate::kinds::program::{
        Answer, End, Line, Lines, Message, Reached, Refusal, StreamMessage,
    };
}

/// The protocol of kind `coap` as a machine.
#[cfg(feature = "coap")]
pub mod coap {
    pub use crate::kinds::coap::{Client, Event, Pace, Sum, Target};
}

/// Answers of Modbus devices, read without a device.
#[cfg(feature = "modbus")]
pub mod modbus {
    pub use crate::kinds::modbus::read_answer;
}

/// Messages of MQTT by which devices announce themselves, read without a connection.
#[cfg(feature = "mqtt")]
pub mod announced {
    pub use crate::kinds::mqtt::read_home_assistant as home_assistant;
    pub use crate::kinds::sparkplug::read as sparkplug;
}

pub use wrapper::{Command, Step, Wrapper, WrapperError};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use chappe_stream::{StreamElement, Timestamp, Value};

    use crate::{Condition, Mark, Notes, Wrapper, WrapperFile, WrapperOpening};

    /// A file with this text.
    pub(crate) fn wrapper_file(text: &str) -> WrapperFile {
        wrapper_file_in(Path::new(""), text)
    }

    /// A file with this text in a directory.
    pub(crate) fn wrapper_file_in(directory: &Path, text: &str) -> WrapperFile {
        let file = WrapperFile::parse(&directory.join("test.toml"), text);
        file.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a wrapper.
    pub(crate) fn open(file: &WrapperFile, mark: Option<Mark>) -> Box<dyn Wrapper> {
        let kind = file.kind().unwrap_or_else(|error| panic!("{error}"));
        let opened = (kind.open)(WrapperOpening {
            file,
            mark,
            condition: Condition::default(),
            notes: Notes::default(),
            drops: Default::default(),
            inbox: tokio::sync::mpsc::channel(1).1,
        });
        opened.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) use self::open as open_in;

    /// The pages of the kinds.
    const PAGES: &str = concat!(
        include_str!("../../../docs/reference/wrappers/files.md"),
        include_str!("../../../docs/reference/wrappers/network.md"),
        include_str!("../../../docs/reference/wrappers/metrics.md"),
        include_str!("../../../docs/reference/wrappers/mqtt.md"),
        include_str!("../../../docs/reference/wrappers/field.md"),
    );

    /// The example files in the section with this title of docs/reference/wrappers; each begins with a comment.
    pub(crate) fn examples(title: &str) -> Vec<String> {
        let start = PAGES.find(&format!("\n## `{title}`\n")).unwrap();
        let section = &PAGES[start + 4..];
        let section = &section[..section.find("\n## ").unwrap_or(section.len())];
        let mut found: Vec<String> = Vec::new();
        let mut is_file = false;
        for line in section.lines() {
            let Some(line) = line.strip_prefix("    ") else {
                continue;
            };
            if line.starts_with("# ") && line.ends_with(".toml") {
                found.push(String::new());
                is_file = true;
            }
            // Commands, and files of others, that follow.
            is_file &= !line.starts_with("$ ") && !line.ends_with(".yml");
            if let Some(example) = found.last_mut().filter(|_| is_file) {
                example.push_str(line);
                example.push('\n');
            }
        }
        found
    }

    /// An element with one number.
    pub(crate) fn element(value: f64) -> StreamElement {
        StreamElement {
            position: Default::default(),
            source_time: Timestamp(1),
            receive_time: Timestamp(2),
            key: None,
            values: vec![Value::Double(value)],
            quality: Default::default(),
            origin: None,
        }
    }
}
