//! Goal: each format decodes what programs write, and one wrong record costs one element.
//! Method: a configuration, a message, and the elements and faults that follow, by format.

mod binary;
mod common;
mod config;
mod csv;
mod encode;
mod json;
mod key_value;
mod line_protocol;
mod nmea;
mod page;
mod programs;
mod regex;
mod senml;
mod streams;
mod xml;
