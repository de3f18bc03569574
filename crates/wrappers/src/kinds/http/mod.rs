//! HTTP: a wrapper that polls a document, a wrapper that takes messages that clients send, and an exporter that
//! sends.

pub(in crate::kinds) mod peer;
mod poll;
mod push;
mod webhook;

pub(crate) use poll::WRAPPER as POLL;
pub(crate) use push::EXPORTER as PUSH;
pub(crate) use webhook::WRAPPER as WEBHOOK;
