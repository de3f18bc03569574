//! `impl Message` for structs with named fields and enums without fields.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DataEnum, DeriveInput, Error, Fields, FieldsNamed, Result};

use crate::attributes::{Names, doc, refuse_generics, root, sample_period_ms, text, unraw};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    refuse_generics(input)?;
    let body = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => structure(input, fields)?,
            Fields::Unnamed(_) => {
                let message =
                    "the fields of a message have names: `struct Temperature { celsius: f64 }`";
                return Err(Error::new_spanned(&data.fields, message));
            }
            Fields::Unit => {
                let message = "a message without content is `()`, or `struct Nothing {}`";
                return Err(Error::new_spanned(&input.ident, message));
            }
        },
        Data::Enum(data) => enumeration(input, data)?,
        Data::Union(_) => {
            let message = "a message is a struct or an enum";
            return Err(Error::new_spanned(&input.ident, message));
        }
    };
    let (root, ident) = (root(input)?, &input.ident);
    Ok(quote! {
        const _: () = {
            use #root::message as __message;

            impl __message::Message for #ident {
                #body
            }
        };
    })
}

fn structure(input: &DeriveInput, fields: &FieldsNamed) -> Result<TokenStream> {
    let (type_name, type_doc) = (unraw(&input.ident), doc(&input.attrs));
    let mut names = Names::default();
    let (mut declared, mut written) = (Vec::new(), Vec::new());
    let (mut slots, mut arms, mut finished) = (Vec::new(), Vec::new(), Vec::new());
    let mut all_names = Vec::new();
    for (position, field) in fields.named.iter().enumerate() {
        let Some(ident) = &field.ident else { continue };
        let (data_type, field_doc) = (&field.ty, doc(&field.attrs));
        let name = names.take(&field.attrs, ident)?;
        let unit = text(&field.attrs, "unit", "Cel")?;
        let period = sample_period_ms(&field.attrs)?;
        let is_quantity = unit
            .is_some()
            .then(|| quote!(__fields.is_quantity::<#data_type>();));
        let is_sampled = period
            .is_some()
            .then(|| quote!(__fields.is_sampled::<#data_type>();));
        let unit = unit.map_or_else(String::new, |unit| unit.value());
        let period = match period {
            Some(period) => quote!(::core::option::Option::Some(#period)),
            None => quote!(::core::option::Option::None),
        };
        declared.push(quote! {
            #is_quantity
            #is_sampled
            __fields.field::<#data_type>(#name, __message::Notes {
                doc: #field_doc,
                unit: #unit,
                sample_period_ms: #period,
            });
        });
        written.push(quote!(__writer.field(#name, &self.#ident)?;));
        let slot = format_ident!("__slot_{position}");
        slots.push(quote! {
            let mut #slot = <#data_type as __message::Field>::Slot::default();
        });
        arms.push(quote! {
            #position => __reader.field::<#data_type>(#name, &mut #slot)?,
        });
        finished.push(quote! {
            #ident: __message::Reader::finish::<#data_type>(#name, #slot)?,
        });
        all_names.push(name);
    }
    Ok(quote! {
        fn declare(types: &mut __message::Types) -> __message::Name {
            types.structure::<Self>(#type_name, #type_doc, |__fields| { #(#declared)* })
        }

        fn write(
            &self,
            __writer: &mut __message::Writer<'_>,
        ) -> ::core::result::Result<(), __message::WriteError> {
            #(#written)*
            ::core::result::Result::Ok(())
        }

        fn read(
            __reader: &mut __message::Reader<'_>,
        ) -> ::core::result::Result<Self, __message::ReadError> {
            #(#slots)*
            while let ::core::option::Option::Some(__position) =
                __reader.child(&[#(#all_names),*])?
            {
                match __position {
                    #(#arms)*
                    _ => {}
                }
            }
            ::core::result::Result::Ok(Self { #(#finished)* })
        }
    })
}

fn enumeration(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if data.variants.is_empty() {
        let message = "an enum without variants has no value: add one";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let (type_name, type_doc) = (unraw(&input.ident), doc(&input.attrs));
    let mut names = Names::default();
    let (mut declared, mut written, mut arms) = (Vec::new(), Vec::new(), Vec::new());
    let mut all_names = Vec::new();
    for (position, variant) in data.variants.iter().enumerate() {
        if !matches!(variant.fields, Fields::Unit) {
            let message = "a variant of a message has no fields: use a struct whose fields are \
                           `Option`; faults have fields by `#[derive(Fault)]`";
            return Err(Error::new_spanned(&variant.fields, message));
        }
        let ident = &variant.ident;
        let (name, variant_doc) = (names.take(&variant.attrs, ident)?, doc(&variant.attrs));
        declared.push(quote!((#name, #variant_doc)));
        written.push(quote!(Self::#ident => #name));
        arms.push(quote!(#position => Self::#ident));
        all_names.push(name);
    }
    // The last variant is the rest, since the reader returns no other position.
    let last = arms.pop();
    let rest = data.variants.last().map(|variant| &variant.ident);
    let rest = last.map(|_| quote!(_ => Self::#rest));
    Ok(quote! {
        fn declare(types: &mut __message::Types) -> __message::Name {
            types.enumeration::<Self>(#type_name, #type_doc, &[#(#declared),*])
        }

        fn write(
            &self,
            __writer: &mut __message::Writer<'_>,
        ) -> ::core::result::Result<(), __message::WriteError> {
            let __text = match self { #(#written),* };
            __writer.text(__text)
        }

        fn read(
            __reader: &mut __message::Reader<'_>,
        ) -> ::core::result::Result<Self, __message::ReadError> {
            let __position = __reader.variant(&[#(#all_names),*])?;
            ::core::result::Result::Ok(match __position { #(#arms,)* #rest })
        }
    })
}
