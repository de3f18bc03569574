//! Exclusive canonicalization: the one form of an element that digests and signatures are made of.
//!
//! It reads the bytes of a document, because an [`Element`](crate::Element) keeps no prefixes and they
//! are part of the form. The reader is the one that builds trees, so both see the same document. The
//! form goes to a sink piece by piece, such as a digest.
//!
//! A [`Scanner`] walks through a document and cuts out a [`Fragment`], one element with the
//! declarations around it, whose form it then writes. A fragment is bytes at a position. Nothing is
//! looked up again by name or identifier, so that the element that was verified is the element that
//! is used.
//!
//! Source: Exclusive XML Canonicalization 1.0 (W3C recommendation, RFC 3741), sections 2 and 3;
//! Canonical XML 1.0 (W3C recommendation, RFC 3076), section 2.3. Not supported by design: forms with
//! comments, inclusive canonicalization, node sets other than one whole element.
//!
//! ```
//! use chappe_xml::Limits;
//! use chappe_xml::canonical::{Exclusive, canonicalize};
//! let document = b"<x:a xmlns:y='urn:y' xmlns:x='urn:x' b = '1' a='2'><!-- c --><x:b/></x:a>";
//! let mut form: Vec<u8> = Vec::new();
//! canonicalize(document, &Exclusive::default(), Limits::default(), |bytes| form.extend(bytes))?;
//! let expected = br#"<x:a xmlns:x="urn:x" a="2" b="1"><x:b></x:b></x:a>"#;
//! assert_eq!(form, expected);
//! # Ok::<(), chappe_xml::Error>(())
//! ```

mod form;
mod scan;

use std::collections::BTreeSet;

use crate::text::tokens::Tokens;
use crate::{Error, Limits, Reason};

pub use scan::{Fragment, FragmentStart, Scanner, Step};

/// The identifier of exclusive canonicalization without comments.
pub const EXCLUSIVE: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";

/// Maximum bytes of a canonical form. Default 16 MiB: a namespace is repeated where it is used first
/// below each branch, so the form of a hostile document could be a thousand times longer than it.
pub const FORM_BYTES_MAX: usize = 16 << 20;

/// Maximum prefixes of a `PrefixList`. Default 64: peers list those that are in scope, about ten.
pub const INCLUSIVE_PREFIXES_MAX: usize = 64;

/// The parameters of exclusive canonicalization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusive {
    /// Prefixes, empty for the default namespace, whose declarations are part of the form even where
    /// no name uses them.
    inclusive: BTreeSet<String>,
    bytes_max: usize,
}

impl Default for Exclusive {
    fn default() -> Self {
        Self {
            inclusive: BTreeSet::new(),
            bytes_max: FORM_BYTES_MAX,
        }
    }
}

impl Exclusive {
    /// Adds the prefixes of an `InclusiveNamespaces` element's `PrefixList`: names separated by white
    /// space, `#default` for the default namespace.
    ///
    /// # Errors
    /// More than [`INCLUSIVE_PREFIXES_MAX`] prefixes.
    pub fn with_prefix_list(mut self, list: &str) -> Result<Self, Error> {
        for prefix in list.split_ascii_whitespace() {
            let prefix = if prefix == "#default" { "" } else { prefix };
            self.inclusive.insert(prefix.to_owned());
            if self.inclusive.len() > INCLUSIVE_PREFIXES_MAX {
                let (limit, bound) = ("inclusive prefixes", INCLUSIVE_PREFIXES_MAX);
                return Err(Error::at(0, Reason::Limit { limit, bound }));
            }
        }
        Ok(self)
    }

    /// Sets the maximum bytes of the form.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    fn includes(&self, prefix: &str) -> bool {
        self.inclusive.contains(prefix)
    }
}

/// Writes the canonical form of the root element of `document` to `sink`, piece by piece. On an error
/// the sink has received the beginning of the form.
///
/// # Errors
/// The document is malformed or beyond a limit, or the form is too long.
pub fn canonicalize(
    document: &[u8],
    exclusive: &Exclusive,
    limits: Limits,
    mut sink: impl FnMut(&[u8]),
) -> Result<(), Error> {
    form::write(&mut Tokens::new(document, limits)?, exclusive, &mut sink)
}
