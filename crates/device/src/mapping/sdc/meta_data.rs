//! The product identifiers in the containment tree (11073-10207, MetaData).

use chappe_xml::{Element, Name};

use super::PARTICIPANT;
use super::metrics::find;

/// The identifiers of a medical device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaData {
    /// The device identifier of its UDI, shared by all devices of a model.
    pub device_identifier: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
}

impl MetaData {
    /// The identifiers of the first system in a description.
    pub(super) fn read(description: &Element) -> Option<Self> {
        let system = find(description, "Mds")?;
        let text = |parent: &Element, local| {
            let child = parent.child(&Name::new(PARTICIPANT, local))?;
            Some(child.text().trim().to_owned())
        };
        let data = system.child(&Name::new(PARTICIPANT, "MetaData"))?;
        let udi = data.child(&Name::new(PARTICIPANT, "Udi"));
        Some(Self {
            device_identifier: udi.and_then(|udi| text(udi, "DeviceIdentifier")),
            serial_number: text(data, "SerialNumber"),
        })
    }
}
