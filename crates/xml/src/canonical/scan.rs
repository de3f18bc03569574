//! Walking through a document to cut out elements.

use std::sync::Arc;

use super::{Exclusive, form};
use crate::text::tokens::{Token, Tokens};
use crate::{Element, Error, Limits, Name, Namespace};

/// Walks through the tags of a document and cuts out elements.
///
/// ```
/// use chappe_xml::{Limits, canonical::{Exclusive, Scanner, Step}};
/// let document = b"<a xmlns='urn:a'><b>1</b><b>2</b></a>";
/// let mut scanner = Scanner::new(document, Limits::default())?;
/// let mut fragments = Vec::new();
/// let mut open = None;
/// while let Some(step) = scanner.next_step()? {
///     match step {
///         Step::Start { .. } if scanner.depth() == 2 => open = Some(scanner.fragment_start()),
///         Step::End if scanner.depth() == 1 => {
///             fragments.extend(open.take().map(|start| scanner.fragment(start)));
///         }
///         _ => {}
///     }
/// }
/// let form = fragments.remove(1)?.canonical(&Exclusive::default())?;
/// assert_eq!(form, br#"<b xmlns="urn:a">2</b>"#);
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug)]
pub struct Scanner<'d> {
    tokens: Tokens<'d>,
    limits: Limits,
}

/// A tag of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A start tag.
    Start {
        /// The name of the element.
        name: Name,
        /// Its attributes with their normalised values, without namespace declarations.
        attributes: Vec<(Name, String)>,
    },
    /// The end of the innermost open element.
    End,
}

/// Where an element starts; see [`Scanner::fragment_start`].
#[derive(Debug, Clone)]
pub struct FragmentStart {
    offset: u64,
    depth: usize,
    declarations: Vec<(Arc<str>, Namespace)>,
}

impl<'d> Scanner<'d> {
    /// Creates a scanner of `document` and checks its size and encoding.
    ///
    /// # Errors
    /// The document exceeds a limit or is not UTF-8.
    pub fn new(document: &'d [u8], limits: Limits) -> Result<Self, Error> {
        Ok(Self {
            tokens: Tokens::new(document, limits)?,
            limits,
        })
    }

    /// The next tag; `None` after the end of the document.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit. The scanner is of no use afterwards.
    pub fn next_step(&mut self) -> Result<Option<Step>, Error> {
        loop {
            match self.tokens.next()? {
                Some(Token::Start) => {
                    let tag = self.tokens.tag();
                    let attributes = tag.attributes.iter();
                    let attributes = attributes.map(|it| (it.name(), it.value.to_string()));
                    return Ok(Some(Step::Start {
                        name: tag.name(),
                        attributes: attributes.collect(),
                    }));
                }
                Some(Token::End) => return Ok(Some(Step::End)),
                Some(Token::Text(_) | Token::Instruction(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The number of open elements.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.tokens.depth()
    }

    /// Right after the start tag of an element: its position, for [`fragment`](Self::fragment).
    #[must_use]
    pub fn fragment_start(&self) -> FragmentStart {
        let bindings = self.tokens.scope().bindings();
        FragmentStart {
            offset: self.tokens.start(),
            depth: self.tokens.depth(),
            declarations: bindings
                .map(|(prefix, namespace)| (prefix.clone(), namespace.clone()))
                .collect(),
        }
    }

    /// Right after the end tag of an element: its bytes, with the declarations in scope.
    ///
    /// # Errors
    /// The scanner is not after the end tag of the element that starts there.
    pub fn fragment(&self, start: FragmentStart) -> Result<Fragment<'d>, Error> {
        let misuse = Error::misuse("a fragment ends elsewhere than its element");
        if self.tokens.depth() + 1 != start.depth {
            return Err(misuse);
        }
        let text = self.tokens.slice(start.offset, self.tokens.offset());
        let text = text.filter(|text| text.starts_with('<') && text.ends_with('>'));
        Ok(Fragment {
            text: text.ok_or(misuse)?,
            declarations: start.declarations,
            limits: self.limits,
        })
    }
}

/// One element of a document, as bytes at their position, with the declarations in scope.
#[derive(Debug, Clone)]
pub struct Fragment<'d> {
    text: &'d str,
    declarations: Vec<(Arc<str>, Namespace)>,
    limits: Limits,
}

impl<'d> Fragment<'d> {
    /// The bytes of the element in its document.
    #[must_use]
    pub fn bytes(&self) -> &'d [u8] {
        self.text.as_bytes()
    }

    /// The canonical form.
    ///
    /// # Errors
    /// The form is too long.
    pub fn canonical(&self, exclusive: &Exclusive) -> Result<Vec<u8>, Error> {
        let mut form = Vec::new();
        self.canonicalize(exclusive, |bytes| form.extend_from_slice(bytes))?;
        Ok(form)
    }

    /// Writes the canonical form to `sink`, piece by piece.
    ///
    /// # Errors
    /// The form is too long; the sink has received its beginning.
    pub fn canonicalize(
        &self,
        exclusive: &Exclusive,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let around = self.declarations.iter();
        let around = around.map(|(prefix, namespace)| (prefix, namespace));
        // Its own declarations count twice, in scope and in its tag.
        let limits = Limits {
            namespaces: self.limits.namespaces.saturating_mul(2),
            ..self.limits
        };
        let mut tokens = Tokens::of_element(self.text, around, limits);
        form::write(&mut tokens, exclusive, &mut sink)
    }

    /// The canonical form, and the tree that is read from it: exactly what a signature of the form
    /// covers. A prefix that only text uses is not declared in it unless it is inclusive.
    ///
    /// # Errors
    /// The form is too long, or the tree beyond a limit.
    pub fn read(&self, exclusive: &Exclusive) -> Result<(Element, Vec<u8>), Error> {
        let form = self.canonical(exclusive)?;
        let limits = Limits {
            bytes: self.limits.bytes.max(form.len()),
            ..self.limits
        };
        Ok((Element::parse_within(&form, limits)?, form))
    }
}
