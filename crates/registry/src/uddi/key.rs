//! The keys of UDDI data: UUIDs that the registry assigns.
//!
//! In messages, a tModelKey has the prefix `uuid:` and the other keys have none (UDDI 2.03 data
//! structure reference, attributes businessKey, serviceKey, bindingKey, tModelKey). Hexadecimal
//! digits are read in either case and written in upper case, as the specification writes its own
//! keys. In the graph all keys are `urn:uuid:` IRIs in lower case.

use std::fmt;

use super::error::KeyType;

/// Reads the form `8-4-4-4-12` of a UUID.
fn parse_uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    let is_well_formed = bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    if !is_well_formed {
        return None;
    }
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}

fn format_uuid(value: u128) -> String {
    let hex = format!("{value:032X}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// A UUID of version 4 from 128 random bits.
pub(crate) fn random_uuid(bits: u128) -> u128 {
    // Version and variant of RFC 9562, section 5.4.
    let bits = bits & !(0xF000_u128 << 64) & !(0xC000_u128 << 48);
    bits | (0x4000_u128 << 64) | (0x8000_u128 << 48)
}

/// The `urn:uuid:` IRI of a UUID.
pub(crate) fn uuid_iri(value: u128) -> String {
    let uuid = format_uuid(value).to_ascii_lowercase();
    format!("urn:uuid:{uuid}")
}

/// A key of any kind of UDDI data.
pub trait Key: Copy + Eq + fmt::Display {
    /// The kind, as errors name it.
    const TYPE: KeyType;

    /// Reads the key as it stands in a message; `None` if it has another form.
    fn from_text(text: &str) -> Option<Self>;
    /// The key with the UUID `value`.
    fn from_uuid(value: u128) -> Self;
    /// The UUID.
    fn uuid(self) -> u128;

    /// The key of the entity in the registry.
    fn iri(self) -> String {
        uuid_iri(self.uuid())
    }

    /// The key whose entity is `iri`, in lower case: the same UUID in another case is the name of another entity, which
    /// does not speak for this key.
    fn from_iri(iri: &str) -> Option<Self> {
        let text = iri.strip_prefix("urn:uuid:")?;
        let has_upper_case = text.bytes().any(|byte| byte.is_ascii_uppercase());
        let uuid = parse_uuid(text).filter(|_| !has_upper_case);
        uuid.map(Self::from_uuid)
    }

    /// The key of something with this name, always the same.
    #[must_use]
    fn from_name(name: &str) -> Self {
        let hash = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
        let bytes = hash.as_ref().iter().take(16);
        let bits = bytes.fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        // Version 8 and variant of RFC 9562, section 5.8.
        let bits = bits & !(0xF000_u128 << 64) & !(0xC000_u128 << 48);
        Self::from_uuid(bits | (0x8000_u128 << 64) | (0x8000_u128 << 48))
    }

    /// A new key from 128 random bits.
    fn random(bits: u128) -> Self {
        Self::from_uuid(random_uuid(bits))
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident $kind:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// The key with the UUID `value`.
            #[must_use]
            pub const fn new(value: u128) -> Self {
                Self(value)
            }

            /// Reads the key as it stands in a message; `None` if it has another form.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let prefix = text.get(..$prefix.len())?;
                let is_prefixed = prefix.eq_ignore_ascii_case($prefix);
                let rest = text.get($prefix.len()..)?;
                is_prefixed.then(|| parse_uuid(rest))?.map(Self)
            }
        }

        impl Key for $name {
            const TYPE: KeyType = KeyType::$kind;

            fn from_text(text: &str) -> Option<Self> {
                Self::parse(text)
            }

            fn from_uuid(value: u128) -> Self {
                Self(value)
            }

            fn uuid(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, format_uuid(self.0))
            }
        }
    )*};
}

keys! {
    /// The key of a businessEntity.
    BusinessKey Business "";
    /// The key of a businessService.
    ServiceKey Service "";
    /// The key of a bindingTemplate.
    BindingKey Binding "";
    /// The key of a tModel.
    TModelKey TModel "uuid:";
}

/// `uddi-org:general_keywords`, the namespace of references without a tModelKey.
pub const GENERAL_KEYWORDS: TModelKey = TModelKey::new(0xA035_A07C_F362_44DD_8F95_E2B1_34BF_43B4);
/// `uddi-org:relationships`, the namespace of the usual references of assertions.
pub const RELATIONSHIPS: TModelKey = TModelKey::new(0x807A_2C6A_EE22_470D_ADC7_E042_4A33_7C03);
/// `uddi-org:types`, the namespace of the kinds of tModels.
pub const TYPES: TModelKey = TModelKey::new(0xC1AC_F26D_9672_4404_9D70_39B7_56E6_2AB4);
/// `uddi-org:owningBusiness`.
pub(crate) const OWNING_BUSINESS: TModelKey =
    TModelKey::new(0x4064_C064_6D14_4F35_8953_9652_1064_76A9);
/// `uddi-org:operators`.
pub(crate) const OPERATORS: TModelKey = TModelKey::new(0x327A_56F0_3299_4461_BC23_5CD5_13E9_5C55);
/// `uddi-org:isReplacedBy`.
pub(crate) const IS_REPLACED_BY: TModelKey =
    TModelKey::new(0xE59A_E320_77A5_11D5_B898_0004_AC49_CC1E);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_went_out() {
        let text = "uuid:A035A07C-F362-44DD-8F95-E2B134BF43B4";
        assert_eq!(TModelKey::parse(text), Some(GENERAL_KEYWORDS));
        assert_eq!(GENERAL_KEYWORDS.to_string(), text);
        let lower = text.replace("uuid:", "UUID:").to_lowercase();
        assert_eq!(TModelKey::parse(&lower), Some(GENERAL_KEYWORDS));
        let iri = GENERAL_KEYWORDS.iri();
        assert_eq!(iri, "urn:uuid:a035a07c-f362-44dd-8f95-e2b134bf43b4");
        assert_eq!(TModelKey::from_iri(&iri), Some(GENERAL_KEYWORDS));
        for wrong in [
            "",
            "uuid:",
            "A035A07C-F362-44DD-8F95-E2B134BF43B4",
            "uuid:é035A07C",
        ] {
            assert_eq!(TModelKey::parse(wrong), None, "{wrong}");
        }
        assert_eq!(BusinessKey::parse(text), None);
        assert_eq!(BusinessKey::parse("A035A07CF36244DD8F95E2B134BF43B4"), None);
    }

    #[test]
    fn keys_of_names_have_version_8() {
        let key = ServiceKey::from_name("urn:chappe:service:1:urn:uuid:1");
        assert_eq!(
            key,
            ServiceKey::from_name("urn:chappe:service:1:urn:uuid:1")
        );
        assert_ne!(
            key,
            ServiceKey::from_name("urn:chappe:service:2:urn:uuid:1")
        );
        let text = key.to_string();
        assert_eq!(text.get(14..15), Some("8"), "{text}");
        assert!(
            matches!(text.get(19..20), Some("8" | "9" | "A" | "B")),
            "{text}"
        );
    }

    #[test]
    fn random_keys_have_version_4() {
        let key = ServiceKey::random(u128::MAX).to_string();
        assert_eq!(key, "FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF");
        let key = ServiceKey::random(0).to_string();
        assert_eq!(key, "00000000-0000-4000-8000-000000000000");
    }
}
