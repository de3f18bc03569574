//! Matching of scopes by the WS-Discovery 1.1 rule `rfc3986` (section 5.1).
//!
//! Scheme and authority match case-insensitively, the path by whole segments from the left; query
//! and fragment are ignored. A scope with dot segments matches nothing, as the rule demands.

/// Whether `scope` lies under `asked`.
///
/// ```
/// use chappe_registry::is_in_scope;
/// assert!(is_in_scope("sdc.ctxt.loc:/ward", "sdc.ctxt.loc:/ward/bed?x=1"));
/// assert!(!is_in_scope("sdc.ctxt.loc:/ward", "sdc.ctxt.loc:/wards"));
/// ```
#[must_use]
pub fn is_in_scope(asked: &str, scope: &str) -> bool {
    normalize(asked).is_some_and(|asked| lies_under(&asked, scope))
}

/// The part of `scope` the rule looks at, scheme and authority in lower case, no trailing slash;
/// `None` when a path segment is `.` or `..`.
pub(crate) fn normalize(scope: &str) -> Option<String> {
    let (head, path) = parts(scope)?;
    let mut normal = head.to_ascii_lowercase();
    normal.push_str(path);
    Some(normal)
}

/// Scheme with authority, and path without trailing slash; `None` if the path has dot segments.
fn parts(scope: &str) -> Option<(&str, &str)> {
    let end = scope.find(['?', '#']).unwrap_or(scope.len());
    let scope = scope.get(..end).unwrap_or(scope);
    let (head, path) = match scope.find("://") {
        Some(colon) => {
            let start = colon + 3;
            let rest = scope.get(start..).unwrap_or_default();
            scope.split_at(start + rest.find('/').unwrap_or(rest.len()))
        }
        None => scope.split_at(scope.find(':').map_or(0, |colon| colon + 1)),
    };
    let dots = |segment: &str| segment == "." || segment == "..";
    if path.contains("/.") && path.split('/').any(dots) || dots(path.split('/').next()?) {
        return None;
    }
    Some((head, path.trim_end_matches('/')))
}

/// Whether `scope` has a normal form whose first segments are those of the normal form `asked`.
/// Does not allocate: a search calls this for every candidate.
pub(crate) fn lies_under(asked: &str, scope: &str) -> bool {
    let Some((head, path)) = parts(scope) else {
        return false;
    };
    let lower = head.bytes().map(|byte| byte.to_ascii_lowercase());
    let mut normal = lower.chain(path.bytes());
    asked.bytes().all(|byte| normal.next() == Some(byte))
        && normal.next().is_none_or(|byte| byte == b'/')
}

/// Whether the first segments of the normal form `target` are those of the normal form `asked`.
pub(crate) fn covers(asked: &str, target: &str) -> bool {
    target
        .strip_prefix(asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(asked: &str, target: &str) -> bool {
        let Some(asked) = normalize(asked) else {
            return false;
        };
        let covered = normalize(target).is_some_and(|target| covers(&asked, &target));
        assert_eq!(lies_under(&asked, target), covered, "{asked} {target}");
        covered
    }

    #[test]
    fn whole_segments_match_from_the_left() {
        assert!(matches(
            "http://example.com/abc",
            "http://example.com/abc/def"
        ));
        assert!(matches(
            "http://example.com/abc/",
            "HTTP://EXAMPLE.COM/abc?q"
        ));
        assert!(!matches(
            "http://example.com/abc",
            "http://example.com/abcd"
        ));
        assert!(!matches("http://example.com/ABC", "http://example.com/abc"));
        assert!(!matches(
            "http://example.com/a/../b",
            "http://example.com/a/../b"
        ));
        assert!(!matches("http://example.com", "http://example.com/a/."));
        assert!(!matches("urn:", "urn:../a"));
        assert!(matches("http://example.com/a", "http://example.com/a/.b"));
        assert!(matches("sdc.ctxt.loc:/ward", "SDC.CTXT.LOC:/ward/bed?x=1"));
        assert!(!matches("http://example.com/a/b", "http://example.com/a"));
    }
}
