//! Filters of notifications in dialects that a service brings along (WS-Eventing, section 4.1).

use std::fmt;
use std::sync::Arc;

use chappe_xml::{Element, Str};

/// Decides whether a notification is sent to a subscription. The arguments are its action and the child
/// of its body.
pub type NotificationFilter = Arc<dyn Fn(&str, &Element) -> bool + Send + Sync>;

type Compile = dyn Fn(&Element) -> Result<NotificationFilter, String> + Send + Sync;

/// A filter dialect beside that of actions, which every source has.
///
/// ```
/// use std::sync::Arc;
/// use chappe_dpws::eventing::{FilterDialect, NotificationFilter};
/// // Only notifications whose text is the filter's.
/// let equals = FilterDialect::new("urn:x/equals", |filter| {
///     let wanted = filter.text().into_owned();
///     let filter: NotificationFilter = Arc::new(move |_, body| body.text() == wanted);
///     Ok(filter)
/// });
/// assert_eq!(equals.uri(), "urn:x/equals");
/// ```
#[derive(Clone)]
pub struct FilterDialect {
    uri: Str,
    compile: Arc<Compile>,
}

impl FilterDialect {
    /// A dialect with this URI. `compile` reads a `wse:Filter` element, with the namespace declarations
    /// in scope, when a subscription is requested; `Err` is the defect, for people. The filter runs for
    /// each notification and must be fast.
    #[must_use]
    pub fn new(
        uri: impl Into<Str>,
        compile: impl Fn(&Element) -> Result<NotificationFilter, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            uri: uri.into(),
            compile: Arc::new(compile),
        }
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    pub(super) fn compile(&self, filter: &Element) -> Result<NotificationFilter, String> {
        (self.compile)(filter)
    }
}

impl fmt::Debug for FilterDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilterDialect").field(&self.uri).finish()
    }
}

impl PartialEq for FilterDialect {
    fn eq(&self, other: &Self) -> bool {
        self.uri == other.uri && Arc::ptr_eq(&self.compile, &other.compile)
    }
}

impl Eq for FilterDialect {}
