//! The protocols, one module each.

pub(crate) mod browse;
pub(crate) mod clock;
#[cfg(feature = "coap")]
pub(crate) mod coap;
#[cfg(feature = "dds")]
pub(crate) mod dds;
pub(crate) mod dpws;
pub(crate) mod file;
pub(crate) mod gsn;
pub(crate) mod http;
#[cfg(feature = "line-protocol")]
pub(crate) mod influxdb;
pub(crate) mod lines;
#[cfg(feature = "modbus")]
pub(crate) mod modbus;
#[cfg(feature = "mqtt")]
pub(crate) mod mqtt;
#[cfg(feature = "opcua")]
pub(crate) mod opcua;
mod pipeline;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod program;
#[cfg(feature = "remote-write")]
pub(crate) mod remote_write;
#[cfg(any(feature = "line-protocol", feature = "remote-write"))]
mod series;
#[cfg(feature = "mqtt")]
pub(crate) mod sparkplug;
pub(crate) mod sqlite;
pub(crate) mod system;
pub(crate) mod tables;
mod template;
