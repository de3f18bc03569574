//! Stream elements, schemas, windows, queries and virtual sensors.
//!
//! Wrappers produce [`StreamElement`]s and exporters consume them; a [`StreamSchema`] describes the
//! fields of a stream's elements. A [`Window`] holds the newest elements of a source, a [`Query`]
//! turns windows into rows ([`PlannedQuery`]: compiled, or by SQLite), and a [`Binding`] selects
//! the streams of a source. A [`Descriptor`] configures a [`VirtualSensor`], the machine that
//! combines these, and a [`trial::Trial`] runs it over elements that are at hand. A [`StreamStore`] stores streams on the log, each within its [`Retention`].

#![forbid(unsafe_code)]

pub mod binding;
mod codec;
pub mod compiled;
pub mod descriptor;
mod element;
mod exact;
mod fallback;
pub mod lines;
mod name;
mod plan;
mod query;
mod range;
mod retention;
mod sampling;
mod schema;
mod sensor;
pub mod sqlite;
mod statements;
mod store;
mod timestamp;
pub mod trial;
pub mod ucum;
pub mod view;
mod window;

pub use binding::{Binding, BindingPolicy, Candidate};
pub use codec::{
    CodecError, RECORD_BYTES_MAX, RECORD_HEAD_BYTES, decode_element, encode_element,
    record_version, validate_record,
};
pub use descriptor::{
    Descriptor, DescriptorError, MetadataQuery, MetadataValue, Selection, StreamQuery,
};
pub use element::{Epoch, Position, PositionError, Quality, Samples, StreamElement, Value};
pub use fallback::{Fallback, Sighting};
pub use name::{NAME_BYTES_MAX, NAME_PARTS_MAX, NameError, check_name, name_part};
pub use plan::{PlannedQuery, QueryPlan};
pub use query::{Query, QueryError, QueryLimits, QuerySource, RESERVED_COLUMNS, Row, column_name};
pub use range::{BucketValues, FieldBuckets, RANGE_BUCKETS_MAX, RangeBuckets};
pub use retention::Retention;
pub use schema::{Field, FieldType, SCHEMA_VERSIONS_MAX, SchemaError, StreamSchema};
pub use sensor::{
    SensorCommand, SensorCounters, SensorEvent, SensorInput, SensorLimits, SensorState,
};
pub use statements::VirtualSensor;
pub use store::{
    DeviceIdentity, Hole, Intake, IntakeError, NAMES_MAX, Opening, OpeningIntake, RawFollower,
    RawRecords, RenameError, Scan, StoreError, StreamFollower, StreamLog, StreamStore, Written,
    WrittenFollower, origin_cursor,
};
pub use timestamp::{CivilTime, Timestamp};
pub use window::{
    AHEAD, Arrival, EarlyPolicy, Extent, LatePolicy, Refusal, Slide, Timing, WINDOW_ELEMENTS_MAX,
    Window, WindowChange, WindowClock, WindowCounters, WindowLimits,
};
