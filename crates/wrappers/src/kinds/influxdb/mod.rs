//! InfluxDB's line protocol over HTTP: as the server that agents and clients write to, and as the client of one.
//!
//! Source: the write APIs of InfluxDB 1.8 (`/write`) and 2 (`/api/v2/write`). The node takes the requests, checks
//! the credential, and passes the points to the wrapper.

mod export;
mod points;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;

use super::series::{Intake, Options, Tables};
use crate::{Delivery, Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening};
use points::Points;

pub(crate) use export::EXPORTER;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "influxdb",
    about: "points that agents and clients of InfluxDB write to this node over HTTP",
    delivery: Delivery {
        acknowledges: "with status 204, after the points are stored",
        resumes: "the sender repeats what was not answered",
        may_double: "no: a point that its stream has, with the same tags, time and values, is not stored again",
        may_miss: "no, if the sender repeats",
        back_pressure: "status 429 or 503 with `Retry-After`",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `influxdb`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The first part of the names of its streams; the measurement follows. Default: the name of the wrapper.
    prefix: Option<String>,
    /// Tags whose values become further parts of the names, so that each has its own streams.
    #[serde(default)]
    split_by: Vec<String>,
    /// The databases (version 1) and buckets (version 2) that it accepts. Default: all that no other wrapper names.
    #[serde(default)]
    databases: Vec<String>,
    /// Units of fields, UCUM codes by `MEASUREMENT.FIELD`. Default: by suffixes such as `_seconds`.
    #[serde(default)]
    units: BTreeMap<String, String>,
}

fn settings(file: &WrapperFile) -> Result<(Settings, Options), DescriptorError> {
    let mut settings: Settings = file.settings()?;
    let options = Options {
        prefix: settings.prefix.clone().unwrap_or_else(|| file.name.clone()),
        split_by: std::mem::take(&mut settings.split_by),
        units: std::mem::take(&mut settings.units),
        label: "tag",
        reserved: &[],
    };
    Ok((settings, options.check(file)?))
}

/// The databases and buckets that a wrapper of kind `influxdb` names.
pub(crate) fn databases(file: &WrapperFile) -> Vec<String> {
    settings(file).map_or_else(|_| Vec::new(), |(settings, _)| settings.databases)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (_, options) = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let streams_max = file.keys.limits.streams as usize;
    let tables = Tables::new(options, file.keys.level, streams_max);
    let intake = Intake::new(Points::default(), tables, opening.inbox, opening.condition);
    Ok(Box::new(intake))
}
