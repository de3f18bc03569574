//! Paths to elements, attributes and texts of a tree: `Readings/Reading/@at`.
//!
//! A path is a list of steps separated by `/`: local names (in any namespace), `*`, or `{namespace}name`. The
//! last step may be an attribute `@name`, or `.` for the element itself. There is no step upwards or into
//! all descendants, so that the work of a path is at most the size of the tree.

use std::borrow::Cow;

use crate::Element;

/// The steps to an element, and the part to read there.
///
/// ```
/// use chappe_xml::{Element, path::Path};
/// let root = Element::parse(b"<a><b at='1'>x</b><b at='2'>y</b></a>")?;
/// assert_eq!(Path::parse("b/@at")?.first_text(&root).as_deref(), Some("1"));
/// assert_eq!(Path::parse("b")?.elements(&root).len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    steps: Vec<Step>,
    attribute: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    namespace: Option<String>,
    /// `None` for `*`.
    local: Option<String>,
}

/// A text that is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?} {reason}")]
pub struct PathError {
    /// The text.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// The text is not one.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let wrong = |reason| PathError {
            path: text.to_owned(),
            reason,
        };
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(attribute) = rest.strip_prefix('@') {
                if attribute.is_empty() || attribute.contains('/') {
                    return Err(wrong("continues after an attribute"));
                }
                return Ok(Self {
                    steps,
                    attribute: Some(attribute.to_owned()),
                });
            }
            let (namespace, after) = match rest.strip_prefix('{') {
                Some(open) => {
                    let (namespace, after) = open
                        .split_once('}')
                        .ok_or_else(|| wrong("lacks a closing brace"))?;
                    (Some(namespace.to_owned()), after)
                }
                None => (None, rest),
            };
            let (local, after) = after.split_once('/').unwrap_or((after, ""));
            match local {
                "" => return Err(wrong("has an empty step")),
                "." => {}
                "*" => steps.push(Step {
                    namespace,
                    local: None,
                }),
                _ => steps.push(Step {
                    namespace,
                    local: Some(local.to_owned()),
                }),
            }
            rest = after;
        }
        Ok(Self {
            steps,
            attribute: None,
        })
    }

    /// All elements that match the steps.
    #[must_use]
    pub fn elements<'a>(&self, root: &'a Element) -> Vec<&'a Element> {
        let mut here = vec![root];
        for step in &self.steps {
            here = here
                .into_iter()
                .flat_map(|element| element.elements().filter(|child| step.fits(child)))
                .collect();
        }
        here
    }

    /// The text of the first match: of the attribute, or of the element.
    #[must_use]
    pub fn first_text<'a>(&self, root: &'a Element) -> Option<Cow<'a, str>> {
        let text = |element: &'a Element| match &self.attribute {
            Some(name) => {
                let mut attributes = element.attributes.iter();
                let (_, value) = attributes.find(|(other, _)| other.local == name.as_str())?;
                Some(Cow::Borrowed(&**value))
            }
            None => Some(element.text()),
        };
        first(&self.steps, root, &text)
    }

    /// The child of the root that contains the first match, if the path has one step; otherwise the root.
    #[must_use]
    pub fn top<'a>(&self, root: &'a Element) -> &'a Element {
        match &self.steps[..] {
            [step] => root
                .elements()
                .find(|child| step.fits(child))
                .unwrap_or(root),
            _ => root,
        }
    }
}

/// The first text of an element that matches the steps, without looking at later ones.
fn first<'a>(
    steps: &[Step],
    from: &'a Element,
    text: &impl Fn(&'a Element) -> Option<Cow<'a, str>>,
) -> Option<Cow<'a, str>> {
    let Some((step, rest)) = steps.split_first() else {
        return text(from);
    };
    let mut children = from.elements().filter(|child| step.fits(child));
    children.find_map(|child| first(rest, child, text))
}

impl Step {
    fn fits(&self, element: &Element) -> bool {
        let is_named = |local: &str| element.name.local == local;
        let is_within = |namespace: &str| element.name.namespace == namespace;
        self.local.as_deref().is_none_or(is_named)
            && self.namespace.as_deref().is_none_or(is_within)
    }
}
