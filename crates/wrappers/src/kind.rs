//! The kinds of wrappers and exporters: one entry for each protocol.

use std::sync::{Arc, Mutex, PoisonError};

use chappe_stream::DescriptorError;
use chappe_transport::Drops;
use schemars::Schema;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Exporter, ExporterFile, Mark, Notes, Sender, Wrapper, WrapperError, WrapperFile, kinds,
};

/// What a kind of wrapper promises, for the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// When the peer's message is acknowledged.
    pub acknowledges: &'static str,
    /// By what it continues after a restart.
    pub resumes: &'static str,
    /// When an element may be stored twice.
    pub may_double: &'static str,
    /// When a message may be missed.
    pub may_miss: &'static str,
    /// What holds the peer back.
    pub back_pressure: &'static str,
}

/// Prints a file for the peer at an address.
pub type Browse = fn(&str) -> Result<String, WrapperError>;

/// A kind of wrapper.
pub struct WrapperKind {
    /// The value of `kind` in its files.
    pub name: &'static str,
    /// What it reads, in one sentence.
    pub about: &'static str,
    /// What it promises.
    pub delivery: Delivery,
    /// Checks the keys of the kind.
    pub check: fn(&WrapperFile) -> Result<(), DescriptorError>,
    /// Opens a wrapper. It connects in its first step.
    pub open: fn(WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError>,
    /// The JSON Schema of the keys of the kind.
    pub schema: fn() -> Schema,
    /// Prints a file for a peer, as far as the peer describes itself.
    pub browse: Option<Browse>,
}

/// What a wrapper is opened with.
#[derive(Debug)]
pub struct WrapperOpening<'a> {
    /// Its file.
    pub file: &'a WrapperFile,
    /// The mark of the last stored batch.
    pub mark: Option<Mark>,
    /// Where it shows why it waits.
    pub condition: Condition,
    /// Where it passes on what its peer prints for people.
    pub notes: Notes,
    /// Where its sockets record what they drop.
    pub drops: Drops,
    /// The messages that clients send to the node for it. A kind that takes none drops this, and then
    /// they are refused.
    pub inbox: mpsc::Receiver<Inbound>,
}

/// A message that a client sent to the node for a wrapper.
#[derive(Debug)]
pub struct Inbound {
    /// The message.
    pub body: Vec<u8>,
    /// How it is to be read.
    pub form: Form,
    /// The account that sent it.
    pub sender: Sender,
    /// Answers the client; dropping it tells the client to send the message again.
    pub reply: oneshot::Sender<Result<Receipt, ShareExceeded>>,
}

/// How a message of a client is to be read, as its request tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// As the wrapper's file says.
    #[default]
    Plain,
    /// Points of the line protocol.
    LineProtocol {
        /// Nanoseconds of the unit of its times.
        unit_ns: i64,
        /// Whether it is compressed.
        is_gzip: bool,
    },
    /// A request of Prometheus remote write, compressed with snappy.
    RemoteWrite {
        /// Whether it is of version 2.0.
        is_version_2: bool,
    },
}

/// A message was not stored, because it needs more new streams than the share of its sender has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareExceeded {
    /// The bytes of the definitions of the new streams.
    pub definition_bytes: usize,
}

/// What became of a message that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    /// The elements that it became.
    pub elements: u64,
    /// 1 if it could not be decoded, or not all of it, and became a dead letter; of a [`Form`] with points, the
    /// number of points that could not.
    pub undecodable: u64,
    /// Elements that do not fit their streams and became dead letters.
    pub refused: u64,
    /// Why the first one was not stored, where the kind tells.
    pub reason: Option<String>,
    /// Whether it was refused because of its size.
    pub is_too_large: bool,
}

/// A kind of exporter.
pub struct ExporterKind {
    /// The value of `kind` in its files.
    pub name: &'static str,
    /// Where it writes, in one sentence.
    pub about: &'static str,
    /// When an element counts as written.
    pub written: &'static str,
    /// When an element may arrive twice.
    pub may_double: &'static str,
    /// Checks the keys of the kind.
    pub check: fn(&ExporterFile) -> Result<(), DescriptorError>,
    /// Opens an exporter. It connects in its first step.
    pub open: fn(ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError>,
    /// The JSON Schema of the keys of the kind.
    pub schema: fn() -> Schema,
}

/// What an exporter is opened with.
#[derive(Debug)]
pub struct ExporterOpening<'a> {
    /// Its file.
    pub file: &'a ExporterFile,
    /// Where it passes on what its peer prints for people.
    pub notes: Notes,
    /// Where its sockets record what they drop.
    pub drops: Drops,
}

/// Why a wrapper waits, if it does: a file does not exist yet, a peer has nothing new to say. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct Condition(Arc<Mutex<Option<String>>>);

impl Condition {
    /// It waits for this.
    pub fn waits(&self, reason: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.into());
    }

    /// It runs.
    pub fn runs(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Why it waits.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// All kinds of wrappers.
#[must_use]
pub fn wrapper_kinds() -> &'static [WrapperKind] {
    &[
        kinds::file::WRAPPER,
        kinds::program::WRAPPER,
        kinds::gsn::ASYNC_WRAPPER,
        kinds::gsn::PUSH_WRAPPER,
        kinds::gsn::SYNC_WRAPPER,
        kinds::gsn::REMOTE_WRAPPER,
        kinds::sqlite::WRAPPER,
        kinds::system::WRAPPER,
        kinds::clock::WRAPPER,
        kinds::http::POLL,
        kinds::http::WEBHOOK,
        kinds::lines::TCP,
        kinds::lines::UDP,
        #[cfg(feature = "line-protocol")]
        kinds::influxdb::WRAPPER,
        #[cfg(feature = "remote-write")]
        kinds::remote_write::WRAPPER,
        #[cfg(feature = "coap")]
        kinds::coap::WRAPPER,
        #[cfg(feature = "modbus")]
        kinds::modbus::WRAPPER,
        #[cfg(feature = "mqtt")]
        kinds::mqtt::WRAPPER,
        #[cfg(feature = "opcua")]
        kinds::opcua::WRAPPER,
        #[cfg(feature = "postgres")]
        kinds::postgres::WRAPPER,
        #[cfg(feature = "mqtt")]
        kinds::mqtt::HOME_ASSISTANT,
        #[cfg(feature = "mqtt")]
        kinds::sparkplug::WRAPPER,
        #[cfg(feature = "dds")]
        kinds::dds::WRAPPER,
        #[cfg(feature = "dds")]
        kinds::dds::ANY_WRAPPER,
    ]
}

/// All kinds of exporters.
#[must_use]
pub fn exporter_kinds() -> &'static [ExporterKind] {
    &[
        kinds::file::EXPORTER,
        kinds::tables::CSV,
        #[cfg(feature = "parquet")]
        kinds::tables::PARQUET,
        #[cfg(feature = "parquet")]
        kinds::tables::ARROW,
        kinds::http::PUSH,
        kinds::program::EXPORTER,
        #[cfg(feature = "line-protocol")]
        kinds::influxdb::EXPORTER,
        #[cfg(feature = "mqtt")]
        kinds::mqtt::EXPORTER,
        #[cfg(feature = "postgres")]
        kinds::postgres::EXPORTER,
        #[cfg(feature = "mqtt")]
        kinds::sparkplug::EXPORTER,
        kinds::dpws::EXPORTER,
        kinds::gsn::ASYNC_EXPORTER,
        kinds::gsn::PUSH_EXPORTER,
        kinds::gsn::SYNC_EXPORTER,
        #[cfg(feature = "dds")]
        kinds::dds::EXPORTER,
        #[cfg(feature = "dds")]
        kinds::dds::ANY_EXPORTER,
    ]
}

/// The databases and buckets that a wrapper of kind `influxdb` names; none of another kind.
#[must_use]
pub fn databases(file: &WrapperFile) -> Vec<String> {
    #[cfg(feature = "line-protocol")]
    if file.keys.kind == kinds::influxdb::WRAPPER.name {
        return kinds::influxdb::databases(file);
    }
    let _ = file;
    Vec::new()
}

/// Kinds of wrappers that are built with a feature, with its name.
const FEATURES_OF_WRAPPERS: [(&str, &str); 11] = [
    ("influxdb", "line-protocol"),
    ("remote_write", "remote-write"),
    ("coap", "coap"),
    ("modbus", "modbus"),
    ("mqtt", "mqtt"),
    ("opcua", "opcua"),
    ("postgres", "postgres"),
    ("home_assistant", "mqtt"),
    ("sparkplug", "mqtt"),
    ("dds", "dds"),
    ("dds_any", "dds"),
];

/// The same for kinds of exporters.
const FEATURES_OF_EXPORTERS: [(&str, &str); 8] = [
    ("parquet", "parquet"),
    ("arrow", "parquet"),
    ("influxdb", "line-protocol"),
    ("mqtt", "mqtt"),
    ("postgres", "postgres"),
    ("sparkplug", "mqtt"),
    ("dds", "dds"),
    ("dds_any", "dds"),
];

impl WrapperFile {
    /// Its kind, after a check of all its keys.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub fn kind(&self) -> Result<&'static WrapperKind, DescriptorError> {
        let kinds = wrapper_kinds().iter();
        let names = kinds.clone().map(|kind| kind.name);
        let name = &self.keys.kind;
        let mut kinds = kinds.filter(|kind| kind.name == name);
        let kind = kinds
            .next()
            .ok_or_else(|| self.unknown(name, names, &FEATURES_OF_WRAPPERS))?;
        (kind.check)(self)?;
        Ok(kind)
    }
}

impl ExporterFile {
    /// Its kind, after a check of all its keys.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub fn kind(&self) -> Result<&'static ExporterKind, DescriptorError> {
        let kinds = exporter_kinds().iter();
        let names = kinds.clone().map(|kind| kind.name);
        let name = &self.keys.kind;
        let mut kinds = kinds.filter(|kind| kind.name == name);
        let kind = kinds
            .next()
            .ok_or_else(|| self.unknown(name, names, &FEATURES_OF_EXPORTERS))?;
        (kind.check)(self)?;
        Ok(kind)
    }
}

impl<C: crate::CommonKeys> crate::PeerFile<C> {
    fn unknown<'n>(
        &self,
        name: &str,
        known: impl Iterator<Item = &'n str>,
        features: &[(&str, &str)],
    ) -> DescriptorError {
        if let Some((_, feature)) = features.iter().find(|(kind, _)| *kind == name) {
            let message = format!("this program was built without {name}");
            let hint = format!(
                "use a package, which has all kinds, or build it: cargo build --release --features {feature}"
            );
            return self.fault("kind", message, Some(hint));
        }
        let known: Vec<&str> = known.collect();
        let hint = format!("valid kinds: {}", known.join(", "));
        self.fault("kind", format!("{name:?} is not a kind"), Some(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/reference/wrappers-and-exporters.md");

    #[test]
    fn the_documentation_has_a_row_for_each_kind() {
        for kind in wrapper_kinds() {
            let Delivery {
                acknowledges,
                resumes,
                may_double,
                may_miss,
                back_pressure,
            } = kind.delivery;
            let name = kind.name;
            let row = format!(
                "| `{name}` | {acknowledges} | {resumes} | {may_double} | {may_miss} | {back_pressure} |"
            );
            assert!(DOCUMENT.contains(&row), "{row}");
        }
        for kind in exporter_kinds() {
            let row = format!(
                "| `{}` | {} | {} |",
                kind.name, kind.written, kind.may_double
            );
            assert!(DOCUMENT.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_kind_of_a_feature_is_named_with_it_where_it_is_not_built() {
        let wrappers: Vec<_> = wrapper_kinds().iter().map(|kind| kind.name).collect();
        for (kind, _) in FEATURES_OF_WRAPPERS {
            let text = format!("kind = {kind:?}");
            let error = WrapperFile::parse("w.toml".as_ref(), &text).unwrap().kind();
            let is_missing = error.is_err_and(|error| error.message.contains("built without"));
            assert_eq!(is_missing, !wrappers.contains(&kind), "{kind}");
        }
        let exporters: Vec<_> = exporter_kinds().iter().map(|kind| kind.name).collect();
        if cfg!(feature = "full") {
            let mut kinds = FEATURES_OF_WRAPPERS.iter();
            assert!(kinds.all(|(kind, _)| wrappers.contains(kind)));
            let mut kinds = FEATURES_OF_EXPORTERS.iter();
            assert!(kinds.all(|(kind, _)| exporters.contains(kind)));
        }
    }
}
