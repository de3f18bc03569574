//! `#[derive(Message)]` and `#[derive(Fault)]` of `chappe-soap`, which documents and tests them.
//!
//! They write an `impl` from the names, types, attributes and doc comments of a struct or enum.
//! Everything else, such as schemas and the form of values, is in the traits that they implement.

#![forbid(unsafe_code)]

mod attributes;
mod enumeration;
mod fault;
mod message;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct or an enum a message.
///
/// Attributes of fields: `#[attribute]`, `#[text]`, `#[choice]`, `#[unit("…")]`,
/// `#[sample_period_ms(…)]`; of fields and variants: `#[name("…")]`; of the type:
/// `#[message(namespace = "…")]`, the namespace of its elements if it is not that of the message, and
/// `#[message(crate = "…")]`, the path of `chappe-soap` if it is re-exported.
#[proc_macro_derive(
    Message,
    attributes(attribute, text, choice, unit, sample_period_ms, name, message)
)]
pub fn message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let written = message::derive(&input);
    written
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes an enum the faults of an operation.
///
/// Attributes: `#[name("…")]` of variants, `#[message(crate = "…")]` of the type; those of a message's fields at named
/// fields.
#[proc_macro_derive(
    Fault,
    attributes(attribute, text, choice, unit, sample_period_ms, name, message)
)]
pub fn fault(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let written = fault::derive(&input);
    written
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
