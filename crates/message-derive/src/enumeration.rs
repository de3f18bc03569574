//! `impl Message` for enums: without fields a text with permitted values, otherwise a choice of
//! elements.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error, Fields, LitStr, Result};

use crate::attributes::{Names, doc, unraw};
use crate::message::{in_namespace, namespace_value};

/// The body of `impl Message`, and further items.
pub(crate) fn derive(
    input: &DeriveInput,
    data: &DataEnum,
    namespace: Option<&LitStr>,
) -> Result<(TokenStream, TokenStream)> {
    if data.variants.is_empty() {
        let message = "an enum without variants has no value: add one";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let is_text = data
        .variants
        .iter()
        .all(|variant| matches!(variant.fields, Fields::Unit));
    match is_text {
        true => text(input, data),
        false => choice(input, data, namespace),
    }
}

fn text(input: &DeriveInput, data: &DataEnum) -> Result<(TokenStream, TokenStream)> {
    let (ident, type_name) = (&input.ident, unraw(&input.ident));
    let type_doc = doc(&input.attrs);
    let mut names = Names::default();
    let (mut declared, mut written, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &data.variants {
        let ident = &variant.ident;
        let (name, variant_doc) = (
            names.take_value(&variant.attrs, ident)?,
            doc(&variant.attrs),
        );
        declared.push(quote!((#name, #variant_doc)));
        written.push(quote!(Self::#ident => #name));
        values.push(quote!(Self::#ident));
    }
    let (all_names, arms) = (names.all(), arms(&values));
    let message = quote! {
        fn declare(types: &mut __message::Types) -> __message::Name {
            types.enumeration::<Self>(#type_name, #type_doc, &[#(#declared),*])
        }

        fn write(
            &self,
            __writer: &mut __message::Writer<'_>,
        ) -> ::core::result::Result<(), __message::WriteError> {
            __writer.text(&__message::Text::to_text(self))
        }

        fn read(
            __reader: &mut __message::Reader<'_>,
        ) -> ::core::result::Result<Self, __message::ReadError> {
            __reader.value(<Self as __message::Text>::from_text)
        }
    };
    let values = quote! {
        impl __message::Text for #ident {
            fn to_text(&self) -> ::std::borrow::Cow<'_, str> {
                ::std::borrow::Cow::Borrowed(match self { #(#written),* })
            }

            fn from_text(
                __text: &str,
            ) -> ::core::result::Result<Self, __message::LexicalError> {
                let __position = __message::variant(&[#(#all_names),*], __text)?;
                ::core::result::Result::Ok(match __position { #arms })
            }
        }
    };
    Ok((message, values))
}

fn choice(
    input: &DeriveInput,
    data: &DataEnum,
    namespace: Option<&LitStr>,
) -> Result<(TokenStream, TokenStream)> {
    let (ident, type_name) = (&input.ident, unraw(&input.ident));
    let type_doc = doc(&input.attrs);
    let mut names = Names::default();
    let (mut declared, mut written, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &data.variants {
        let ident = &variant.ident;
        let (name, variant_doc) = (names.take(&variant.attrs, ident)?, doc(&variant.attrs));
        let data_type = match &variant.fields {
            Fields::Unit => quote!(()),
            Fields::Unnamed(one) if one.unnamed.len() == 1 => {
                let data_type = &one.unnamed[0].ty;
                quote!(#data_type)
            }
            fields => {
                let message = "a variant of a choice has one field without name: make the fields a \
                               struct with `#[derive(Message)]`, and write `Level(Level)`";
                return Err(Error::new_spanned(fields, message));
            }
        };
        declared.push(quote! {
            __fields.field::<#data_type>(#name, __message::Notes {
                doc: #variant_doc,
                ..::core::default::Default::default()
            });
        });
        let read = quote!(__reader.element::<#data_type>(#name)?);
        let (pattern, value, made) = match &variant.fields {
            Fields::Unit => (
                quote!(Self::#ident),
                quote!(&()),
                quote!({
                    #read;
                    Self::#ident
                }),
            ),
            _ => (
                quote!(Self::#ident(__value)),
                quote!(__value),
                quote!(Self::#ident(#read)),
            ),
        };
        written.push(quote!(#pattern => __writer.element(#name, #value)));
        values.push(made);
    }
    let (all_names, arms) = (names.all(), arms(&values));
    let declare = quote!(<Self as __message::Choice>::declare_alternatives(__fields));
    let namespace_value = namespace_value(namespace);
    let write = in_namespace(
        namespace,
        &quote!(__writer),
        &quote!(__message::Choice::write_alternative(self, __writer)),
    );
    let read = in_namespace(
        namespace,
        &quote!(__reader),
        &quote!(__reader.only_choice()),
    );
    let message = quote! {
        fn declare(types: &mut __message::Types) -> __message::Name {
            types.choice::<Self>(#type_name, #type_doc, #namespace_value, |__fields| { #declare })
        }

        fn write(
            &self,
            __writer: &mut __message::Writer<'_>,
        ) -> ::core::result::Result<(), __message::WriteError> {
            #write
        }

        fn read(
            __reader: &mut __message::Reader<'_>,
        ) -> ::core::result::Result<Self, __message::ReadError> {
            #read
        }
    };
    let choice = quote! {
        impl __message::Choice for #ident {
            const NAMES: &'static [&'static str] = &[#(#all_names),*];

            fn declare_alternatives(__fields: &mut __message::Fields<'_>) {
                #(#declared)*
            }

            fn write_alternative(
                &self,
                __writer: &mut __message::Writer<'_>,
            ) -> ::core::result::Result<(), __message::WriteError> {
                match self { #(#written),* }
            }

            fn read_alternative(
                __position: usize,
                __reader: &mut __message::Reader<'_>,
            ) -> ::core::result::Result<Self, __message::ReadError> {
                ::core::result::Result::Ok(match __position { #arms })
            }
        }
    };
    Ok((message, choice))
}

/// One arm for each position. The last is the rest, since the reader returns no other position.
fn arms(values: &[TokenStream]) -> TokenStream {
    let last = values.len().saturating_sub(1);
    let arms = values
        .iter()
        .enumerate()
        .map(|(position, value)| match position == last {
            true => quote!(_ => #value,),
            false => quote!(#position => #value,),
        });
    quote!(#(#arms)*)
}
