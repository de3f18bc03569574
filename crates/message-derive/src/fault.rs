//! `impl Faults` for enums whose variants have a message, or the fields of one.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, FieldsNamed, Ident, Result, Variant};

use crate::attributes::{Names, Options, doc, refuse_generics};
use crate::message;

pub(crate) fn derive(input: &DeriveInput, root: TokenStream) -> Result<TokenStream> {
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
    let mut variants = Vec::new();
    for variant in &data.variants {
        variants.push(Written::of(&input.ident, variant, &mut names)?);
    }
    let details = variants.iter().map(|variant| &variant.detail);
    let declared = variants.iter().map(|variant| &variant.declared);
    let written = variants.iter().map(|variant| &variant.written);
    let read = variants.iter().map(|variant| &variant.read);
    let all = names.all();
    let Options { root, .. } = Options::of(input, root)?;
    let ident = &input.ident;
    Ok(quote! {
        const _: () = {
            use #root::message as __message;

            #(#details)*

            impl __message::Faults for #ident {
                fn declare(
                    __types: &mut __message::Types,
                ) -> __message::FaultNames {
                    #(#declared)*
                    ::std::vec![#(#all),*]
                }

                fn into_fault(self, __namespace: &__message::Namespace) -> #root::Fault {
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

/// The code of a variant.
struct Written {
    /// The message of named fields.
    detail: TokenStream,
    declared: TokenStream,
    written: TokenStream,
    read: TokenStream,
}

impl Written {
    fn of(faults: &Ident, variant: &Variant, names: &mut Names) -> Result<Self> {
        let ident = &variant.ident;
        let name = names.take(&variant.attrs, ident)?;
        let variant_doc = doc(&variant.attrs);
        let reason = match variant_doc.is_empty() {
            true => words(&name),
            false => variant_doc.clone(),
        };
        let mut detail = TokenStream::new();
        // The type of the message, the patterns of the variant and of the message, and the message of the variant.
        let (detail_type, pattern, message) = match &variant.fields {
            Fields::Unit => (quote!(()), quote!(Self::#ident), quote!(())),
            Fields::Unnamed(one) if one.unnamed.len() == 1 => {
                let data_type = &one.unnamed[0].ty;
                let pattern = quote!(Self::#ident(__detail));
                (quote!(#data_type), pattern, quote!(__detail))
            }
            Fields::Named(fields) => {
                // The name of a Rust type tells types of one name in the schema apart.
                let own = format_ident!("__{faults}{ident}");
                detail = named_detail(&own, &name, fields)?;
                let fields = fields.named.iter().map(|field| &field.ident);
                let fields = quote!({ #(#fields),* });
                (
                    quote!(#own),
                    quote!(Self::#ident #fields),
                    quote!(#own #fields),
                )
            }
            Fields::Unnamed(_) => {
                let message = "a fault with several fields has names for them: \
                               `OutOfRange { low: f64, high: f64 }`";
                return Err(Error::new_spanned(&variant.fields, message));
            }
        };
        Ok(Self {
            detail,
            declared: quote! {
                __types.element::<#detail_type>(#name, #variant_doc);
            },
            written: quote! {
                #pattern => __message::declared(__namespace, #name, #reason, &#message),
            },
            read: quote! {
                if let ::core::option::Option::Some(#message) =
                    __message::detail_of::<#detail_type>(__fault, __namespace, #name)
                {
                    return ::core::option::Option::Some(#pattern);
                }
            },
        })
    }
}

/// A message of the fields of a variant.
fn named_detail(ident: &Ident, name: &str, fields: &FieldsNamed) -> Result<TokenStream> {
    let body = message::structure((name, ""), fields, None)?;
    let fields = fields.named.iter().map(|field| {
        let (ident, data_type) = (&field.ident, &field.ty);
        quote!(#ident: #data_type)
    });
    Ok(quote! {
        struct #ident { #(#fields),* }

        impl __message::Message for #ident {
            #body
        }
    })
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
