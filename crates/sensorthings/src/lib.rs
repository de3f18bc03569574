//! OGC SensorThings API Part 1: Sensing 1.1 (OGC 18-088), without input and output.
//!
//! A request is a [`ResourcePath`] and [`Options`]; [`answer`] evaluates both against a [`Source`], which
//! has the entities. Observations may be many, so the source reads them itself, by the bounds of time that
//! [`time_bounds`] finds in a filter. [`body`] reads what clients create.
//!
//! It does not do what the standard calls extensions: MultiDatastreams, MQTT and batches. Functions on
//! geometries are refused ([`Fault::Unsupported`]).

#![forbid(unsafe_code)]

mod answer;
pub mod body;
mod bounds;
mod encode;
mod evaluate;
mod expression;
mod fault;
mod functions;
mod lexer;
pub mod model;
mod options;
mod order;
mod parser;
mod path;
mod source;
mod value;

pub use answer::{Answer, Limits, Request, answer};
pub use bounds::{constant, equal_text, time_bounds};
pub use encode::{decode_percent, encode_percent, quoted};
pub use evaluate::{Scope, evaluate, is_true};
pub use expression::{Arithmetic, Comparison, Expression, Function};
pub use fault::Fault;
pub use model::{EntityType, Link};
pub use options::{Expand, FILTER_BYTES_MAX, Options, QUERY_BYTES_MAX};
pub use order::{Key, Order};
pub use parser::parse_filter;
pub use path::{ResourcePath, Step, Tail};
pub use source::{Entity, EntityScope, Observations, ObservationsOf, Resume, Source, Wanted};
pub use value::Value;
