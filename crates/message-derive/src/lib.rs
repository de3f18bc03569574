//! `#[derive(Message)]` and `#[derive(Fault)]` of `chappe-soap`, which documents and tests them, and of `chappe-device`.
//!
//! They write an `impl` from the names, types, attributes and doc comments of a struct or enum.
//! Everything else, such as schemas and the form of values, is in the traits that they implement.
//! A macro cannot see where it was imported from, so each of the two crates exports its own pair, which names that crate:
//! a program needs no other dependency than the crate that it uses.

#![forbid(unsafe_code)]

mod attributes;
mod enumeration;
mod fault;
mod message;

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, parse_macro_input};

type Derive = fn(&DeriveInput, proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream>;

fn written(derive: Derive, input: &DeriveInput, root: proc_macro2::TokenStream) -> TokenStream {
    derive(input, root)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a struct or an enum a message.
///
/// Attributes of fields: `#[attribute]`, `#[text]`, `#[choice]`, `#[unit("…")]`,
/// `#[sample_period_ms(…)]`; of fields and variants: `#[name("…")]`; of the type:
/// `#[message(namespace = "…")]`, the namespace of its elements if it is not that of the message, and
/// `#[message(crate = "…")]`, the path of this crate if it is renamed or re-exported.
#[proc_macro_derive(
    Message,
    attributes(attribute, text, choice, unit, sample_period_ms, name, message)
)]
pub fn message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    written(message::derive, &input, quote!(::chappe_soap))
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
    written(fault::derive, &input, quote!(::chappe_soap))
}

/// Makes a struct or an enum a message.
///
/// Attributes of fields: `#[attribute]`, `#[text]`, `#[choice]`, `#[unit("…")]`,
/// `#[sample_period_ms(…)]`; of fields and variants: `#[name("…")]`; of the type:
/// `#[message(namespace = "…")]`, the namespace of its elements if it is not that of the message, and
/// `#[message(crate = "…")]`, the path of this crate if it is renamed or re-exported.
#[proc_macro_derive(
    DeviceMessage,
    attributes(attribute, text, choice, unit, sample_period_ms, name, message)
)]
pub fn device_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    written(message::derive, &input, quote!(::chappe_device))
}

/// Makes an enum the faults of an operation.
///
/// Attributes: `#[name("…")]` of variants, `#[message(crate = "…")]` of the type; those of a message's fields at named
/// fields.
#[proc_macro_derive(
    DeviceFault,
    attributes(attribute, text, choice, unit, sample_period_ms, name, message)
)]
pub fn device_fault(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    written(fault::derive, &input, quote!(::chappe_device))
}
