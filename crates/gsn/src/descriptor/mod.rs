//! GSN's descriptors of virtual sensors: an XML file each.
//!
//! ```
//! let xml = r#"<virtual-sensor name="Mean">
//!   <processing-class>
//!     <class-name>ch.epfl.gsn.vsensor.BridgeVirtualSensor</class-name>
//!     <output-structure><field name="MEAN" type="double" unit="Cel"/></output-structure>
//!   </processing-class>
//!   <storage history-size="7d"/>
//!   <streams><stream name="data">
//!     <source alias="a" storage-size="10m" slide="1m">
//!       <address wrapper="local"><predicate key="query">select * from room</predicate></address>
//!       <query>select TEMPERATURE from wrapper</query>
//!     </source>
//!     <query>select avg(TEMPERATURE) as MEAN from a</query>
//!   </stream></streams>
//! </virtual-sensor>"#;
//! let error = chappe_gsn::descriptor::import("mean.xml", xml).unwrap_err();
//! assert_eq!(error.to_string(), "mean.xml:6:3: storage@history-size: \"7d\" is not a number, or a time \
//!     in s, m or h");
//! let imported = chappe_gsn::descriptor::import("mean.xml", &xml.replace("7d", "168h"))?;
//! assert_eq!(imported.descriptor.sources[0].sql.as_deref(), Some("select temperature from wrapper"));
//! # Ok::<(), chappe_stream::DescriptorError>(())
//! ```
//!
//! [`import`] makes Chappe's descriptor of a file, with one report line for each element and attribute:
//! taken, changed or ignored, and why. [`GsnDescriptor::read`] gives the file as it is, [`export`] is the
//! way back. Unknown attributes are reported and ignored, since deployments use many dialects. A
//! part that would change the data and has no counterpart is an error.
//!
//! The descriptors' attributes are described in GSN's own documentation; no code of GSN was used. Values of
//! passwords and database addresses are not kept.

mod classes;
mod export;
mod import;
mod model;
mod read;
mod report;
mod sql;
mod tree;
mod types;
mod wrappers;
mod write;

pub use export::{ExportError, export};
pub use import::{Imported, NeededLink, import};
pub use model::{
    Address, Extent, GsnDescriptor, History, OutputField, Place, Places, ProcessingClass, Source,
    Stream, WebCommand, WebField,
};
pub use report::{Outcome, Report, ReportLine};
pub use sql::{from_h2, to_h2};
pub(crate) use types::ucum;
