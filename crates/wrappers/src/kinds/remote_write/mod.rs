//! Prometheus remote write, versions 1.0 and 2.0: as the receiver that servers and agents send samples to.
//!
//! Source: the Remote-Write specifications 1.0 and 2.0 (prometheus.io/docs/specs). The node takes the requests, checks
//! the credential, and passes the samples to the wrapper. Native histograms are refused, exemplars are not kept; both
//! show in the answer.

mod samples;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;

use super::series::{Intake, Options, Tables};
use crate::{Delivery, Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening};
use samples::Samples;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "remote_write",
    about: "samples that Prometheus and other agents send to this node by remote write",
    delivery: Delivery {
        acknowledges: "with status 204, after the samples are stored",
        resumes: "the sender repeats what was not answered",
        may_double: "no: a sample that its stream has, with the same labels, time and value, is not stored again",
        may_miss: "no, if the sender repeats",
        back_pressure: "status 503 with `Retry-After`",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `remote_write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The first part of the names of its streams; the name of the metric follows. Default: the name of the wrapper.
    prefix: Option<String>,
    /// Labels whose values become further parts of the names, so that each has its own streams.
    #[serde(default)]
    split_by: Vec<String>,
    /// Units of metrics, UCUM codes by name. Default: the unit that the sender states, or the one of the name's suffix,
    /// such as `_seconds`.
    #[serde(default)]
    units: BTreeMap<String, String>,
}

fn settings(file: &WrapperFile) -> Result<Options, DescriptorError> {
    let settings: Settings = file.settings()?;
    let options = Options {
        prefix: settings.prefix.unwrap_or_else(|| file.name.clone()),
        split_by: settings.split_by,
        units: settings.units,
        label: "label",
        reserved: &["value"],
    };
    options.check(file)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let options = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let streams_max = file.keys.limits.streams as usize;
    let tables = Tables::new(options, file.keys.level, streams_max);
    let samples = Samples::default();
    Ok(Box::new(Intake::new(
        samples,
        tables,
        opening.inbox,
        opening.condition,
    )))
}
