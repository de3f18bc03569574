//! The durable identity of a device, which stays the same when its endpoint address changes.
//!
//! It is made of manufacturer, model and serial number (DPWS 1.1, sections 4.1 and 4.2). A medical
//! device without a usable serial number there is identified by its UDI and serial number in the MDIB
//! (11073-10207, MetaData); the device identifier of a UDI alone is that of a model. An identity is an
//! unauthenticated claim: `lineage` decides which streams it continues.

use chappe_device::client::{Description, Presence};
use chappe_device::mapping::sdc::MetaData;
use chappe_dpws::metadata::localized;
use chappe_stream::{DeviceIdentity, name_part};

/// Characters of each part; reason: each stream of a device stores this unauthenticated text.
const PART_CHARS_MAX: usize = 128;
/// Values that devices without a serial number report, reduced to letters and digits.
const PLACEHOLDERS: [&str; 14] = [
    "unknown",
    "none",
    "null",
    "nil",
    "na",
    "nan",
    "notavailable",
    "notapplicable",
    "notset",
    "undefined",
    "default",
    "serial",
    "serialnumber",
    "tobefilledbyoem",
];

/// The product data of a device, and the address at which it answered.
pub(super) struct Product {
    /// The prefix of its streams' names, derived from its friendly name.
    pub(super) base: String,
    manufacturer: Option<String>,
    model: Option<String>,
    serial_number: Option<String>,
    pub(super) presence: Presence,
}

impl Product {
    pub(super) fn of(description: &Description) -> Self {
        let (model, device) = (&description.model, &description.device);
        let text = |texts| localized(texts, "en").and_then(part);
        let number = || part(model.model_number.as_deref()?);
        Self {
            base: name_part(description.name()),
            manufacturer: text(&model.manufacturer),
            model: text(&model.model_name).or_else(number),
            serial_number: device.serial_number.as_deref().and_then(serial_number),
            presence: description.presence(),
        }
    }

    /// The durable identity, if the device has one.
    pub(super) fn identity(&self, meta_data: Option<&MetaData>) -> Option<DeviceIdentity> {
        let by_model = || {
            let parts = [&self.manufacturer, &self.model, &self.serial_number];
            let [manufacturer, model, serial] = parts.map(Option::as_deref);
            Some([manufacturer?, model?, serial?].join("|"))
        };
        let by_udi = || {
            let data = meta_data?;
            let device = part(data.device_identifier.as_deref()?)?;
            let of_data = data.serial_number.as_deref().and_then(serial_number);
            let serial = of_data.or_else(|| self.serial_number.clone())?;
            Some(format!("UDI {device}|{serial}"))
        };
        Some(DeviceIdentity {
            identity: by_model().or_else(by_udi)?,
            address: self.presence.contact.to_string(),
        })
    }
}

/// A part of an identity, with `|` encoded; `None` when the text is empty or too long.
fn part(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fits = !text.is_empty() && text.chars().count() <= PART_CHARS_MAX;
    fits.then(|| text.replace('%', "%25").replace('|', "%7C"))
}

/// A serial number, unless it is a placeholder that many devices share.
fn serial_number(text: &str) -> Option<String> {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    let bare: String = letters.flat_map(char::to_lowercase).collect();
    let is_all = |one| bare.chars().all(|c| c == one);
    let is_placeholder = is_all('0') || is_all('x') || PLACEHOLDERS.contains(&&*bare);
    part(text).filter(|_| !is_placeholder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_no_serial_number() {
        for text in [
            "",
            " ",
            "0",
            "000-000",
            "unknown",
            "N/A",
            "n.a.",
            "None",
            "-",
            "XXXX",
            "Serial number",
            "To be filled by O.E.M.",
        ] {
            assert_eq!(serial_number(text), None, "{text:?}");
        }
        assert_eq!(serial_number(&"7".repeat(PART_CHARS_MAX + 1)), None);
        for (text, same) in [
            ("SN-42", "SN-42"),
            (" 0 7 ", "0 7"),
            ("100", "100"),
            ("序12", "序12"),
        ] {
            assert_eq!(serial_number(text).as_deref(), Some(same));
        }
    }

    #[test]
    fn different_products_have_different_identities() {
        let contact = chappe_identity::Contact::parse("http://192.0.2.7/", 0).unwrap();
        let of = |manufacturer: &str, model: &str, serial: &str| {
            let dialect = chappe_dpws::Dialect::V2009;
            let presence = Presence {
                contact: contact.clone(),
                dialect,
            };
            let product = Product {
                base: String::new(),
                manufacturer: part(manufacturer),
                model: part(model),
                serial_number: serial_number(serial),
                presence,
            };
            let meta_data = MetaData {
                device_identifier: Some("a".into()),
                serial_number: Some("b|c".into()),
            };
            let identity = |data| product.identity(data).map(|found| found.identity);
            (identity(None), identity(Some(&meta_data)))
        };
        let plain = of("a", "b", "c").0;
        assert_eq!(plain.as_deref(), Some("a|b|c"));
        for (manufacturer, model, serial) in [("a|b", "", "c"), ("a", "", "c"), ("a", "b", "0")] {
            let (by_model, by_udi) = of(manufacturer, model, serial);
            assert_eq!(by_model, None);
            assert_eq!(by_udi.as_deref(), Some("UDI a|b%7Cc"));
        }
        assert_ne!(of("a|b", "c", "d"), of("a", "b|c", "d"));
        assert_eq!(
            of("a", "b", "c").1,
            plain,
            "the serial number of the device wins"
        );
    }
}
