//! `impl Message` for structs with named fields.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, FieldsNamed, Ident, LitStr, Result, Type};

use crate::attributes::{
    Names, Options, doc, flag, refuse_generics, sample_period_ms, text, unraw,
};
use crate::enumeration;

pub(crate) fn derive(input: &DeriveInput, root: TokenStream) -> Result<TokenStream> {
    refuse_generics(input)?;
    let Options { root, namespace } = Options::of(input, root)?;
    let (body, further) = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => {
                let (name, doc) = (unraw(&input.ident), doc(&input.attrs));
                let body = structure((&name, &doc), fields, namespace.as_ref())?;
                (body, TokenStream::new())
            }
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
        Data::Enum(data) => enumeration::derive(input, data, namespace.as_ref())?,
        Data::Union(_) => {
            let message = "a message is a struct or an enum";
            return Err(Error::new_spanned(&input.ident, message));
        }
    };
    let ident = &input.ident;
    Ok(quote! {
        const _: () = {
            use #root::message as __message;

            impl __message::Message for #ident {
                #body
            }

            #further
        };
    })
}

/// The body of a function, in the namespace of the type's elements.
pub(crate) fn in_namespace(
    namespace: Option<&LitStr>,
    io: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    match namespace {
        Some(namespace) => quote!(#io.within(#namespace, |#io| { #body })),
        None => body.clone(),
    }
}

/// The namespace as an `Option<&'static str>`.
pub(crate) fn namespace_value(namespace: Option<&LitStr>) -> TokenStream {
    match namespace {
        Some(namespace) => quote!(::core::option::Option::Some(#namespace)),
        None => quote!(::core::option::Option::None),
    }
}

/// The code of a struct, field by field.
#[derive(Default)]
struct Parts {
    /// Elements and attributes, for the schema.
    declared: Vec<TokenStream>,
    /// Writes attributes, which come first, and content.
    written: (Vec<TokenStream>, Vec<TokenStream>),
    slots: Vec<TokenStream>,
    attributes: Names,
    attribute_arms: Vec<TokenStream>,
    elements: Names,
    element_arms: Vec<TokenStream>,
    /// The types of choices, and what reads each.
    choices: Vec<(TokenStream, TokenStream)>,
    /// The value of each field at the end.
    finished: Vec<TokenStream>,
    has_text: bool,
}

impl Parts {
    fn add(&mut self, field: &Field, ident: &Ident, position: usize) -> Result<()> {
        let kinds = [
            flag(&field.attrs, "attribute")?,
            flag(&field.attrs, "text")?,
            flag(&field.attrs, "choice")?,
        ];
        let (data_type, slot) = (&field.ty, format_ident!("__slot_{position}"));
        match kinds {
            [true, false, false] => self.attribute(field, ident, &slot),
            [false, true, false] => self.text(field, ident),
            [false, false, true] => {
                self.choice(data_type, ident, &slot);
                Ok(())
            }
            [false, false, false] => self.element(field, ident, &slot),
            _ => {
                let message = "a field is one of `#[attribute]`, `#[text]` and `#[choice]`";
                Err(Error::new_spanned(ident, message))
            }
        }
    }

    fn element(&mut self, field: &Field, ident: &Ident, slot: &Ident) -> Result<()> {
        let data_type = &field.ty;
        let name = self.elements.take(&field.attrs, ident)?;
        let notes = notes(field)?;
        self.declared.push(quote! {
            #notes
            __fields.field::<#data_type>(#name, __notes);
        });
        let written = quote!(__writer.field(#name, &self.#ident)?;);
        self.written.1.push(written);
        self.slots.push(quote! {
            let mut #slot = <#data_type as __message::Field>::Slot::default();
        });
        let position = self.element_arms.len();
        self.element_arms.push(quote! {
            #position => __reader.field::<#data_type>(#name, &mut #slot)?,
        });
        self.finished.push(quote! {
            #ident: __message::Reader::finish::<#data_type>(#name, #slot)?,
        });
        Ok(())
    }

    fn attribute(&mut self, field: &Field, ident: &Ident, slot: &Ident) -> Result<()> {
        let data_type = &field.ty;
        let name = self.attributes.take(&field.attrs, ident)?;
        let notes = notes(field)?;
        self.declared.push(quote! {
            #notes
            __fields.attribute::<#data_type>(#name, __notes);
        });
        let written = quote!(__writer.attribute(#name, &self.#ident)?;);
        self.written.0.push(written);
        self.slots.push(quote! {
            let mut #slot: ::core::option::Option<
                <#data_type as __message::AttributeField>::Value,
            > = ::core::option::Option::None;
        });
        let position = self.attribute_arms.len();
        self.attribute_arms.push(quote! {
            #position => {
                #slot = ::core::option::Option::Some(__message::Text::from_text(__text)?);
            }
        });
        self.finished.push(quote! {
            #ident: __message::Reader::finish_attribute::<#data_type>(#name, #slot)?,
        });
        Ok(())
    }

    fn text(&mut self, field: &Field, ident: &Ident) -> Result<()> {
        let data_type = &field.ty;
        if self.has_text {
            let message = "the text of an element is one field: remove `#[text]` from the others";
            return Err(Error::new_spanned(ident, message));
        }
        if text(&field.attrs, "unit", "Cel")?.is_some() {
            let message =
                "text with attributes has no unit: make the quantity an element of its own";
            return Err(Error::new_spanned(ident, message));
        }
        self.has_text = true;
        let field_doc = doc(&field.attrs);
        self.declared
            .push(quote!(__fields.text::<#data_type>(#field_doc);));
        let written = quote!(__writer.text(&__message::Text::to_text(&self.#ident))?;);
        self.written.1.push(written);
        self.finished.push(quote! {
            #ident: __reader.value(<#data_type as __message::Text>::from_text)?,
        });
        Ok(())
    }

    fn choice(&mut self, data_type: &Type, ident: &Ident, slot: &Ident) {
        self.declared.push(quote!(__fields.choice::<#data_type>();));
        let written = quote!(__writer.choice(&self.#ident)?;);
        self.written.1.push(written);
        self.slots.push(quote! {
            let mut #slot = <#data_type as __message::Field>::Slot::default();
        });
        let names = quote! {
            <<#data_type as __message::Field>::Item as __message::Choice>::NAMES
        };
        let read = quote!(__reader.choice::<#data_type>(__position, &mut #slot)?);
        self.choices.push((names, read));
        self.finished.push(quote! {
            #ident: __message::Reader::finish_choice::<#data_type>(#slot)?,
        });
    }

    /// Reads all attributes and children into their slots.
    fn read(&self) -> TokenStream {
        let (attributes, attribute_arms) = (self.attributes.all(), &self.attribute_arms);
        let attributes = (!attribute_arms.is_empty()).then(|| {
            quote! {
                __reader.attributes(&[#(#attributes),*], |__position, __text| {
                    match __position {
                        #(#attribute_arms)*
                        _ => {}
                    }
                    ::core::result::Result::Ok(())
                })?;
            }
        });
        let (names, arms) = (self.elements.all(), &self.element_arms);
        let children = match self.choices.is_empty() {
            // The text is read with the value of its field.
            true if self.has_text => TokenStream::new(),
            true => quote! {
                while let ::core::option::Option::Some(__position) =
                    __reader.child(&[#(#names),*])?
                {
                    match __position {
                        #(#arms)*
                        _ => {}
                    }
                }
            },
            false => {
                let choices = self.choices.iter().map(|(names, _)| names);
                let choice_arms = self.choices.iter().enumerate().map(|(index, (_, read))| {
                    let list = index + 1;
                    quote!(#list => #read,)
                });
                quote! {
                    while let ::core::option::Option::Some((__list, __position)) =
                        __reader.child_of(&[&[#(#names),*], #(#choices),*])?
                    {
                        match __list {
                            0 => match __position {
                                #(#arms)*
                                _ => {}
                            },
                            #(#choice_arms)*
                            _ => {}
                        }
                    }
                }
            }
        };
        quote! {
            #attributes
            #children
        }
    }
}

/// Binds `__notes`, and asserts that they fit the type.
fn notes(field: &Field) -> Result<TokenStream> {
    let (data_type, field_doc) = (&field.ty, doc(&field.attrs));
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
    Ok(quote! {
        #is_quantity
        #is_sampled
        let __notes = __message::Notes {
            doc: #field_doc,
            unit: #unit,
            sample_period_ms: #period,
        };
    })
}

/// The body of `impl Message` for a struct with these fields, whose type in the schema has this name and documentation.
pub(crate) fn structure(
    (type_name, type_doc): (&str, &str),
    fields: &FieldsNamed,
    namespace: Option<&LitStr>,
) -> Result<TokenStream> {
    let mut parts = Parts::default();
    for (position, field) in fields.named.iter().enumerate() {
        let Some(ident) = &field.ident else { continue };
        parts.add(field, ident, position)?;
    }
    let has_content = !parts.element_arms.is_empty() || !parts.choices.is_empty();
    if parts.has_text && has_content {
        let message = "text is not mixed with elements: make the other fields `#[attribute]`";
        return Err(Error::new_spanned(fields, message));
    }
    let (declared, slots, finished) = (&parts.declared, &parts.slots, &parts.finished);
    let (attributes, content) = &parts.written;
    let write = quote! {
        #(#attributes)*
        #(#content)*
        ::core::result::Result::Ok(())
    };
    let read = parts.read();
    let read = quote! {
        #(#slots)*
        #read
        ::core::result::Result::Ok(Self { #(#finished)* })
    };
    let write = in_namespace(namespace, &quote!(__writer), &write);
    let read = in_namespace(namespace, &quote!(__reader), &read);
    let namespace = namespace_value(namespace);
    Ok(quote! {
        fn declare(types: &mut __message::Types) -> __message::Name {
            types.structure::<Self>(#type_name, #type_doc, #namespace, |__fields| {
                #(#declared)*
            })
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
    })
}
