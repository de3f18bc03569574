//! The `Timestamp`: when a message was created, and until when it is valid.

use std::time::Duration;

use chappe_xml::Element;

use super::{Policy, SecurityError, wsu};
use crate::schema::parse_date_time;

/// The times of a message in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timestamp {
    pub(super) created: u64,
    /// The last second at which the policy can accept the message.
    pub(super) last: u64,
}

/// The one `local` child in seconds; `None` without.
fn time(element: &Element, local: &'static str) -> Result<Option<u64>, SecurityError> {
    let name = wsu(local);
    let mut all = element.elements().filter(|child| child.name == name);
    let (first, second) = (all.next(), all.next());
    if second.is_some() {
        return Err(SecurityError::Header("a time of the Timestamp is repeated"));
    }
    let Some(element) = first else {
        return Ok(None);
    };
    let malformed = SecurityError::Header("a time of the Timestamp is malformed");
    let nanoseconds = parse_date_time(&element.text()).map_err(|_| malformed.clone())?;
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    u64::try_from(seconds).map(Some).map_err(|_| malformed)
}

impl Timestamp {
    /// Reads the element and checks it at the time `unix_s`.
    pub(super) fn check(
        element: &Element,
        policy: &Policy,
        unix_s: u64,
    ) -> Result<Self, SecurityError> {
        let created = time(element, "Created")?;
        let created = created.ok_or(SecurityError::Header("the Timestamp has no Created"))?;
        let whole = |duration: Duration| duration.as_secs();
        let oldest = created.saturating_add(whole(policy.max_age));
        let expires = time(element, "Expires")?.unwrap_or(oldest);
        if expires < created {
            return Err(SecurityError::Header(
                "the Timestamp expires before it is created",
            ));
        }
        let last = expires.min(oldest).saturating_add(whole(policy.clock_skew));
        if unix_s > last {
            return Err(SecurityError::Expired);
        }
        if created > unix_s.saturating_add(whole(policy.clock_skew)) {
            return Err(SecurityError::Future);
        }
        Ok(Self { created, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(children: &str) -> Element {
        let text = format!(
            "<Timestamp xmlns='{}'>{children}</Timestamp>",
            super::super::WSU
        );
        Element::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn bounds_of_a_timestamp() {
        let policy = Policy::default();
        let check = |children: &str, unix_s| Timestamp::check(&stamp(children), &policy, unix_s);
        let both =
            "<Created>1970-01-02T00:00:00.9Z</Created><Expires>1970-01-02T00:01:00Z</Expires>";
        assert_eq!(
            check(both, 86_400),
            Ok(Timestamp {
                created: 86_400,
                last: 86_400 + 60 + 60
            })
        );
        assert_eq!(check(both, 86_521), Err(SecurityError::Expired));
        assert_eq!(check(both, 86_339), Err(SecurityError::Future));
        assert!(check(both, 86_340).is_ok());
        let created = "<Created>1970-01-02T01:00:00+01:00</Created>";
        assert_eq!(check(created, 86_400).unwrap().last, 86_400 + 300 + 60);
        let forever = format!("{created}<Expires>2099-01-01T00:00:00Z</Expires>");
        assert_eq!(check(&forever, 86_400).unwrap().last, 86_400 + 300 + 60);
        for wrong in [
            "",
            "<Expires>1970-01-02T00:00:00Z</Expires>",
            "<Created>yesterday</Created>",
            "<Created>1969-01-02T00:00:00Z</Created>",
            "<Created>1970-01-02T00:00:00Z</Created><Created>1970-01-02T00:00:00Z</Created>",
            "<Created>1970-01-02T00:00:00Z</Created><Expires>1970-01-01T00:00:00Z</Expires>",
        ] {
            assert!(
                matches!(check(wrong, 86_400), Err(SecurityError::Header(_))),
                "{wrong}"
            );
        }
    }
}
