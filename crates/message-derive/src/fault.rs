//! `impl Faults` for enums whose variants have at most one field.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result, Type};

use crate::attributes::{Names, Options, doc, refuse_generics};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    refuse_generics(input)?;
    let Data::Enum(data) = &input.data else {
        let message = "faults are an enum: `enum Refused { OutOfRange }`";
        return Err(Error::new_spanned(&input.ident, message));
    };
    if data.variants.is_empty() {
        let message = "an operation that never fails returns `Result<_, std::convert::Infallible>`";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let mut names = Names::default();
    let (mut declared, mut written, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &data.variants {
        let ident = &variant.ident;
        let name = names.take(&variant.attrs, ident)?;
        let variant_doc = doc(&variant.attrs);
        let reason = match variant_doc.is_empty() {
            true => words(&name),
            false => variant_doc.clone(),
        };
        let detail = detail(&variant.fields)?;
        let detail_type = detail.map_or_else(|| quote!(()), |detail| quote!(#detail));
        declared.push(quote! {
            __types.element::<#detail_type>(#name, #variant_doc);
        });
        written.push(match detail {
            Some(_) => quote! {
                Self::#ident(__detail) => {
                    __message::declared(__namespace, #name, #reason, __detail)
                }
            },
            None => quote! {
                Self::#ident => __message::declared(__namespace, #name, #reason, &()),
            },
        });
        let made = match detail {
            Some(_) => quote!(Self::#ident(__detail)),
            None => quote!({
                let () = __detail;
                Self::#ident
            }),
        };
        read.push(quote! {
            if let ::core::option::Option::Some(__detail) =
                __message::detail_of::<#detail_type>(__fault, __namespace, #name)
            {
                return ::core::option::Option::Some(#made);
            }
        });
    }
    let all = names.all();
    let Options { root, .. } = Options::of(input)?;
    let ident = &input.ident;
    Ok(quote! {
        const _: () = {
            use #root::message as __message;

            impl __message::Faults for #ident {
                fn declare(
                    __types: &mut __message::Types,
                ) -> __message::FaultNames {
                    #(#declared)*
                    ::std::vec![#(#all),*]
                }

                fn to_fault(&self, __namespace: &__message::Namespace) -> #root::Fault {
                    match self { #(#written)* }
                }

                fn from_fault(
                    __fault: &#root::Fault,
                    __namespace: &__message::Namespace,
                ) -> ::core::option::Option<Self> {
                    #(#read)*
                    ::core::option::Option::None
                }
            }
        };
    })
}

/// The type of the only field.
fn detail(fields: &Fields) -> Result<Option<&Type>> {
    match fields {
        Fields::Unit => Ok(None),
        Fields::Unnamed(one) if one.unnamed.len() == 1 => Ok(Some(&one.unnamed[0].ty)),
        _ => Err(Error::new_spanned(
            fields,
            "a fault has at most one field without name: make the fields a struct with \
             `#[derive(Message)]`, and write `OutOfRange(Limits)`",
        )),
    }
}

/// `OutOfRange` as "out of range".
fn words(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}
