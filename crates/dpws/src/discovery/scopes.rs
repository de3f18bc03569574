//! Matching of scopes (WS-Discovery 1.1, section 5.1).

use std::borrow::Cow;

use chappe_soap::Fault;
use chappe_xml::{Element, Name, Str};

use super::Probe;
use crate::Dialect;

/// A rule that compares the scopes of a Probe with those of a target service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchRule {
    /// The default: same scheme and authority, and a prefix of the path's segments. Named `rfc3986`
    /// in the 2009 dialect and `rfc2396` in the 2005 one.
    #[default]
    Rfc3986,
    /// Equal 128 bits.
    Uuid,
    /// Same host and port, and a prefix of the relative distinguished names.
    Ldap,
    /// Equal strings.
    Strcmp0,
    /// Only targets without scopes (2009 dialect).
    None,
}

impl MatchRule {
    /// Every rule with its name, in the order of the fault's list.
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Rfc3986, "rfc3986"),
        (Self::Uuid, "uuid"),
        (Self::Ldap, "ldap"),
        (Self::Strcmp0, "strcmp0"),
        (Self::None, "none"),
    ];

    /// The rules of a dialect.
    pub fn all(dialect: Dialect) -> impl Iterator<Item = Self> {
        let rules = Self::NAMES.into_iter().map(|(rule, _)| rule);
        rules.filter(move |rule| dialect == Dialect::V2009 || *rule != Self::None)
    }

    /// The URI of the rule.
    #[must_use]
    pub fn uri(self, dialect: Dialect) -> String {
        let name = match (self, dialect) {
            (Self::Rfc3986, Dialect::V2005) => "rfc2396",
            _ => self.name(),
        };
        format!("{}/{name}", dialect.discovery())
    }

    /// The name of the rule in the 2009 dialect.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        let own = names.find(|(rule, _)| *rule == self);
        own.map_or("rfc3986", |(_, name)| name)
    }

    /// The rule with this name in the 2009 dialect.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(rule, _)| *rule)
    }

    /// The attribute `MatchBy` of a Probe by this rule, which the default rule does not need; `None` if
    /// the dialect does not have the rule, so that it cannot ask.
    #[must_use]
    pub fn attribute(self, dialect: Dialect) -> Option<Option<Str>> {
        let has_rule = Self::all(dialect).any(|rule| rule == self);
        has_rule.then(|| (self != Self::default()).then(|| self.uri(dialect).into()))
    }

    /// The rule with this URI, if the dialect has it.
    #[must_use]
    pub fn from_uri(dialect: Dialect, uri: &str) -> Option<Self> {
        Self::all(dialect).find(|rule| rule.uri(dialect) == uri)
    }

    /// Whether the requested scope matches a scope of the target.
    #[must_use]
    pub fn matches(self, requested: &str, offered: &str) -> bool {
        match self {
            Self::Rfc3986 => matches_by_path(requested, offered),
            Self::Uuid => matches!((uuid(requested), uuid(offered)), (Some(a), Some(b)) if a == b),
            Self::Ldap => matches_by_distinguished_name(requested, offered),
            Self::Strcmp0 => requested == offered,
            Self::None => false,
        }
    }

    /// Whether every requested scope matches a scope of the target.
    ///
    /// No requested scope matches everything, except by [`MatchRule::None`], which matches only
    /// targets without scopes.
    #[must_use]
    pub fn matches_all(self, requested: &[Str], offered: &[Str]) -> bool {
        if self == Self::None {
            return requested.is_empty() && offered.is_empty();
        }
        requested.iter().all(|requested| {
            offered
                .iter()
                .any(|offered| self.matches(requested, offered))
        })
    }
}

impl Probe {
    /// Whether a target service with these types (in either dialect) and scopes matches; `None` if the
    /// match rule is unknown in this dialect.
    pub(crate) fn matches(&self, dialect: Dialect, types: &[Name], scopes: &[Str]) -> Option<bool> {
        let rule = match &self.match_by {
            Some(uri) => MatchRule::from_uri(dialect, uri)?,
            None => MatchRule::Rfc3986,
        };
        let has = |required: &Name| types.iter().any(|own| dialect.translate(own) == *required);
        Some(self.types.iter().all(has) && rule.matches_all(&self.scopes, scopes))
    }
}

/// The fault for a Probe with an unknown rule (WS-Discovery 1.1, section 5.1).
pub(crate) fn unknown_rule(dialect: Dialect) -> Fault {
    let name = dialect.discovery_name("MatchingRuleNotSupported");
    let mut fault = Fault::sender(name, "the match rule is not supported");
    let rules: Vec<_> = MatchRule::all(dialect)
        .map(|rule| rule.uri(dialect))
        .collect();
    let detail = Element::new(dialect.discovery_name("SupportedMatchingRules"));
    fault.detail.push(detail.with_text(rules.join(" ")).into());
    fault
}

/// The parts of a URI that the rules compare, without query and fragment.
struct Uri<'a> {
    scheme: &'a str,
    authority: Option<&'a str>,
    path: &'a str,
}

fn uri(text: &str) -> Option<Uri<'_>> {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once(':')?;
    let has_valid_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !has_valid_scheme {
        return None;
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        None => (None, rest),
    };
    Some(Uri {
        scheme,
        authority,
        path,
    })
}

/// The percent-decoded bytes of a URI's part.
fn percent_decoded(part: &str) -> Cow<'_, [u8]> {
    if !part.contains('%') {
        return Cow::Borrowed(part.as_bytes());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = |at: usize| {
            after
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
                .and_then(|digit| u8::try_from(digit).ok())
        };
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    Cow::Owned(bytes)
}

fn same_authority(a: Option<&str>, b: Option<&str>) -> bool {
    let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
    percent_decoded(a).eq_ignore_ascii_case(&percent_decoded(b))
}

/// The path's segments; a trailing slash adds none.
fn segments(path: &str) -> Vec<Cow<'_, [u8]>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').map(percent_decoded).collect()
}

fn matches_by_path(requested: &str, offered: &str) -> bool {
    let (Some(requested), Some(offered)) = (uri(requested), uri(offered)) else {
        return false;
    };
    let (prefix, path) = (segments(requested.path), segments(offered.path));
    let has_dot_segment = |segments: &[Cow<'_, [u8]>]| {
        segments
            .iter()
            .any(|segment| matches!(&**segment, b"." | b".."))
    };
    requested.scheme.eq_ignore_ascii_case(offered.scheme)
        && same_authority(requested.authority, offered.authority)
        && !has_dot_segment(&prefix)
        && !has_dot_segment(&path)
        && path.starts_with(&prefix)
}

/// The 128 bits of `uuid:…` or `urn:uuid:…`.
fn uuid(text: &str) -> Option<u128> {
    let (scheme, mut rest) = text.split_once(':')?;
    if scheme.eq_ignore_ascii_case("urn") {
        let (kind, id) = rest.split_once(':')?;
        if !kind.eq_ignore_ascii_case("uuid") {
            return None;
        }
        rest = id;
    } else if !scheme.eq_ignore_ascii_case("uuid") {
        return None;
    }
    // Only the hyphenated form: the parser accepts others.
    let hyphens = rest.len() == 36 && !rest.contains(['{', ':']);
    let parsed = hyphens.then(|| uuid::Uuid::try_parse(rest).ok()).flatten();
    parsed.map(|uuid| uuid.as_u128())
}

/// The relative distinguished names of an LDAP URL, the most significant first.
///
/// The string form (RFC 2253) has the reverse order.
fn distinguished_name(path: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let dn = String::from_utf8(percent_decoded(path.strip_prefix('/')?).into_owned()).ok()?;
    let mut names = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    let mut quoted = false;
    let separators = dn.char_indices().chain([(dn.len(), ',')]);
    for (at, c) in separators {
        let splits = !escaped && !quoted && matches!(c, ',' | ';') || at == dn.len();
        if splits {
            let part = dn.get(start..at).unwrap_or_default();
            start = at + 1;
            if part.trim().is_empty() && at == dn.len() && names.is_empty() {
                break;
            }
            let (attribute, value) = part.split_once('=')?;
            let value = value.trim().as_bytes().to_vec();
            names.push((attribute.trim().to_ascii_lowercase(), value));
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    names.reverse();
    Some(names)
}

fn matches_by_distinguished_name(requested: &str, offered: &str) -> bool {
    let (Some(requested), Some(offered)) = (uri(requested), uri(offered)) else {
        return false;
    };
    let ldap = |uri: &Uri<'_>| uri.scheme.eq_ignore_ascii_case("ldap");
    let names = (
        distinguished_name(requested.path),
        distinguished_name(offered.path),
    );
    let (Some(prefix), Some(whole)) = names else {
        return false;
    };
    ldap(&requested)
        && ldap(&offered)
        && same_authority(requested.authority, offered.authority)
        && whole.starts_with(&prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_rule_compares_segments() {
        let rule = MatchRule::Rfc3986;
        for (requested, offered) in [
            ("http://example.com/abc", "http://example.com/abc/def"),
            ("http://example.com/abc", "http://example.com/abc"),
            ("http://example.com/abc/", "http://example.com/abc/def"),
            ("http://example.com", "http://example.com/abc"),
            ("http://example.com/", "http://example.com/abc"),
            ("HTTP://EXAMPLE.com/abc", "http://example.COM/abc"),
            ("http://example.com/%61bc", "http://example.com/abc/def"),
            (
                "http://example.com/abc?x=1#y",
                "http://example.com/abc/def?z",
            ),
            (
                "onvif://www.onvif.org/type",
                "onvif://www.onvif.org/type/ptz",
            ),
            ("urn:a:b", "URN:a:b"),
            (
                "sdc.ctxt.loc:/sdc.ctxt.loc.detail/a",
                "sdc.ctxt.loc:/sdc.ctxt.loc.detail/a?fac=b",
            ),
        ] {
            assert!(rule.matches(requested, offered), "{requested} {offered}");
        }
        for (requested, offered) in [
            ("http://example.com/a", "http://example.com/abc"),
            ("http://example.com/abc/def", "http://example.com/abc"),
            ("http://example.com/ABC", "http://example.com/abc"),
            ("http://example.com/abc", "https://example.com/abc"),
            ("http://example.com/abc", "http://example.org/abc"),
            ("http://example.com:80/abc", "http://example.com/abc"),
            ("http://example.com/a%2Fb", "http://example.com/a/b"),
            ("http://example.com/./abc", "http://example.com/./abc"),
            ("http://example.com/abc", "http://example.com/abc/../x"),
            ("http://example.com/abc", "http://example.com/abc/%2e%2e/x"),
            ("abc", "abc"),
            ("", ""),
            ("urn:a", "urn:a:b"),
        ] {
            assert!(!rule.matches(requested, offered), "{requested} {offered}");
        }
    }

    #[test]
    fn uuid_rule_compares_bits() {
        let rule = MatchRule::Uuid;
        let lower = "uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert!(rule.matches(lower, "UUID:6BA7B810-9DAD-11D1-80B4-00C04FD430C8"));
        assert!(rule.matches(lower, "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8"));
        assert!(!rule.matches(lower, "uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c9"));
        assert!(!rule.matches("uuid:1", "uuid:1"));
        assert!(!rule.matches("http:6ba7b810-9dad-11d1-80b4-00c04fd430c8", lower));
    }

    #[test]
    fn ldap_rule_compares_names_from_root() {
        let rule = MatchRule::Ldap;
        let offered = "ldap:///ou=engineering,o=examplecom,c=us";
        assert!(rule.matches(offered, offered));
        assert!(rule.matches("ldap:///o=examplecom,c=us", offered));
        assert!(rule.matches("LDAP:///O=examplecom, C=us", offered));
        assert!(rule.matches("ldap:///", offered));
        assert!(rule.matches("ldap://h:389/c=us", "ldap://H:389/o=a%5C,b,c=us"));
        assert!(!rule.matches("ldap:///ou=engineering", offered));
        assert!(!rule.matches("ldap:///ou=engineering,o=examplecom", offered));
        assert!(!rule.matches("ldap://other/c=us", offered));
        assert!(!rule.matches("http:///c=us", "http:///c=us"));
        assert!(!rule.matches("ldap:///b,c=us", "ldap:///o=a%5C,b,c=us"));
    }

    #[test]
    fn strcmp0_rule_compares_exact_strings() {
        assert!(MatchRule::Strcmp0.matches("Any text", "Any text"));
        assert!(!MatchRule::Strcmp0.matches("Any text", "any text"));
    }

    #[test]
    fn all_requested_scopes_must_match() {
        let list =
            |uris: &[&'static str]| uris.iter().map(|uri| Str::from(*uri)).collect::<Vec<_>>();
        let offered = list(&["http://a/1/2", "http://b"]);
        let rule = MatchRule::Rfc3986;
        assert!(rule.matches_all(&[], &[]));
        assert!(rule.matches_all(&[], &offered));
        assert!(rule.matches_all(&list(&["http://b", "http://a/1"]), &offered));
        assert!(!rule.matches_all(&list(&["http://b", "http://c"]), &offered));
        assert!(!rule.matches_all(&list(&["http://b"]), &[]));
        assert!(MatchRule::None.matches_all(&[], &[]));
        assert!(!MatchRule::None.matches_all(&[], &offered));
    }

    #[test]
    fn rule_uris_belong_to_dialect() {
        let new = "http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01/";
        let old = "http://schemas.xmlsoap.org/ws/2005/04/discovery/";
        let parse = |dialect, base: &str, name: &str| {
            MatchRule::from_uri(dialect, &format!("{base}{name}"))
        };
        for name in ["rfc3986", "uuid", "ldap", "strcmp0", "none"] {
            assert!(parse(Dialect::V2009, new, name).is_some(), "{name}");
            assert!(parse(Dialect::V2009, old, name).is_none(), "{name}");
        }
        assert_eq!(
            parse(Dialect::V2005, old, "rfc2396"),
            Some(MatchRule::Rfc3986)
        );
        assert_eq!(parse(Dialect::V2005, old, "none"), None);
        assert_eq!(parse(Dialect::V2009, new, "rfc2396"), None);
    }
}
