//! Matching of scopes by the WS-Discovery 1.1 rule `rfc3986` (section 5.1).
//!
//! Scheme and authority match whatever the case, the path by whole segments from the left; query
//! and fragment are not looked at. Dot segments make a scope match nothing, as the rule demands.

/// The part of `scope` the rule looks at, scheme and authority in lower case, no trailing slash;
/// `None` when a path segment is `.` or `..`.
pub(crate) fn normalize(scope: &str) -> Option<String> {
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
    if path
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return None;
    }
    let mut normal = head.to_ascii_lowercase();
    normal.push_str(path.trim_end_matches('/'));
    Some(normal)
}

/// Whether the normal form `target` begins with all segments of the normal form `asked`.
pub(crate) fn covers(asked: &str, target: &str) -> bool {
    target
        .strip_prefix(asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(asked: &str, target: &str) -> bool {
        match (normalize(asked), normalize(target)) {
            (Some(asked), Some(target)) => covers(&asked, &target),
            _ => false,
        }
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
        assert!(matches("sdc.ctxt.loc:/ward", "SDC.CTXT.LOC:/ward/bed?x=1"));
        assert!(!matches("http://example.com/a/b", "http://example.com/a"));
    }
}
