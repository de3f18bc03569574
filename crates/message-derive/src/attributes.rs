//! Attributes and doc comments of types, fields and variants.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Attribute, DeriveInput, Error, Expr, ExprLit, Ident, Lit, LitStr, Meta, Path, Result};

/// The doc comment as one text, its lines joined by spaces.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) if pair.path.is_ident("doc") => Some(text.value()),
            _ => None,
        }
    });
    let lines: Vec<String> = lines.collect();
    let words: Vec<&str> = lines
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    words.join(" ")
}

/// The attribute `#[message(…)]` of a type.
pub(crate) struct Options {
    /// The path of the crate with the traits.
    pub(crate) root: TokenStream,
    /// The namespace of the type's child elements, unless it is that of the message.
    pub(crate) namespace: Option<LitStr>,
}

impl Options {
    /// `root` is the crate that exports the macro.
    pub(crate) fn of(input: &DeriveInput, root: TokenStream) -> Result<Self> {
        let mut options = Self {
            root,
            namespace: None,
        };
        for attribute in named(&input.attrs, "message") {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    let path: Path = meta.value()?.parse::<LitStr>()?.parse()?;
                    options.root = quote!(#path);
                } else if meta.path.is_ident("namespace") {
                    options.namespace = Some(meta.value()?.parse()?);
                } else {
                    let message = "only `crate = \"…\"` and `namespace = \"…\"` are known here";
                    return Err(meta.error(message));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

/// Whether the attribute, such as `#[text]`, is there.
pub(crate) fn flag(attributes: &[Attribute], name: &'static str) -> Result<bool> {
    match single(attributes, name)? {
        Some(attribute) => attribute.meta.require_path_only().map(|_| true),
        None => Ok(false),
    }
}

fn named<'a>(
    attributes: &'a [Attribute],
    name: &'static str,
) -> impl Iterator<Item = &'a Attribute> {
    attributes
        .iter()
        .filter(move |attribute| attribute.path().is_ident(name))
}

/// The only attribute of this name.
fn single<'a>(attributes: &'a [Attribute], name: &'static str) -> Result<Option<&'a Attribute>> {
    let mut found = named(attributes, name);
    match (found.next(), found.next()) {
        (_, Some(second)) => Err(Error::new_spanned(
            second,
            format!("`#[{name}]` is repeated: remove one"),
        )),
        (first, None) => Ok(first),
    }
}

/// The text of an attribute such as `#[unit("Cel")]`.
pub(crate) fn text(
    attributes: &[Attribute],
    name: &'static str,
    example: &str,
) -> Result<Option<LitStr>> {
    let Some(attribute) = single(attributes, name)? else {
        return Ok(None);
    };
    let remedy = || {
        let message = format!("write a text, for example `#[{name}(\"{example}\")]`");
        Error::new_spanned(attribute, message)
    };
    let text: LitStr = attribute.parse_args().map_err(|_| remedy())?;
    match text.value().trim().is_empty() || text.value().trim() != text.value() {
        true => Err(remedy()),
        false => Ok(Some(text)),
    }
}

/// The period of `#[sample_period_ms(4)]`.
pub(crate) fn sample_period_ms(attributes: &[Attribute]) -> Result<Option<f64>> {
    let Some(attribute) = single(attributes, "sample_period_ms")? else {
        return Ok(None);
    };
    let period = match attribute.parse_args() {
        Ok(Lit::Int(number)) => number.base10_parse().ok(),
        Ok(Lit::Float(number)) => number.base10_parse().ok(),
        _ => None,
    };
    match period.filter(|period: &f64| *period > 0.0 && period.is_finite()) {
        Some(period) => Ok(Some(period)),
        None => Err(Error::new_spanned(
            attribute,
            "write milliseconds above zero, for example `#[sample_period_ms(4)]`",
        )),
    }
}

/// The names in messages of fields or variants, which must differ.
#[derive(Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// The name of the attribute, else that of the item, for an element or attribute.
    pub(crate) fn take(&mut self, attributes: &[Attribute], ident: &Ident) -> Result<String> {
        self.add(attributes, ident, true)
    }

    /// The same for a value, which may be any text.
    pub(crate) fn take_value(&mut self, attributes: &[Attribute], ident: &Ident) -> Result<String> {
        self.add(attributes, ident, false)
    }

    fn add(&mut self, attributes: &[Attribute], ident: &Ident, is_xml: bool) -> Result<String> {
        let own = text(attributes, "name", "Celsius")?;
        let span = own.as_ref().map_or(ident.span(), LitStr::span);
        let name = own.map_or_else(|| unraw(ident), |text| text.value());
        self.check(&name, span, is_xml)?;
        self.0.push(name.clone());
        Ok(name)
    }

    /// All names, in order.
    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }

    fn check(&self, name: &str, span: Span, is_xml: bool) -> Result<()> {
        if is_xml && !is_xml_name(name) {
            let message = "in XML a name starts with a letter or `_`, followed by letters, digits, \
                           `.`, `-` and `_`: choose another by `#[name(\"…\")]`";
            return Err(Error::new(span, message));
        }
        match self.0.iter().any(|known| known == name) {
            true => Err(Error::new(
                span,
                format!("{name} is there already: choose another name by `#[name(\"…\")]`"),
            )),
            false => Ok(()),
        }
    }
}

/// The text of an identifier without `r#`.
pub(crate) fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").unwrap_or(&text).to_owned()
}

/// A part of `NCName` (Namespaces in XML 1.0, production 4): letters are those of Unicode.
fn is_xml_name(name: &str) -> bool {
    let mut characters = name.chars();
    let is_start = |c: char| c.is_alphabetic() || c == '_';
    characters.next().is_some_and(is_start)
        && characters.all(|c| is_start(c) || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

/// Refuses type parameters, which have no name in a schema.
pub(crate) fn refuse_generics(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    let message = "a message has no parameters: write one type for each use";
    Err(Error::new_spanned(&input.generics, message))
}
